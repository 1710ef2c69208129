"""Labeled brackets of trees: recall, precision, F1 by the conventions of EVALB (Sekine and Collins, 1997).

A bracket is a label and the words that it spans. Words whose tag is deleted (punctuation) are taken out of
both trees first, brackets that span nothing then are none, and brackets of a deleted label (TOP) do not
count; of a label all that follows - or = is cut off. Two brackets are the same if span and label are, labels
that are declared equal counting as one; of equal brackets over one span each finds at most one partner. A
sentence whose words differ, or are not as many, is an error; one without a tree, or without a word that
counts, is skipped: neither goes into the sums, but both are told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from manyheads.errors import DataError
from manyheads.text.trees import ROOT, TRACE, Leaf, Tree, walk

Span = tuple[str, int, int]  # a label, the first of its words, and the first after them


@dataclass(frozen=True)
class EvalbParameters:
    """What EVALB reads from a parameter file. The defaults are COLLINS.prm's, by which people report."""

    deleted_labels: tuple[str, ...] = (ROOT, TRACE, ",", ":", "``", "''", ".")
    equal_labels: tuple[tuple[str, str], ...] = (("ADVP", "PRT"),)
    equal_words: tuple[tuple[str, str], ...] = ()

    @cached_property
    def canonical_labels(self) -> Mapping[str, str]:
        return {other: one for one, other in self.equal_labels}

    @cached_property
    def canonical_words(self) -> Mapping[str, str]:
        return {other: one for one, other in self.equal_words}

    @property
    def signature(self) -> str:
        equal = " ".join("=".join(pair) for pair in self.equal_labels) or "none"
        return f"EVALB|deleted:{' '.join(self.deleted_labels)}|equal:{equal}"


COLLINS = EvalbParameters()


@dataclass(frozen=True)
class SentenceBrackets:
    """One sentence. `fault` says why it does not count; its numbers are then 0."""

    length: int  # words of the gold tree, traces not counted
    status: str = ""  # "", "error" or "skipped"
    gold: int = 0  # brackets
    found: int = 0
    matched: int = 0
    crossing: int = 0  # brackets that were found and cross one of gold's
    words: int = 0  # that count
    tags: int = 0  # of these, those with gold's tag

    @property
    def exact(self) -> bool:
        return self.gold == self.found == self.matched


@dataclass(frozen=True)
class BracketScores:
    """Many sentences together; shares are per cent."""

    sentences: Sequence[SentenceBrackets]
    signature: str = COLLINS.signature
    valid: Sequence[SentenceBrackets] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "valid", [one for one in self.sentences if not one.status])

    def _sum(self, name: str) -> int:
        return sum(getattr(one, name) for one in self.valid)

    @property
    def recall(self) -> float:
        return percent(self._sum("matched"), self._sum("gold"))

    @property
    def precision(self) -> float:
        return percent(self._sum("matched"), self._sum("found"))

    @property
    def f1(self) -> float:
        return percent(2 * self._sum("matched"), self._sum("gold") + self._sum("found"))

    @property
    def exact(self) -> float:
        """Sentences all of whose brackets are right."""
        return percent(sum(one.exact for one in self.valid), len(self.valid))

    @property
    def crossing(self) -> float:
        """Crossing brackets a sentence."""
        return self._sum("crossing") / max(1, len(self.valid))

    @property
    def tagging(self) -> float:
        return percent(self._sum("tags"), self._sum("words"))

    @property
    def errors(self) -> int:
        return sum(one.status == "error" for one in self.sentences)

    @property
    def skipped(self) -> int:
        return sum(one.status == "skipped" for one in self.sentences)

    def with_max_length(self, length: int) -> "BracketScores":
        """The sentences of at most so many words: EVALB also reports those of 40."""
        return BracketScores([one for one in self.sentences if one.length <= length], self.signature)

    def to_dict(self) -> dict[str, Any]:
        shares = ("f1", "recall", "precision", "exact", "tagging", "crossing")
        return {
            **{name: round(getattr(self, name), 4) for name in shares},
            "sentences": len(self.sentences),
            "errors": self.errors,
            "skipped": self.skipped,
            "signature": self.signature,
        }


def percent(part: int, total: int) -> float:
    return 100.0 * part / total if total else 0.0


def score_trees(
    gold: Sequence[Tree], predicted: Sequence[Tree | None], parameters: EvalbParameters = COLLINS
) -> BracketScores:
    """The trees that were found against those that are right; None: nothing was found."""
    if len(gold) != len(predicted):
        raise DataError(f"{len(gold)} gold trees, but {len(predicted)} to judge: give one for each")
    judged = [score_tree(one, other, parameters) for one, other in zip(gold, predicted, strict=True)]
    return BracketScores(judged, parameters.signature)


def score_tree(gold: Tree, predicted: Tree | None, parameters: EvalbParameters = COLLINS) -> SentenceBrackets:
    """One tree against the right one."""
    ours, theirs = TreeBrackets(gold, parameters), TreeBrackets(predicted, parameters)
    length = sum(isinstance(one, Leaf) and one.tag != TRACE for one in walk(gold))
    if not theirs.words:
        return SentenceBrackets(length, "skipped")
    if ours.words != theirs.words:
        return SentenceBrackets(length, "error")
    return SentenceBrackets(
        length,
        gold=len(ours.spans),
        found=len(theirs.spans),
        matched=(Counter(ours.spans) & Counter(theirs.spans)).total(),
        crossing=sum(crosses_any(span, ours.spans) for span in theirs.spans),
        words=len(ours.words),
        tags=sum(one == other for one, other in zip(ours.tags, theirs.tags, strict=True)),
    )


class TreeBrackets:
    """Of a tree what counts: words, tags and brackets, under the names that stand for all their equals."""

    def __init__(self, tree: Tree | None, parameters: EvalbParameters) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self.spans: list[Span] = []
        starts: list[int] = []
        for one in walk(tree) if tree else ():
            if isinstance(one, Leaf):
                if one.tag not in parameters.deleted_labels:
                    self.words.append(parameters.canonical_words.get(one.word, one.word))
                    self.tags.append(parameters.canonical_labels.get(one.tag, one.tag))
            elif one.startswith("("):
                starts.append(len(self.words))
            else:
                label = one[1:].partition("-")[0].partition("=")[0]
                label, start = parameters.canonical_labels.get(label, label), starts.pop()
                if start < len(self.words) and label not in parameters.deleted_labels:
                    self.spans.append((label, start, len(self.words)))


def crosses_any(span: Span, others: Iterable[Span]) -> bool:
    """Whether it overlaps one of the others, and neither holds the other."""
    _, start, end = span
    return any(first < start < last < end or start < first < end < last for _, first, last in others)
