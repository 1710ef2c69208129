"""A small bigram model of the training sources: does a sentence look like what the model was trained on?

It detects shuffled words, other domains, languages and casing. Bigrams are kept in a hash table of one byte
to recognize a bigram and one byte for its log p; what is not in it backs off to unigrams:

    log p(w | v) = log (c(v, w) - d) / c(v)              if v w is in the table
                 = log a(v) + log p(w),  a(v) = d n(v) / c(v)   otherwise,

where c are counts, n(v) the number of different successors of v, and d = 0.5. It takes two
bytes for each bucket and two for each piece: 140 KB with 4,000 pieces.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Floats, Ints, Ragged
from manyheads.config import BOS_ID, EOS_ID

MAX_BUCKETS = 1 << 16
DISCOUNT = 0.5
LEVELS_PER_NAT = 16  # of quantized log p; a byte reaches down to -15.9
HASHES = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # odd multipliers
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class SourceModel:
    """log p of source tokens. The end token of a sentence is the context of the next one's first token."""

    unigrams: Bytes  # [V] quantized log p(w)
    backoffs: Bytes  # [V] quantized log a(v)
    checks: Bytes  # [buckets] the byte that recognizes a bigram; 0 where there is none
    bigrams: Bytes  # [buckets] quantized log p(w | v)

    @classmethod
    def train(cls, tokens: NDArray[Any], vocab_size: int) -> "SourceModel":
        """Count the tokens of training sources, each of which ends with the end token."""
        current = tokens.astype(np.int64)
        previous = np.concatenate(([EOS_ID], current[:-1]))
        counts = np.bincount(current, minlength=vocab_size)
        contexts = np.bincount(previous, minlength=vocab_size)
        keys, key_counts = np.unique(previous * vocab_size + current, return_counts=True)
        successors = np.bincount(keys // vocab_size, minlength=vocab_size)
        unigrams = np.log((counts + DISCOUNT) / (len(current) + DISCOUNT * vocab_size))
        backoffs = np.log(DISCOUNT * np.maximum(1, successors) / np.maximum(1, contexts))
        log_p = np.log((key_counts - DISCOUNT) / contexts[keys // vocab_size])
        order = np.argsort(key_counts, kind="stable")  # the most frequent last
        checks, bigrams = build_table(keys[order], quantize(log_p)[order])
        return cls(quantize(unigrams), quantize(np.minimum(0, backoffs)), checks, bigrams)

    def score(self, sources: Ragged) -> Floats:
        """Return log p of each token."""
        if not len(sources.ids):
            return np.zeros(0)
        previous = np.concatenate(([EOS_ID], sources.ids[:-1]))
        previous[sources.offsets[:-1][sources.lengths > 0]] = EOS_ID
        levels = self.unigrams[sources.ids].astype(np.int64) + self.backoffs[previous]
        for buckets, is_known in self._look_up(previous, sources.ids):
            levels[is_known] = self.bigrams[buckets[is_known]]
        return levels / -LEVELS_PER_NAT

    def _look_up(self, previous: Ints, current: Ints) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
        """Yield the buckets of bigrams and whether these are theirs, the first choice last."""
        keys = previous * len(self.unigrams) + current
        for multiplier in reversed(HASHES):
            buckets, checks = hash_keys(keys, multiplier, len(self.checks))
            yield buckets, self.checks[buckets] == checks

    @property
    def is_complete(self) -> bool:
        """Whether nearly all bigrams of the sample are in the table, which is then at most half full."""
        return bool(2 * np.count_nonzero(self.checks) <= len(self.checks))

    def has_seen(self, ids: Ints) -> bool:
        """Whether the sample has all these pieces, each after the one before it.

        One bigram may be missing: the table loses some of those that share their buckets with others.
        """
        is_seen = np.zeros(len(ids) - 1, np.bool_)
        for _, is_known in self._look_up(ids[:-1], ids[1:]):
            is_seen |= is_known
        return bool((~is_seen).sum() < 2 and self.list_seen()[ids].all())

    def list_seen(self) -> NDArray[np.bool_]:
        """Return for each piece whether the sample has it. [V]"""
        is_seen: NDArray[np.bool_] = self.unigrams != self.unigrams[BOS_ID]  # no source has the begin token
        return is_seen

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "source.unigrams": self.unigrams,
            "source.backoffs": self.backoffs,
            "source.checks": self.checks,
            "source.bigrams": self.bigrams,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "SourceModel":
        """Return what a file holds. Arrays that do not fit together are a ValueError."""
        own = [arrays[f"source.{name}"] for name in ("unigrams", "backoffs", "checks", "bigrams")]
        if any(array.dtype != np.uint8 or array.ndim != 1 for array in own):
            raise ValueError("not bytes")
        unigrams, backoffs, checks, bigrams = map(len, own)
        if unigrams != backoffs or unigrams <= BOS_ID or checks != bigrams or checks.bit_count() != 1:
            raise ValueError("arrays of other lengths")
        return cls(*own)


def quantize(log_p: Floats) -> Bytes:
    return np.clip(np.rint(-LEVELS_PER_NAT * log_p), 0, 255).astype(np.uint8)


def build_table(keys: Ints, levels: Bytes) -> tuple[Bytes, Bytes]:
    """Return checks and values. Of bigrams that share a bucket the last stays; others try a second one."""
    num_buckets = min(MAX_BUCKETS, 1 << int(2 * len(keys)).bit_length())
    checks, values = np.zeros(num_buckets, np.uint8), np.zeros(num_buckets, np.uint8)
    for multiplier in HASHES:
        buckets, own_checks = hash_keys(keys, multiplier, num_buckets)
        is_free = checks[buckets] == 0
        keys, levels, buckets, own_checks = (
            keys[is_free], levels[is_free], buckets[is_free], own_checks[is_free],
        )  # fmt: skip
        checks[buckets], values[buckets] = own_checks, levels
        owners = np.full(num_buckets, -1)
        owners[buckets] = np.arange(len(keys))
        is_left = owners[buckets] != np.arange(len(keys))
        keys, levels = keys[is_left], levels[is_left]
    return checks, values


def hash_keys(keys: Ints, multiplier: np.uint64, num_buckets: int) -> tuple[Ints, Bytes]:
    """Return the bucket of each key and the byte from 1 to 255 that recognizes it."""
    mixed = keys.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * multiplier
    mixed ^= mixed >> np.uint64(32)
    mixed *= multiplier
    checks = (mixed >> np.uint64(56)).astype(np.uint8)
    buckets = ((mixed >> np.uint64(32)) & np.uint64(num_buckets - 1)).astype(np.int64)
    return buckets, np.maximum(checks, 1)


def sample_sentences(tokens: NDArray[Any], offsets: NDArray[np.int64], max_tokens: int) -> NDArray[Any]:
    """Return whole sentences of about `max_tokens` tokens, in blocks from all parts of the data."""
    if len(tokens) <= max_tokens:
        return np.asarray(tokens)
    num_blocks = 64
    block = max_tokens // num_blocks
    starts = np.linspace(0, len(tokens) - block, num_blocks).astype(np.int64)
    firsts = np.searchsorted(offsets, starts)
    lasts = np.searchsorted(offsets, starts + block)
    return np.concatenate(
        [tokens[offsets[first] : offsets[last]] for first, last in zip(firsts, lasts, strict=True)]
    )
