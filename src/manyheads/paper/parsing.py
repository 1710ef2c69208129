"""Constituency parsing (6.3): a parser is trained as a translation model whose output is a linearized tree.

The parse is the best hypothesis of the beam that is a well-formed tree over the words of the sentence. If
there is none, the best hypothesis is repaired by the rules of text/trees.py. The score of the best hypothesis
alone is reported too.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.atomic_io import write_text_atomically
from manyheads.config import Config
from manyheads.evaluate.evalb import COLLINS, BracketScores, EvalbParameters, score_trees
from manyheads.loading import load
from manyheads.model import count_parameters
from manyheads.paper.treebank import ParserInput, Treebank
from manyheads.paper.treebank_data import format_source, prepare_data
from manyheads.paper.trials import check_unchanged, flatten_config
from manyheads.progress import Progress
from manyheads.text.trees import REPAIRS, Leaf, RestoredTree, Tree, get_leaves, restore_tree, walk
from manyheads.train.run import train
from manyheads.train.train_state import read_progress
from manyheads.translation import Translation
from manyheads.translator import Translator

WRONG_TAG = "?"  # of a word that was tagged as punctuation


@dataclass(frozen=True)
class ParseResult:
    """The parse of a sentence."""

    first: RestoredTree  # the best hypothesis, repaired if necessary
    best: RestoredTree  # the best well-formed hypothesis, or else the first


@dataclass(frozen=True)
class ParserEvaluation:
    """The parses of the test sentences by one model, and their scores."""

    parser_input: ParserInput
    parses: Sequence[ParseResult]
    trees: Sequence[Tree]  # as they are scored
    retagged: int  # punctuation that was given the tag of the gold tree
    score: BracketScores
    first_score: BracketScores  # of the best hypotheses alone
    train_trees: int
    seed: int
    parameters: int
    steps: int
    seconds: float  # of training

    @property
    def well_formed(self) -> float:
        """Percentage of sentences whose best hypothesis is well-formed."""
        return 100.0 * sum(parse.first.is_well_formed for parse in self.parses) / max(1, len(self.parses))

    @property
    def num_repaired(self) -> int:
        """Number of sentences without a well-formed hypothesis."""
        return sum(not parse.best.is_well_formed for parse in self.parses)

    @property
    def repairs(self) -> Counter[str]:
        """Number of times each repair rule was applied."""
        return sum((parse.best.repairs for parse in self.parses), Counter())

    def to_dict(self) -> dict[str, Any]:
        keys = (
            "parser_input",
            "train_trees",
            "seed",
            "parameters",
            "steps",
            "seconds",
            "retagged",
            "well_formed",
            "num_repaired",
        )
        repairs = {rule: self.repairs[rule] for rule in REPAIRS if self.repairs[rule]}
        first = {"first_hypothesis": self.first_score.to_dict()}
        return {
            **{name: getattr(self, name) for name in keys},
            "repairs": repairs,
            **self.score.to_dict(),
            **first,
        }


def train_and_evaluate(
    treebank: Treebank,
    parser_input: ParserInput,
    config: Config,
    vocab_size: int,
    folder: Path,
    device: str | None,
    make_progress: Callable[[], Progress],
) -> ParserEvaluation | None:
    """Train or resume in a folder, parse the test set and score it. None: stopped by a signal."""
    check_settings(folder, {**flatten_config(config), "vocab_size": vocab_size})
    with make_progress() as progress:
        prepare_data(treebank, parser_input, vocab_size, folder, progress)
    run_config = replace(config, data=replace(config.data, folder=str(folder / "data")))
    run = folder / "run"
    if train(run_config, run, change_config=True, device=device) == "stopped":
        return None
    translator = load(run / "model", device=device)
    with make_progress() as progress:
        parses = parse(translator, [get_leaves(tree) for tree in treebank.test], parser_input, progress)
    return evaluate_parses(treebank, parser_input, parses, run, config.train.seed)


def check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Raise if the folder was started with other settings; record the settings."""
    file = folder / "settings.json"
    if file.exists():
        check_unchanged(
            folder, json.loads(file.read_text(encoding="utf-8")), json.loads(json.dumps(settings))
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text_atomically(file, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")


def evaluate_parses(
    treebank: Treebank, parser_input: ParserInput, parses: Sequence[ParseResult], run: Path, seed: int
) -> ParserEvaluation:
    chosen = [
        match_punctuation(parse.best.tree, gold) for parse, gold in zip(parses, treebank.test, strict=True)
    ]
    first = [
        match_punctuation(parse.first.tree, gold) for parse, gold in zip(parses, treebank.test, strict=True)
    ]
    progress = read_progress(checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]))
    return ParserEvaluation(
        parser_input=parser_input,
        parses=parses,
        trees=[tree for tree, _ in chosen],
        retagged=sum(changed for _, changed in chosen),
        score=score_trees(treebank.test, [tree for tree, _ in chosen]),
        first_score=score_trees(treebank.test, [tree for tree, _ in first]),
        train_trees=len(treebank.train),
        seed=seed,
        parameters=count_parameters(checkpoint.read_info(run / "model").config.model)["total"],
        steps=progress.step,
        seconds=progress.seconds,
    )


def parse(
    translator: Translator, sentences: Sequence[Sequence[Leaf]], parser_input: ParserInput, progress: Progress
) -> list[ParseResult]:
    """Parse sentences. The words of the leaves are given, and the tags if they are part of the input."""
    progress.update("parsing", 0, len(sentences))
    translations = translator.translate(
        [format_source(sentence, parser_input) for sentence in sentences],
        split=False,
        scores="none",
        nbest=translator.decoding.beam,
        report_progress=lambda _, done, total: progress.update("parsing", done, total),
    )
    return [
        choose_parse(translation, sentence, parser_input)
        for translation, sentence in zip(translations, sentences, strict=True)
    ]


def choose_parse(
    translation: Translation, sentence: Sequence[Leaf], parser_input: ParserInput
) -> ParseResult:
    words = [leaf.word for leaf in sentence]
    tags = None if parser_input == "words" else [leaf.tag for leaf in sentence]
    first = restore_tree(translation.text, words, tags)
    alternatives = (restore_tree(tree.text, words, tags) for tree in translation.alternatives)
    if first.is_well_formed:
        return ParseResult(first, first)
    return ParseResult(first, next((tree for tree in alternatives if tree.is_well_formed), first))


def match_punctuation(tree: Tree, gold: Tree, conventions: EvalbParameters = COLLINS) -> tuple[Tree, int]:
    """Return the tree with punctuation tags exactly where gold has them, and the number of tags changed.

    EVALB skips sentences whose punctuation tags differ. So punctuation is given the gold tag, and a word that
    was tagged as punctuation is given a tag that is always wrong.
    """
    gold_leaves, deleted = iter(get_leaves(gold)), frozenset(conventions.deleted_labels)
    stack: list[list[Tree | Leaf]] = [[]]
    changed = 0
    for item in walk(tree):
        if isinstance(item, Leaf):
            tag = next(gold_leaves).tag
            differs = tag != item.tag and not deleted.isdisjoint((tag, item.tag))
            changed += differs
            stack[-1].append(Leaf(tag if tag in deleted else WRONG_TAG, item.word) if differs else item)
        elif item.startswith("("):
            stack.append([])
        else:
            children = stack.pop()
            stack[-1].append(Tree(item[1:], tuple(children)))
    ((matched,),) = stack
    assert isinstance(matched, Tree)
    return matched, changed
