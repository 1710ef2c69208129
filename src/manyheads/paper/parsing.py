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
from manyheads.paper.treebank import Reads, Treebank, data_folder, source_line
from manyheads.paper.trials import flat, refuse_changes, write_aside
from manyheads.progress import Progress
from manyheads.text.trees import REPAIRS, Leaf, Restored, Tree, leaves, restore, walk
from manyheads.train.run import train
from manyheads.translator import Translation, Translator, load

WRONG = "?"  # the tag of a word that was taken for punctuation


@dataclass(frozen=True)
class Answer:
    """What came out for a sentence."""

    first: Restored  # the best of the beam
    chosen: Restored  # the best of the beam that needs no mending, or else the first


@dataclass(frozen=True)
class Parsed:
    """What one model made of the test sentences."""

    reads: Reads
    answers: Sequence[Answer]
    found: Sequence[Tree]  # as they are judged
    retagged: int  # punctuation whose tag was not the gold tree's
    score: BracketScores
    first_score: BracketScores  # of the best of the beam alone
    learned_from: int  # trees
    parameters: int
    steps: int
    seconds: float  # of training

    @property
    def well_formed(self) -> float:
        """Per cent of the sentences for which the best of the beam needs no mending."""
        return 100.0 * sum(one.first.well_formed for one in self.answers) / max(1, len(self.answers))

    @property
    def mended(self) -> int:
        """Sentences for which nothing in the beam was a tree."""
        return sum(not one.chosen.well_formed for one in self.answers)

    @property
    def repairs(self) -> Counter[str]:
        """How often each rule was needed for what was chosen."""
        return sum((one.chosen.repairs for one in self.answers), Counter())

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


def measured(
    bank: Treebank,
    reads: Reads,
    config: Config,
    vocabulary: int,
    folder: Path,
    device: str | None,
    watch: Callable[[], Progress],
) -> Parsed | None:
    """Learns in a folder, or goes on there; parses test, and is judged. None: it was asked to stop."""
    keep_to_settings(folder, {**flat(config), "vocabulary": vocabulary})
    with watch() as progress:
        data_folder(bank, reads, vocabulary, folder, progress)
    whole = replace(config, data=replace(config.data, folder=str(folder / "data")))
    run = folder / "run"
    if train(whole, run, change_config=True, device=device) == "asked":
        return None
    translator = load(run / "model", device=device)
    with watch() as progress:
        answers = parse(translator, [leaves(tree) for tree in bank.test], reads, progress)
    return judged(bank, reads, answers, run)


def keep_to_settings(folder: Path, now: dict[str, Any]) -> None:
    """A report is of what its command asked for: a run that was begun otherwise is refused."""
    file = folder / "settings.json"
    if file.exists():
        refuse_changes(folder, json.loads(file.read_text(encoding="utf-8")), json.loads(json.dumps(now)))
    folder.mkdir(parents=True, exist_ok=True)
    write_aside(file, json.dumps(now, ensure_ascii=False, indent=1) + "\n")


def judged(bank: Treebank, reads: Reads, answers: Sequence[Answer], run: Path) -> Parsed:
    chosen = [as_judged(one.chosen.tree, gold) for one, gold in zip(answers, bank.test, strict=True)]
    first = [as_judged(one.first.tree, gold) for one, gold in zip(answers, bank.test, strict=True)]
    place = checkpoint.read_info(checkpoint.list_checkpoints(run)[-1]).training["place"]
    return Parsed(
        reads=reads,
        answers=answers,
        found=[tree for tree, _ in chosen],
        retagged=sum(changed for _, changed in chosen),
        score=score_trees(bank.test, [tree for tree, _ in chosen]),
        first_score=score_trees(bank.test, [tree for tree, _ in first]),
        learned_from=len(bank.train),
        parameters=count_parameters(checkpoint.read_info(run / "model").config.model)["total"],
        steps=place["step"],
        seconds=place["seconds"],
    )


def parse(
    translator: Translator, sentences: Sequence[Sequence[Leaf]], reads: Reads, progress: Progress
) -> list[Answer]:
    """A tree for each sentence. Of a leaf the word is known, and the tag where it is read."""
    progress.update("parsing", 0, len(sentences))
    found = translator.translate(
        [source_line(sentence, reads) for sentence in sentences],
        split=False,
        scores="none",
        nbest=translator.decoding.beam,
        tell=lambda done, total: progress.update("parsing", done, total),
    )
    return [answer(one, sentence, reads) for one, sentence in zip(found, sentences, strict=True)]


def answer(found: Translation, sentence: Sequence[Leaf], reads: Reads) -> Answer:
    words = [leaf.word for leaf in sentence]
    tags = None if reads == "words" else [leaf.tag for leaf in sentence]
    first = restore(found.text, words, tags)
    others = (restore(one.text, words, tags) for one in found.alternatives)
    if first.well_formed:
        return Answer(first, first)
    return Answer(first, next((one for one in others if one.well_formed), first))


def as_judged(found: Tree, gold: Tree, how: EvalbParameters = COLLINS) -> tuple[Tree, int]:
    """With punctuation where gold has it and nowhere else; and how many tags that changed.

    EVALB would call a sentence with one such tag wrong an error, and leave it out of its sums. Punctuation
    gets gold's tag; a word that was taken for punctuation gets one that is never right, as what it had.
    """
    right = iter(leaves(gold))
    stack: list[list[Tree | Leaf]] = [[]]
    changed = 0
    for one in walk(found):
        if isinstance(one, Leaf):
            tag = next(right).tag
            wrong = tag != one.tag and (tag in how.deleted_labels or one.tag in how.deleted_labels)
            changed += wrong
            stack[-1].append(Leaf(tag if tag in how.deleted_labels else WRONG, one.word) if wrong else one)
        elif one.startswith("("):
            stack.append([])
        else:
            inside = stack.pop()
            stack[-1].append(Tree(one[1:], tuple(inside)))
    ((made,),) = stack
    assert isinstance(made, Tree)
    return made, changed
