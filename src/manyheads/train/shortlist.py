"""Learns the shortlist of a model (checkpoint/shortlist.py) from its training data, by IBM Model 1.

Model 1 explains each target piece of a pair by one piece of the source: p(target | source piece) is fitted by
expectation maximization over all pairs of a sample. The most frequent target pieces are always candidates, so
nothing is learned about them, which leaves about a quarter of the work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.checkpoint import check_subwords
from manyheads.checkpoint.shortlist import Shortlist, write_shortlist
from manyheads.config import NUM_SPECIAL_TOKENS
from manyheads.data.store import Split, Store
from manyheads.progress import ReportProgress
from manyheads.text.subwords import SubwordPair

NUM_FREQUENT = 1000  # target pieces that are always candidates
MAX_CANDIDATES = 50  # of a source piece, the likeliest
MIN_PROBABILITY = 0.001  # of a candidate, given the source piece
MIN_SHARE = 0.05  # or of what explains the candidate, if it is rare
MIN_COUNT = 5  # of a source piece in the sample: rarer ones have no candidates
MAX_LINKS = 30_000_000  # of target pieces with source pieces of their sentences: 4 bytes each
CHUNK_PAIRS = 20_000
ITERATIONS = 4

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class LearnedShortlist:
    """A shortlist, and what it does to the target pieces of pairs that it was not learned from."""

    shortlist: Shortlist
    num_pairs: int  # that it was learned from
    coverage: float  # of the target pieces of validation pairs, those among the candidates of their source
    mean_candidates: float  # of a validation source, the frequent ones included
    uncovered: float  # share of the validation sources that need the whole vocabulary

    def __str__(self) -> str:
        return (
            f"shortlist of {self.num_pairs:,} pairs; {self.mean_candidates:,.0f} candidates for a sentence, "
            f"{self.coverage:.1%} of the pieces of validation targets among them; {self.uncovered:.1%} of "
            f"the sources use the whole vocabulary"
        )


def add_shortlist(
    folder: Path, data: Path, report_progress: ReportProgress = lambda stage, done, total: None
) -> LearnedShortlist:
    """Learn the shortlist of a model folder from the data that it was trained on, and store it there."""
    store = Store.open(data)
    check_subwords(folder, store.subwords)
    learned = learn_shortlist(store, report_progress)
    write_shortlist(folder, learned.shortlist)
    return learned


def learn_shortlist(
    store: Store, report_progress: ReportProgress = lambda stage, done, total: None
) -> LearnedShortlist:
    """Learn a shortlist from the pairs of the split `train`, or a sample of them."""
    split, subwords = store.load_split("train"), store.subwords
    target_counts = np.bincount(split.target.tokens, minlength=len(subwords.target))
    frequent = np.argsort(-target_counts, kind="stable")[:NUM_FREQUENT]
    links = Links.collect(split, frequent, len(subwords.target), report_progress)
    counts = links.run_em(report_progress)
    shortlist = select_candidates(links, counts, np.sort(frequent), subwords)
    held_out = store.load_split("valid") if "valid" in store.splits else split
    return LearnedShortlist(shortlist, links.num_pairs, *measure_coverage(shortlist, held_out))


@dataclass(frozen=True, eq=False)
class Links:
    """Every target piece of a sample of pairs with every source piece of its sentence.

    A link is stored as its number in `keys`, the sorted pairs (source piece, target piece) that occur.
    """

    keys: Ids  # source piece * target vocabulary + target piece
    chunks: list[tuple[NDArray[np.int32], Ids]]  # the numbers of links, and where each target piece begins
    source_counts: Ids  # how often each source piece occurs
    target_vocab_size: int
    num_pairs: int

    @classmethod
    def collect(
        cls, split: Split, frequent: Ids, target_vocab_size: int, report_progress: ReportProgress
    ) -> "Links":
        is_rare = np.ones(target_vocab_size, bool)
        is_rare[frequent] = is_rare[:NUM_SPECIAL_TOKENS] = False
        chunks, num_links, num_pairs = [], 0, 0
        source_counts = np.zeros(0, np.int64)
        order = list(spread_chunks(len(split)))
        for done, (first, last) in enumerate(order):
            keys, starts, sources = link_pairs(split, first, last, is_rare)
            own, numbers = np.unique(keys, return_inverse=True)
            chunks.append((own, numbers.astype(np.int32), starts))
            source_counts = add_counts(source_counts, np.bincount(sources))
            num_links, num_pairs = num_links + len(keys), num_pairs + last - first
            report_progress("linking pieces", done + 1, len(order))
            if num_links > MAX_LINKS:
                break
        keys = np.unique(np.concatenate([np.zeros(0, np.int64), *(own for own, _, _ in chunks)]))
        numbered = [
            (np.searchsorted(keys, own).astype(np.int32)[numbers], starts) for own, numbers, starts in chunks
        ]
        return cls(keys, numbered, source_counts, target_vocab_size, num_pairs)

    @property
    def sources(self) -> Ids:
        """The source piece of each key."""
        return self.keys // self.target_vocab_size

    @property
    def targets(self) -> Ids:
        """The target piece of each key."""
        return self.keys % self.target_vocab_size

    def run_em(self, report_progress: ReportProgress) -> NDArray[np.float64]:
        """Return how often each key explains a target piece, as Model 1 expects it."""
        probabilities = np.ones(len(self.keys))
        counts = probabilities
        for iteration in range(ITERATIONS):
            counts = np.zeros(len(self.keys))
            for numbers, starts in self.chunks:
                weights = probabilities[numbers]
                sizes = np.diff(np.append(starts, len(numbers)))
                weights /= np.repeat(np.add.reduceat(weights, starts), sizes)
                counts += np.bincount(numbers, weights, minlength=len(self.keys))
            totals = np.bincount(self.sources, counts)
            probabilities = counts / np.maximum(totals[self.sources], np.finfo(np.float64).tiny)
            report_progress("learning candidates", iteration + 1, ITERATIONS)
        return counts


def spread_chunks(num_pairs: int) -> Iterator[tuple[int, int]]:
    """Yield chunks of pairs, such that the first few come from all parts of the data."""
    chunks = [(first, min(first + CHUNK_PAIRS, num_pairs)) for first in range(0, num_pairs, CHUNK_PAIRS)]
    for number in np.random.default_rng(1).permutation(len(chunks)):
        yield chunks[number]


def link_pairs(
    split: Split, first: int, last: int, is_rare: NDArray[np.bool_]
) -> tuple[Ids, Ids, NDArray[Any]]:
    """Return the keys of all links of some pairs, where each target piece begins, and the source pieces."""
    source, target = split.source, split.target
    begin, end = target.offsets[first], target.offsets[last]
    pieces = np.asarray(target.tokens[begin:end], np.int64)
    pair_of = np.repeat(np.arange(first, last), np.diff(target.offsets[first : last + 1]))
    kept = is_rare[pieces]
    pieces, pair_of = pieces[kept], pair_of[kept]
    source_begin = source.offsets[first]
    source_pieces = np.asarray(source.tokens[source_begin : source.offsets[last]])
    lengths = source.offsets[pair_of + 1] - source.offsets[pair_of]
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    positions += np.repeat(source.offsets[pair_of] - source_begin, lengths)
    keys = source_pieces[positions].astype(np.int64) * len(is_rare) + np.repeat(pieces, lengths)
    return keys, starts, source_pieces


def add_counts(counts: Ids, others: Ids) -> Ids:
    """Return the sum of counts of different lengths."""
    total = np.zeros(max(len(counts), len(others)), np.int64)
    total[: len(counts)] += counts
    total[: len(others)] += others
    return total


def select_candidates(
    links: Links, counts: NDArray[np.float64], frequent: Ids, subwords: SubwordPair
) -> Shortlist:
    """Keep the likely candidates of each source piece, and the target piece of the same text, if any."""
    sources, targets = links.sources, links.targets
    probabilities = counts / np.maximum(np.bincount(sources, counts)[sources], np.finfo(np.float64).tiny)
    shares = counts / np.maximum(np.bincount(targets, counts)[targets], np.finfo(np.float64).tiny)
    order = np.lexsort((-probabilities, sources))
    order = order[(probabilities[order] >= MIN_PROBABILITY) | (shares[order] >= MIN_SHARE)]
    ranked = sources[order]
    ranks = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    order = order[ranks < MAX_CANDIDATES]
    num_sources = len(subwords.source)
    same_text = {piece: number for number, piece in enumerate(subwords.target.pieces)}
    same = np.array([same_text.get(piece, -1) for piece in subwords.source.pieces], np.int64)
    has_same = np.flatnonzero(same >= 0)
    keys = np.concatenate([links.keys[order], has_same * links.target_vocab_size + same[has_same]])
    keys = np.unique(keys)
    occurrences = add_counts(links.source_counts, np.zeros(num_sources, np.int64))
    keys = keys[occurrences[keys // links.target_vocab_size] >= MIN_COUNT]
    offsets = np.searchsorted(keys, np.arange(num_sources + 1) * links.target_vocab_size)
    return Shortlist(frequent, offsets, keys % links.target_vocab_size)


def measure_coverage(shortlist: Shortlist, split: Split, max_pairs: int = 1000) -> tuple[float, float, float]:
    """Return the share of target pieces among their candidates, their mean number, and uncovered sources."""
    num_pairs = min(len(split), max_pairs)
    num_pieces = num_inside = num_candidates = num_uncovered = 0
    for number in range(num_pairs):
        source = split.source[number].astype(np.int64).tolist()
        if not shortlist.covers(source):
            num_uncovered += 1
            continue
        candidates = shortlist.select([source])
        target = split.target[number]
        num_pieces, num_inside = num_pieces + len(target), num_inside + int(np.isin(target, candidates).sum())
        num_candidates += len(candidates)
    num_covered = max(1, num_pairs - num_uncovered)
    return num_inside / max(1, num_pieces), num_candidates / num_covered, num_uncovered / max(1, num_pairs)
