"""A parser (6.3): trained as a translator is, and asked for trees.

Of what the beam holds at the end the best is taken that is a tree over the sentence's words, to the bracket;
where none is, the very best is mended by the rules of text/trees.py. What the very best alone would have been
worth is told too.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.config import Config
from manyheads.evaluate.evalb import COLLINS, BracketScores, EvalbParameters, score_trees
from manyheads.model import count_parameters
from manyheads.paper.treebank import ParserInput, Treebank, format_source, prepare_data
from manyheads.paper.trials import check_unchanged, flatten_config, write_aside
from manyheads.progress import Progress
from manyheads.text.trees import REPAIRS, Leaf, RestoredTree, Tree, get_leaves, restore_tree, walk
from manyheads.train.run import train
from manyheads.translator import Translation, Translator, load

WRONG_TAG = "?"  # the tag of a word that was taken for punctuation


@dataclass(frozen=True)
class ParseResult:
    """What came out for a sentence."""

    first: RestoredTree  # the best of the beam
    best: RestoredTree  # the best of the beam that needs no mending, or else the first


@dataclass(frozen=True)
class ParserEvaluation:
    """What one model made of the test sentences."""

    parser_input: ParserInput
    parses: Sequence[ParseResult]
    trees: Sequence[Tree]  # as they are judged
    retagged: int  # punctuation whose tag was not the gold tree's
    score: BracketScores
    first_score: BracketScores  # of the best of the beam alone
    train_trees: int  # trees
    parameters: int
    steps: int
    seconds: float  # of training

    @property
    def well_formed(self) -> float:
        """Per cent of the sentences for which the best of the beam needs no mending."""
        return 100.0 * sum(one.first.is_well_formed for one in self.parses) / max(1, len(self.parses))

    @property
    def num_repaired(self) -> int:
        """Sentences for which nothing in the beam was a tree."""
        return sum(not one.best.is_well_formed for one in self.parses)

    @property
    def repairs(self) -> Counter[str]:
        """How often each rule was needed for what was chosen."""
        return sum((one.best.repairs for one in self.parses), Counter())

    def to_dict(self) -> dict[str, Any]:
        plain = (
            "reads",
            "learned_from",
            "parameters",
            "steps",
            "seconds",
            "retagged",
            "well_formed",
            "mended",
        )
        repairs = {rule: self.repairs[rule] for rule in REPAIRS if self.repairs[rule]}
        first = {"first_alone": self.first_score.to_dict()}
        return {
            **{name: getattr(self, name) for name in plain},
            "repairs": repairs,
            **self.score.to_dict(),
            **first,
        }


def train_and_evaluate(
    bank: Treebank,
    parser_input: ParserInput,
    config: Config,
    vocab_size: int,
    folder: Path,
    device: str | None,
    make_progress: Callable[[], Progress],
) -> ParserEvaluation | None:
    """Learns in a folder, or goes on there; parses test, and is judged. None: it was asked to stop."""
    check_settings(folder, {**flatten_config(config), "vocabulary": vocab_size})
    with make_progress() as progress:
        prepare_data(bank, parser_input, vocab_size, folder, progress)
    whole = replace(config, data=replace(config.data, folder=str(folder / "data")))
    run = folder / "run"
    if train(whole, run, change_config=True, device=device) == "stopped":
        return None
    translator = load(run / "model", device=device)
    with make_progress() as progress:
        answers = parse(translator, [get_leaves(tree) for tree in bank.test], parser_input, progress)
    return evaluate_parses(bank, parser_input, answers, run)


def check_settings(folder: Path, now: dict[str, Any]) -> None:
    """A report is of what its command asked for: a run that was begun otherwise is refused."""
    file = folder / "settings.json"
    if file.exists():
        check_unchanged(folder, json.loads(file.read_text(encoding="utf-8")), json.loads(json.dumps(now)))
    folder.mkdir(parents=True, exist_ok=True)
    write_aside(file, json.dumps(now, ensure_ascii=False, indent=1) + "\n")


def evaluate_parses(
    bank: Treebank, parser_input: ParserInput, parses: Sequence[ParseResult], run: Path
) -> ParserEvaluation:
    chosen = [match_punctuation(one.best.tree, gold) for one, gold in zip(parses, bank.test, strict=True)]
    first = [match_punctuation(one.first.tree, gold) for one, gold in zip(parses, bank.test, strict=True)]
    place = checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]).training["progress"]
    return ParserEvaluation(
        parser_input=parser_input,
        parses=parses,
        trees=[tree for tree, _ in chosen],
        retagged=sum(changed for _, changed in chosen),
        score=score_trees(bank.test, [tree for tree, _ in chosen]),
        first_score=score_trees(bank.test, [tree for tree, _ in first]),
        train_trees=len(bank.train),
        parameters=count_parameters(checkpoint.read_info(run / "model").config.model)["total"],
        steps=place["step"],
        seconds=place["seconds"],
    )


def parse(
    translator: Translator, sentences: Sequence[Sequence[Leaf]], parser_input: ParserInput, progress: Progress
) -> list[ParseResult]:
    """A tree for each sentence. Of a leaf the word is known, and the tag where it is read."""
    progress.update("parsing", 0, len(sentences))
    found = translator.translate(
        [format_source(sentence, parser_input) for sentence in sentences],
        split=False,
        scores="none",
        nbest=translator.decoding.beam,
        tell=lambda done, total: progress.update("parsing", done, total),
    )
    return [choose_parse(one, sentence, parser_input) for one, sentence in zip(found, sentences, strict=True)]


def choose_parse(found: Translation, sentence: Sequence[Leaf], parser_input: ParserInput) -> ParseResult:
    words = [leaf.word for leaf in sentence]
    tags = None if parser_input == "words" else [leaf.tag for leaf in sentence]
    first = restore_tree(found.text, words, tags)
    others = (restore_tree(one.text, words, tags) for one in found.alternatives)
    if first.is_well_formed:
        return ParseResult(first, first)
    return ParseResult(first, next((one for one in others if one.is_well_formed), first))


def match_punctuation(found: Tree, gold: Tree, conventions: EvalbParameters = COLLINS) -> tuple[Tree, int]:
    """With punctuation where gold has it and nowhere else; and how many tags that changed.

    EVALB would call a sentence with one such tag wrong an error, and leave it out of its sums. Punctuation
    gets gold's tag; a word that was taken for punctuation gets one that is never right, as what it had.
    """
    right = iter(get_leaves(gold))
    stack: list[list[Tree | Leaf]] = [[]]
    changed = 0
    for one in walk(found):
        if isinstance(one, Leaf):
            tag = next(right).tag
            wrong = tag != one.tag and (
                tag in conventions.deleted_labels or one.tag in conventions.deleted_labels
            )
            changed += wrong
            stack[-1].append(
                Leaf(tag if tag in conventions.deleted_labels else WRONG_TAG, one.word) if wrong else one
            )
        elif one.startswith("("):
            stack.append([])
        else:
            inside = stack.pop()
            stack[-1].append(Tree(one[1:], tuple(inside)))
    ((made,),) = stack
    assert isinstance(made, Tree)
    return made, changed
