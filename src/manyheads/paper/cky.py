"""CKY: the most likely tree of a sentence under a grammar of binary and unary rules.

Shapes: N words, G symbols of the grammar. chart[start, end] holds, for each symbol, the log probability of
its best tree over the words from start to end; -inf where there is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.paper.pcfg import BETWEEN, FloatArray, Grammar, RuleArrays, strip_parent
from manyheads.text.trees import ROOT, Leaf, Tree

NO_CHILD = -1
PRUNE_BELOW = 20.0  # log probability below the best symbol of a span; 0 keeps the best one only


@dataclass(frozen=True)
class CkyParser:
    """Parses sentences with a grammar."""

    grammar: Grammar
    prune_below: float = PRUNE_BELOW

    def parse(self, sentence: Sequence[Leaf], *, gold_tags: bool) -> Tree | None:
        """Return the most likely tree over the words, or None if the grammar has none."""
        chart, by_unary = self._fill_chart(self.grammar.score_words(sentence, gold_tags))
        root, best = None, -np.inf
        total = sum(self.grammar.roots.values())
        for name, count in self.grammar.roots.items():
            score = chart[0, len(sentence), self.grammar.numbers[name]] + np.log(count / total)
            if score > best:
                root, best = self.grammar.numbers[name], score
        if root is None:
            return None
        (tree,) = self._build(root, 0, len(sentence), sentence, chart, by_unary)
        return tree if isinstance(tree, Tree) else Tree(ROOT, (tree,))

    def _fill_chart(self, words: Sequence[dict[int, float]]) -> tuple[FloatArray, NDArray[np.int32]]:
        count, size = len(words), len(self.grammar.symbols)
        chart = np.full((count + 1, count + 1, size), -np.inf, np.float32)
        by_unary = np.full(chart.shape, NO_CHILD, np.int32)  # the child of a unary rule, or NO_CHILD
        for width in range(1, count + 1):
            for start in range(count - width + 1):
                end = start + width
                cell = chart[start, end]
                if width == 1:
                    for symbol, score in words[start].items():
                        cell[symbol] = score
                else:
                    combine(
                        chart[start, start + 1 : end], chart[start + 1 : end, end], self.grammar.binary, cell
                    )
                apply_unary_rules(self.grammar.unary, cell, by_unary[start, end])
                if 1 < width < count:
                    cell[cell < cell.max() - self.prune_below] = -np.inf
        return chart, by_unary

    def _build(
        self,
        symbol: int,
        start: int,
        end: int,
        sentence: Sequence[Leaf],
        chart: FloatArray,
        by_unary: NDArray[np.int32],
    ) -> tuple[Tree | Leaf, ...]:
        """Return the best tree of a symbol; of a symbol between two rules, its children."""
        name, child = self.grammar.symbols[symbol], int(by_unary[start, end, symbol])
        if child != NO_CHILD:
            return (Tree(strip_parent(name), self._build(child, start, end, sentence, chart, by_unary)),)
        if end - start == 1:
            return (Leaf(strip_parent(name), sentence[start].word),)
        left, right, split = self._find_best_rule(symbol, start, end, chart)
        children = (
            *self._build(left, start, split, sentence, chart, by_unary),
            *self._build(right, split, end, sentence, chart, by_unary),
        )
        return children if name.startswith(BETWEEN) else (Tree(strip_parent(name), children),)

    def _find_best_rule(self, symbol: int, start: int, end: int, chart: FloatArray) -> tuple[int, int, int]:
        rules = self.grammar.binary
        first = int(np.searchsorted(rules.parents, symbol))
        last = int(np.searchsorted(rules.parents, symbol, side="right"))
        left, right = rules.children[first:last].T
        scores = chart[start, start + 1 : end][:, left] + chart[start + 1 : end, end][:, right]
        scores = scores + rules.scores[first:last]
        split, rule = np.unravel_index(scores.argmax(), scores.shape)
        return int(left[rule]), int(right[rule]), start + 1 + int(split)


def combine(left: FloatArray, right: FloatArray, rules: RuleArrays, cell: FloatArray) -> None:
    """Write the best score of each parent over all splits into a cell. left, right: [splits, G]"""
    first, second = rules.children[:, 0], rules.children[:, 1]
    is_possible = (left.max(0)[first] > -np.inf) & (right.max(0)[second] > -np.inf)
    used = np.flatnonzero(is_possible)
    if not len(used):
        return
    scores = (left[:, first[used]] + right[:, second[used]]).max(0) + rules.scores[used]
    parents = rules.parents[used]
    starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    cell[parents[starts]] = np.maximum.reduceat(scores, starts)


def apply_unary_rules(rules: RuleArrays, cell: FloatArray, by_unary: NDArray[np.int32]) -> None:
    """Improve the scores of a cell by unary rules until none improves."""
    if not len(rules.scores):
        return
    children = rules.children[:, 0]
    while True:
        scores = cell[children] + rules.scores
        improved = np.flatnonzero(scores > cell[rules.parents])
        if not len(improved):
            return
        order = improved[np.argsort(scores[improved])]  # the best of a parent is written last
        cell[rules.parents[order]] = scores[order]
        by_unary[rules.parents[order]] = children[order]
