"""Learns the shortlist of a model (checkpoint/shortlist.py) from its training data, by IBM Model 1.

The most frequent target pieces are always candidates, so nothing is learned about them, which leaves about a
quarter of the work.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manyheads.checkpoint import check_subwords
from manyheads.checkpoint.shortlist import Shortlist, write_shortlist
from manyheads.config import NUM_SPECIAL_TOKENS
from manyheads.data.lexical_translation import Links, add_counts
from manyheads.data.store import Split, Store
from manyheads.progress import ReportProgress
from manyheads.text.subwords import SubwordPair, TokenSequences

NUM_FREQUENT = 1000  # target pieces that are always candidates
MAX_CANDIDATES = 50  # of a source piece, the likeliest
MIN_PROBABILITY = 0.001  # of a candidate, given the source piece
MIN_SHARE = 0.05  # or of what explains the candidate, if it is rare
MIN_COUNT = 5  # of a source piece in the sample: rarer ones have no candidates

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
    is_rare = np.ones(len(subwords.target), bool)
    is_rare[frequent] = is_rare[:NUM_SPECIAL_TOKENS] = False
    source, target = (TokenSequences(side.tokens, side.offsets) for side in (split.source, split.target))
    links = Links.collect(source, target, is_rare, report_progress)
    counts = links.run_em(report_progress)
    shortlist = select_candidates(links, counts, np.sort(frequent), subwords)
    held_out = store.load_split("valid") if "valid" in store.splits else split
    return LearnedShortlist(shortlist, links.num_pairs, *measure_coverage(shortlist, held_out))


def select_candidates(
    links: Links, counts: NDArray[np.float64], frequent: Ids, subwords: SubwordPair
) -> Shortlist:
    """Keep the likely candidates of each source piece, and the target piece of the same text, if any."""
    sources = links.sources
    probabilities, shares = links.share_of_sources(counts), links.share_of_targets(counts)
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
