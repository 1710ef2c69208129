"""IBM Model 1 (Brown et al., 1993): which words of one side explain the words of the other.

    p(t_j | s) = 1 / (l + 1) * sum_i p(t_j | s_i),   s_0 is the empty word

is learned by expectation maximization from all pairs at once. Wrong pairs contradict each other and right
ones agree, so a third of wrong pairs changes little. The evidence for a word, log p(t_j | s) - log p(t_j),
says how much likelier the other side makes it: much in a translation, hardly in an unrelated text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Floats, Ints, Ragged
from manyheads.judge.vocabulary import EMPTY_WORD

ITERATIONS = 4
CHUNK_LINKS = 2_000_000  # processed together
UNIGRAM_WEIGHT = 0.1  # of p(t) in p(t | s): bounds the evidence against a word
QUANTIZED_PART = 1 << 19  # probabilities
LEVELS_PER_NAT = 16  # of quantized log p; a byte covers down to -15.9
PROBABILITIES = np.append(np.exp(-np.arange(255) / LEVELS_PER_NAT), 0.0)
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LexicalModel:
    """p(t | s) of every pair of words."""

    table: Bytes  # [S * T] quantized log p(t | s)
    unigrams: Floats  # [T] p(t)

    @classmethod
    def train(cls, source: Ragged, target: Ragged, vocab_sizes: tuple[int, int]) -> "LexicalModel":
        unigrams = np.bincount(target.ids, minlength=vocab_sizes[1]) + 0.5
        probabilities = np.ones(0, np.float32)
        for iteration in range(ITERATIONS):
            counts = np.zeros(vocab_sizes[0] * vocab_sizes[1], np.float32)
            for keys, owners, num_tokens, _ in iterate_links(source, target, vocab_sizes[1]):
                weights = probabilities[keys] if iteration else np.ones(len(keys), np.float32)
                sums = np.bincount(owners, weights, num_tokens)
                np.add.at(counts, keys, (weights / sums[owners]).astype(np.float32))
            table = counts.reshape(vocab_sizes)
            table /= np.maximum(1e-9, table.sum(1, keepdims=True))
            probabilities = counts
        return cls(quantize(probabilities), unigrams / unigrams.sum())

    def score(self, source: Ragged, target: Ragged) -> Floats:
        """Return the evidence for each target word."""
        evidence = np.zeros(len(target.ids))
        for keys, owners, num_tokens, first in iterate_links(source, target, len(self.unigrams)):
            sums = np.bincount(owners, PROBABILITIES[self.table[keys]], num_tokens)
            num_links = np.bincount(owners, minlength=num_tokens)
            unigrams = self.unigrams[target.ids[first : first + num_tokens]]
            mixed = UNIGRAM_WEIGHT * unigrams + (1 - UNIGRAM_WEIGHT) * sums / num_links
            evidence[first : first + num_tokens] = np.log(mixed / unigrams)
        return evidence


def quantize(probabilities: NDArray[np.float32]) -> Bytes:
    """Return levels of log p, part by part: all logarithms at once would take much memory."""
    levels = np.empty(len(probabilities), np.uint8)
    for start in range(0, len(levels), QUANTIZED_PART):
        part = slice(start, start + QUANTIZED_PART)
        with np.errstate(divide="ignore"):
            logs = np.log(probabilities[part])
        levels[part] = np.clip(np.rint(-LEVELS_PER_NAT * logs), 0, 255).astype(np.uint8)
    return levels


def iterate_links(source: Ragged, target: Ragged, num_targets: int) -> Iterator[tuple[Ints, Ints, int, int]]:
    """Yield chunks of links between the words of pairs: keys s * T + t, and the target word of each link.

    Then follow the number of target words of the chunk and the number of the first. Each target word has a
    link to the empty word.
    """
    source_lengths, target_lengths = source.lengths, target.lengths
    words = np.append(source.ids, EMPTY_WORD)  # an index behind the last is the empty word
    total = np.concatenate(([0], np.cumsum((source_lengths + 1) * target_lengths)))
    first = 0
    while first < len(source_lengths):
        last = max(first + 1, int(np.searchsorted(total, total[first] + CHUNK_LINKS, side="right")) - 1)
        tokens = slice(int(target.offsets[first]), int(target.offsets[last]))
        pairs = np.repeat(np.arange(first, last), target_lengths[first:last])
        num_links = source_lengths[pairs] + 1
        owners = np.repeat(np.arange(len(pairs)), num_links)
        position = np.arange(len(owners)) - np.repeat(np.cumsum(num_links) - num_links, num_links)
        index = np.where(position == 0, len(source.ids), source.offsets[pairs][owners] + position - 1)
        if len(pairs):
            yield words[index] * num_targets + target.ids[tokens][owners], owners, len(pairs), tokens.start
        first = last
