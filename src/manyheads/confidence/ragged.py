"""Sentences of different lengths as one array, so that NumPy works on all of them at once."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Ragged(NamedTuple):
    """Token ids of N sentences, one after the other. offsets [N + 1]"""

    ids: Ints
    offsets: Ints

    @classmethod
    def of(cls, sentences: Sequence[Iterable[int]]) -> "Ragged":
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))  # type: ignore[arg-type]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return cls(np.fromiter(chain.from_iterable(sentences), np.int64, int(offsets[-1])), offsets)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    @property
    def owners(self) -> Ints:
        """The sentence of each token."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    def sum(self, values: NDArray[np.generic]) -> Floats:
        """Return the sum of a value of each token over its sentence; 0 for an empty one."""
        total = np.concatenate((np.zeros(1), np.cumsum(values, dtype=np.float64)))
        return total[self.offsets[1:]] - total[self.offsets[:-1]]

    def mean(self, values: NDArray[np.generic]) -> Floats:
        return self.sum(values) / np.maximum(1, self.lengths)

    def mean_of_worst_window(self, values: Floats, width: int) -> Floats:
        """Return the lowest mean of `width` values in a row; of a shorter sentence the mean of all."""
        total = np.concatenate((np.zeros(1), np.cumsum(values, dtype=np.float64)))
        starts = np.arange(len(values))
        ends_of_sentence = np.repeat(self.offsets[1:], self.lengths)
        ends = starts + width
        means = (total[np.minimum(ends, ends_of_sentence)] - total[starts]) / width
        worst = self.mean(values)
        is_whole = ends <= ends_of_sentence
        np.minimum.at(worst, self.owners[is_whole], means[is_whole])
        return worst


def count_repeats(sentences: Ragged, order: int) -> Floats:
    """Return how many of each sentence's n-grams occurred before in it."""
    ids, owners, count = sentences.ids, sentences.owners, len(sentences.offsets) - 1
    if len(ids) < order:
        return np.zeros(count)
    num_grams = len(ids) - order + 1
    keys = owners[:num_grams].astype(np.uint64)
    for shift in range(order):
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + ids[shift : shift + num_grams].astype(np.uint64)
    is_inside = owners[:num_grams] == owners[order - 1 :]
    keys, own = keys[is_inside], owners[:num_grams][is_inside]
    order_of_keys = np.argsort(keys, kind="stable")
    is_repeat = np.zeros(len(keys), bool)
    is_repeat[order_of_keys[1:]] = keys[order_of_keys[1:]] == keys[order_of_keys[:-1]]
    return np.asarray(np.bincount(own, is_repeat, minlength=count), np.float64)


def share_of_repeats(sentences: Ragged, order: int) -> Floats:
    """Return the share of each sentence's n-grams that occurred before in it; 0 where it has none."""
    return count_repeats(sentences, order) / np.maximum(1, sentences.lengths - order + 1)
