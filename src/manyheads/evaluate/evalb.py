"""Labeled bracket scores of parse trees: recall, precision and F1 as EVALB computes them (Sekine and
Collins, 1997).

A bracket is a label and the words that it spans. Words with a deleted tag (punctuation) are removed from both
trees first; brackets that then span nothing, and brackets with a deleted label (TOP), do not count. What
follows - or = in a label is cut off. Two brackets match if span and label are equal, labels that are declared
equal included; each bracket matches at most one other. A sentence whose words differ is an error; one without
a tree, or without a word that counts, is skipped. Both are reported, but not part of the sums.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from manyheads.errors import DataError
from manyheads.text.trees import ROOT, TRACE, Leaf, Tree, walk

Span = tuple[str, int, int]  # a label, its first word, and the first word after it


@dataclass(frozen=True)
class EvalbParameters:
    """The contents of an EVALB parameter file. The defaults are those of COLLINS.prm, the usual one."""

    deleted_labels: tuple[str, ...] = (ROOT, TRACE, ",", ":", "``", "''", ".")
    equal_labels: tuple[tuple[str, str], ...] = (("ADVP", "PRT"),)
    equal_words: tuple[tuple[str, str], ...] = ()

    @cached_property
    def canonical_labels(self) -> Mapping[str, str]:
        return {label: canonical for canonical, label in self.equal_labels}

    @cached_property
    def canonical_words(self) -> Mapping[str, str]:
        return {word: canonical for canonical, word in self.equal_words}

    @property
    def signature(self) -> str:
        equal = " ".join("=".join(pair) for pair in self.equal_labels) or "none"
        return f"EVALB|deleted:{' '.join(self.deleted_labels)}|equal:{equal}"


COLLINS = EvalbParameters()


@dataclass(frozen=True)
class SentenceBrackets:
    """The counts of one sentence. If it has a `status`, it does not count, and its numbers are 0."""

    length: int  # words of the gold tree without traces
    status: str = ""  # "", "error" or "skipped"
    gold: int = 0  # brackets
    predicted: int = 0
    matched: int = 0
    crossing: int = 0  # predicted brackets that cross a gold one
    words: int = 0  # without deleted ones
    tags: int = 0  # words with the gold tag

    @property
    def is_exact(self) -> bool:
        return self.gold == self.predicted == self.matched


@dataclass(frozen=True)
class BracketScores:
    """The scores of a corpus, in percent."""

    sentences: Sequence[SentenceBrackets]
    signature: str = COLLINS.signature
    valid: Sequence[SentenceBrackets] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "valid", [sentence for sentence in self.sentences if not sentence.status])

    def _sum(self, name: str) -> int:
        return sum(getattr(sentence, name) for sentence in self.valid)

    @property
    def recall(self) -> float:
        return percent(self._sum("matched"), self._sum("gold"))

    @property
    def precision(self) -> float:
        return percent(self._sum("matched"), self._sum("predicted"))

    @property
    def f1(self) -> float:
        return percent(2 * self._sum("matched"), self._sum("gold") + self._sum("predicted"))

    @property
    def exact(self) -> float:
        """Sentences whose brackets are all right."""
        return percent(self._sum("is_exact"), len(self.valid))

    @property
    def crossing(self) -> float:
        """Crossing brackets per sentence."""
        return self._sum("crossing") / max(1, len(self.valid))

    @property
    def tagging(self) -> float:
        """Words with the right tag."""
        return percent(self._sum("tags"), self._sum("words"))

    @property
    def errors(self) -> int:
        return sum(sentence.status == "error" for sentence in self.sentences)

    @property
    def skipped(self) -> int:
        return sum(sentence.status == "skipped" for sentence in self.sentences)

    def with_max_length(self, length: int) -> "BracketScores":
        """Return the scores of sentences of at most `length` words; EVALB also reports those up to 40."""
        sentences = [sentence for sentence in self.sentences if sentence.length <= length]
        return BracketScores(sentences, self.signature)

    def to_dict(self) -> dict[str, Any]:
        names = ("f1", "recall", "precision", "exact", "tagging", "crossing")
        return {
            **{name: round(getattr(self, name), 4) for name in names},
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
    """Score predicted trees against gold trees; None stands for a sentence without a predicted tree."""
    if len(gold) != len(predicted):
        raise DataError(
            f"{len(gold)} gold trees, but {len(predicted)} predicted trees: give one for each gold tree"
        )
    sentences = [score_tree(*pair, parameters) for pair in zip(gold, predicted, strict=True)]
    return BracketScores(sentences, parameters.signature)


def score_tree(gold: Tree, predicted: Tree | None, parameters: EvalbParameters = COLLINS) -> SentenceBrackets:
    """Compare one predicted tree with its gold tree."""
    ours, theirs = TreeBrackets(gold, parameters), TreeBrackets(predicted, parameters)
    length = sum(isinstance(node, Leaf) and node.tag != TRACE for node in walk(gold))
    if not theirs.words:
        return SentenceBrackets(length, "skipped")
    if ours.words != theirs.words:
        return SentenceBrackets(length, "error")
    return SentenceBrackets(
        length,
        gold=len(ours.spans),
        predicted=len(theirs.spans),
        matched=(Counter(ours.spans) & Counter(theirs.spans)).total(),
        crossing=sum(crosses_any(span, ours.spans) for span in theirs.spans),
        words=len(ours.words),
        tags=sum(tag == other for tag, other in zip(ours.tags, theirs.tags, strict=True)),
    )


class TreeBrackets:
    """The words, tags and brackets of a tree that count, by their canonical names."""

    def __init__(self, tree: Tree | None, parameters: EvalbParameters) -> None:
        self.words: list[str] = []
        self.tags: list[str] = []
        self.spans: list[Span] = []
        labels, words = parameters.canonical_labels, parameters.canonical_words
        starts: list[int] = []
        for node in walk(tree) if tree else ():
            if isinstance(node, Leaf):
                if node.tag not in parameters.deleted_labels:
                    self.words.append(words.get(node.word, node.word))
                    self.tags.append(labels.get(node.tag, node.tag))
            elif node.startswith("("):
                starts.append(len(self.words))
            else:
                label = node[1:].partition("-")[0].partition("=")[0]
                label, start = labels.get(label, label), starts.pop()
                if start < len(self.words) and label not in parameters.deleted_labels:
                    self.spans.append((label, start, len(self.words)))


def crosses_any(span: Span, others: Iterable[Span]) -> bool:
    """Whether the span overlaps another one, and neither contains the other."""
    _, start, end = span
    return any(first < start < last < end or start < first < end < last for _, first, last in others)
