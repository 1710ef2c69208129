"""A probabilistic context-free grammar, the baseline of Table 4: parent annotation, estimated by counting.

Each label is joined with that of its parent (Johnson, 1998): NP^S is a subject, NP^VP an object. Rules with
more than two children become binary ones from left to right; the symbols in between remember the last
children:

    VP^S -> VBD NP PP        becomes        VP^S -> VBD @VP^S[VBD]        @VP^S[VBD] -> NP PP

Words: P(word | tag) by Bayes' rule from P(tag | word), smoothed with the tags of rare words of the same
shape.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.text.trees import Leaf, Tree

HISTORY = 2  # children that a symbol between two rules remembers
RARE_COUNT = 2  # words up to this count teach the tags of unknown ones
SHAPE_WEIGHT = 1.0  # pseudo-counts of a word's shape beside its own tags
TAG_WEIGHT = 100.0  # pseudo-counts of a tag beside the same tag under one parent
BETWEEN = "@"  # begins the symbols between two rules
SUFFIX_PATTERN = re.compile(r"(ing|ed|ly|ion|er|est|al|ous|ive|able|ity|ment|ss|s|y)$")

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class RuleArrays:
    """Rules by symbol numbers, sorted by parent, with log probabilities."""

    parents: IntArray
    children: IntArray  # [rules, 1 or 2]
    scores: FloatArray
    starts: NDArray[np.intp]  # of each parent's first rule
    heads: IntArray  # the parent of each group


@dataclass(frozen=True)
class Lexicon:
    """How likely each tag, under each parent, produces a word."""

    tags: Mapping[str, Counter[str]]  # of each word
    shapes: Mapping[str, Counter[str]]  # tags of rare words of each shape
    tag_counts: Counter[str]
    annotated: Mapping[str, Counter[str]]  # tag -> its symbols, by parent
    words: Mapping[str, Counter[str]]  # symbol of an annotated tag -> its words
    total: int

    def score(self, word: str, is_first: bool) -> dict[str, float]:
        """Return log P(word | symbol), up to a constant of the word, of each possible symbol."""
        distribution = self._tag_distribution(word, is_first)
        scores = {}
        for tag, probability in distribution.items():
            emission = probability * self.total / self.tag_counts[tag]  # P(word | tag) / P(word)
            for symbol, count in self.annotated[tag].items():
                own = self.words[symbol][word] * self.total / max(1, sum(self.tags.get(word, {}).values()))
                scores[symbol] = math.log((own + TAG_WEIGHT * emission) / (count + TAG_WEIGHT))
        return scores

    def _tag_distribution(self, word: str, is_first: bool) -> dict[str, float]:
        """P(tag | word): counts of the word, and of the rare words of its shape as SHAPE_WEIGHT of them."""
        if word not in self.tags and is_first and word.lower() in self.tags:
            word = word.lower()
        own = self.tags.get(word, Counter())
        total = sum(own.values())
        shape = next(counts for name in list_shapes(word) if (counts := self.shapes.get(name)))
        size = sum(shape.values())
        weight = SHAPE_WEIGHT if total <= RARE_COUNT else 0.0
        tags = {*own, *shape} if weight else own.keys()
        return {
            tag: (own[tag] + weight * shape[tag] / size) / (total + weight)
            for tag in tags
            if own[tag] or shape[tag]
        }


def list_shapes(word: str) -> Iterator[str]:
    """Yield shapes of a word, from the most to the least specific; the last fits every word."""
    case = "digit" if re.search(r"\d", word) else "capital" if word[:1].isupper() else "lower"
    suffix = SUFFIX_PATTERN.search(word.lower())
    hyphen = "hyphen" if "-" in word[1:-1] else ""
    yield f"{case} {hyphen} {suffix.group() if suffix else ''}"
    yield f"{case} {hyphen}"
    yield case
    yield ""


@dataclass(frozen=True)
class Grammar:
    """Symbols, rules and lexicon."""

    symbols: list[str]
    numbers: dict[str, int]
    binary: RuleArrays
    unary: RuleArrays
    lexicon: Lexicon
    roots: Counter[str]

    @classmethod
    def estimate(cls, trees: Iterable[Tree], history: int = HISTORY) -> "Grammar":
        """Count the rules of trees."""
        rules: Counter[tuple[str, ...]] = Counter()
        leaves: list[tuple[Leaf, str]] = []
        roots: Counter[str] = Counter()
        for tree in trees:
            roots[annotate(tree.label, "")] += 1
            for rule in list_rules(tree, history, leaves):
                rules[rule] += 1
        totals: Counter[str] = Counter()
        for rule, count in rules.items():
            totals[rule[0]] += count
        names = sorted({name for rule in rules for name in rule})
        numbers = {name: number for number, name in enumerate(names)}
        logs = {rule: math.log(count / totals[rule[0]]) for rule, count in rules.items()}
        return cls(
            names,
            numbers,
            make_arrays({rule: score for rule, score in logs.items() if len(rule) == 3}, numbers),
            make_arrays({rule: score for rule, score in logs.items() if len(rule) == 2}, numbers),
            make_lexicon(leaves),
            roots,
        )

    @property
    def num_rules(self) -> int:
        return len(self.binary.scores) + len(self.unary.scores)

    def score_words(self, sentence: Sequence[Leaf], gold_tags: bool) -> list[dict[int, float]]:
        """Return, for each word, the scores of the symbols that may stand above it.

        With gold tags, the symbols are those of the tag, and all are equally good.
        """
        lexicon = self.lexicon
        scores = []
        for index, leaf in enumerate(sentence):
            if gold_tags and leaf.tag in lexicon.annotated:
                known = dict.fromkeys(lexicon.annotated[leaf.tag], 0.0)
            else:
                known = lexicon.score(leaf.word, index == 0)
            scores.append({self.numbers[name]: score for name, score in known.items()})
        return scores


def annotate(label: str, parent: str) -> str:
    return f"{label}^{parent}" if parent else label


def strip_parent(symbol: str) -> str:
    """Return the label of a symbol."""
    return symbol.partition("^")[0]


def list_rules(tree: Tree, history: int, leaves: list[tuple[Leaf, str]]) -> Iterator[tuple[str, ...]]:
    """Yield the binary and unary rules of a tree, and collect its leaves with their symbols."""
    pending = [(tree, "")]
    while pending:
        node, parent = pending.pop()
        symbol = annotate(node.label, parent)
        names = []
        for child in node.children:
            if isinstance(child, Leaf):
                names.append(annotate(child.tag, node.label))
                leaves.append((child, names[-1]))
            else:
                names.append(annotate(child.label, node.label))
                pending.append((child, node.label))
        yield from binarize(symbol, names, history)


def binarize(symbol: str, names: Sequence[str], history: int) -> Iterator[tuple[str, ...]]:
    """Yield a rule as binary ones, from left to right."""
    left = symbol
    for index in range(len(names) - 2):
        past = " ".join(map(strip_parent, names[max(0, index + 1 - history) : index + 1]))
        between = f"{BETWEEN}{symbol}[{past}]"
        yield left, names[index], between
        left = between
    yield left, *names[-2:]


def make_arrays(scores: Mapping[tuple[str, ...], float], numbers: Mapping[str, int]) -> RuleArrays:
    ordered = sorted(scores, key=lambda rule: numbers[rule[0]])
    parents = np.array([numbers[rule[0]] for rule in ordered], np.int32)
    children = np.array([[numbers[name] for name in rule[1:]] for rule in ordered], np.int32)
    heads, starts = np.unique(parents, return_index=True)
    return RuleArrays(
        parents, children, np.array([scores[rule] for rule in ordered], np.float32), starts, heads
    )


def make_lexicon(leaves: Sequence[tuple[Leaf, str]]) -> Lexicon:
    by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    words: defaultdict[str, Counter[str]] = defaultdict(Counter)
    annotated: defaultdict[str, Counter[str]] = defaultdict(Counter)
    shapes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for leaf, symbol in leaves:
        by_word[leaf.word][leaf.tag] += 1
        words[symbol][leaf.word] += 1
        annotated[leaf.tag][symbol] += 1
    for word, tags in by_word.items():
        for shape in list_shapes(word) if sum(tags.values()) <= RARE_COUNT else [""]:
            shapes[shape].update(tags)
    tag_counts = Counter({tag: sum(symbols.values()) for tag, symbols in annotated.items()})
    return Lexicon(by_word, shapes, tag_counts, annotated, words, len(leaves))
