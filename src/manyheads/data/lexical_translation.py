"""IBM Model 1 (Brown et al., 1993): which tokens of the source explain the tokens of the target.

p(target | source token) is fitted by expectation maximization over all pairs of a sample. Each target token
is explained by one token of its source; tokens about which nothing is to be learned are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.progress import ReportProgress
from manyheads.text.subwords import TokenSequences

MAX_LINKS = 30_000_000  # of target tokens with source tokens of their sentences: 4 bytes each
CHUNK_PAIRS = 20_000
ITERATIONS = 4

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """Every target token of a sample of pairs with every source token of its sentence.

    A link is stored as its number in `keys`, the sorted pairs (source token, target token) that occur.
    """

    keys: Ids  # source token * target vocabulary + target token
    chunks: list[tuple[NDArray[np.int32], Ids]]  # the numbers of links, and where each target token begins
    source_counts: Ids  # how often each source token occurs
    target_vocab_size: int
    num_pairs: int

    @classmethod
    def collect(
        cls,
        source: TokenSequences,
        target: TokenSequences,
        is_learned: Mask,
        report_progress: ReportProgress = lambda stage, done, total: None,
    ) -> "Links":
        """Link the tokens of pairs, or of a sample. `is_learned` has a value for each target token."""
        chunks, num_links, num_pairs = [], 0, 0
        source_counts = np.zeros(0, np.int64)
        order = list(spread_chunks(len(source.offsets) - 1))
        for done, (first, last) in enumerate(order):
            keys, starts, sources = link_pairs(source, target, first, last, is_learned)
            own, numbers = np.unique(keys, return_inverse=True)
            chunks.append((own, numbers.astype(np.int32), starts))
            source_counts = add_counts(source_counts, np.bincount(sources))
            num_links, num_pairs = num_links + len(keys), num_pairs + last - first
            report_progress("linking tokens", done + 1, len(order))
            if num_links > MAX_LINKS:
                break
        keys = np.unique(np.concatenate([np.zeros(0, np.int64), *(own for own, _, _ in chunks)]))
        numbered = [
            (np.searchsorted(keys, own).astype(np.int32)[numbers], starts) for own, numbers, starts in chunks
        ]
        return cls(keys, numbered, source_counts, len(is_learned), num_pairs)

    @property
    def sources(self) -> Ids:
        """The source token of each key."""
        return self.keys // self.target_vocab_size

    @property
    def targets(self) -> Ids:
        """The target token of each key."""
        return self.keys % self.target_vocab_size

    def run_em(self, report_progress: ReportProgress = lambda stage, done, total: None) -> Floats:
        """Return how often each key explains a target token, as Model 1 expects it."""
        probabilities = np.ones(len(self.keys))
        counts = probabilities
        for iteration in range(ITERATIONS):
            counts = np.zeros(len(self.keys))
            for numbers, starts in self.chunks:
                if not len(numbers):
                    continue
                weights = probabilities[numbers]
                sizes = np.diff(np.append(starts, len(numbers)))
                weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
                counts += np.bincount(numbers, weights, minlength=len(self.keys))
            probabilities = self.share_of_sources(counts)
            report_progress("learning translations", iteration + 1, ITERATIONS)
        return counts

    def share_of_sources(self, counts: Floats) -> Floats:
        """Return p(target | source) of each key."""
        return divide_by_group(counts, self.sources)

    def share_of_targets(self, counts: Floats) -> Floats:
        """Return p(source | target) of each key: the share of what explains the target."""
        return divide_by_group(counts, self.targets)


def divide_by_group(counts: Floats, groups: Ids) -> Floats:
    """Return the counts divided by the sums of their groups."""
    return counts / np.maximum(np.bincount(groups, counts)[groups], np.finfo(np.float64).tiny)


def spread_chunks(num_pairs: int) -> Iterator[tuple[int, int]]:
    """Yield chunks of pairs, such that the first few come from all parts of the data."""
    chunks = [(first, min(first + CHUNK_PAIRS, num_pairs)) for first in range(0, num_pairs, CHUNK_PAIRS)]
    for number in np.random.default_rng(1).permutation(len(chunks)):
        yield chunks[number]


def link_pairs(
    source: TokenSequences, target: TokenSequences, first: int, last: int, is_learned: Mask
) -> tuple[Ids, Ids, NDArray[Any]]:
    """Return the keys of all links of some pairs, where each target token begins, and the source tokens."""
    begin, end = target.offsets[first], target.offsets[last]
    tokens = np.asarray(target.ids[begin:end], np.int64)
    pair_of = np.repeat(np.arange(first, last), np.diff(target.offsets[first : last + 1]))
    lengths = source.offsets[pair_of + 1] - source.offsets[pair_of]
    kept = is_learned[tokens] & (lengths > 0)
    tokens, pair_of, lengths = tokens[kept], pair_of[kept], lengths[kept]
    source_begin = source.offsets[first]
    source_tokens = np.asarray(source.ids[source_begin : source.offsets[last]])
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    positions += np.repeat(source.offsets[pair_of] - source_begin, lengths)
    keys = source_tokens[positions].astype(np.int64) * len(is_learned) + np.repeat(tokens, lengths)
    return keys, starts, source_tokens


def add_counts(counts: Ids, others: Ids) -> Ids:
    """Return the sum of counts of different lengths."""
    total = np.zeros(max(len(counts), len(others)), np.int64)
    total[: len(counts)] += counts
    total[: len(others)] += others
    return total
