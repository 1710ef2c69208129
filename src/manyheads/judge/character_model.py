"""A character n-gram model of a language, learned from text of it: what is garbled or foreign is unlikely.

    p_n(c | h) = (count(h c) + W p_{n-1}(c | h')) / (count(h) + W),

where h are the n - 1 characters before c, h' the last n - 2 of them, and p_0 is uniform. Counts are in tables
that n-grams are hashed into, so memory is the same for every language.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Floats, Ints, Ragged

ORDER = 4
BUCKETS_BITS = 20  # of each order's table: 4 MB
BACKOFF_WEIGHT = 4.0  # W: the counts that the shorter context stands for
UNIFORM = 1e-4  # p_0 of any character
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
CHUNK_TEXTS = 2000
DIGITS = str.maketrans("123456789", "000000000")

Counts = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class CharacterModel:
    """Counts of hashed n-grams by order. tables[n] counts n + 1 characters, totals[n] the contexts of it."""

    tables: tuple[Counts, ...]
    totals: tuple[Counts, ...]

    @classmethod
    def train(cls, texts: Iterable[str]) -> "CharacterModel":
        tables = tuple(np.zeros(1 << BUCKETS_BITS, np.float32) for _ in range(ORDER))
        totals = tuple(np.zeros(1 << BUCKETS_BITS, np.float32) for _ in range(ORDER))
        iterator = iter(texts)
        while chunk := list(islice(iterator, CHUNK_TEXTS)):
            characters = to_characters(chunk)
            for (grams, contexts), table, total in zip(hash_grams(characters), tables, totals, strict=True):
                np.add.at(table, grams, np.float32(1))
                np.add.at(total, contexts, np.float32(1))
        return cls(tables, totals)

    def score(self, characters: Ragged) -> Floats:
        """Return log p of each character."""
        p = np.full(len(characters.ids), UNIFORM)
        for (grams, contexts), table, total in zip(
            hash_grams(characters), self.tables, self.totals, strict=True
        ):
            p = (table[grams] + BACKOFF_WEIGHT * p) / (total[contexts] + BACKOFF_WEIGHT)
        return np.asarray(np.log(np.minimum(p, 1.0)))


def to_characters(texts: Sequence[str]) -> Ragged:
    """Return the characters of texts in lower case with all digits alike, each text after a line feed."""
    joined = "".join(f"\n{text.lower().translate(DIGITS)}" for text in texts)
    ids = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32).astype(np.int64)
    starts = np.flatnonzero(ids == ord("\n"))
    return Ragged(ids, np.append(starts, len(ids)))


def hash_grams(characters: Ragged) -> Iterator[tuple[Ints, Ints]]:
    """Yield the buckets of each character's n-gram and of its context, for n = 1 to ORDER.

    Contexts reach back to the start of the text only: before it are zeros.
    """
    ids = characters.ids.astype(np.uint64)
    position = np.arange(len(ids)) - np.repeat(characters.offsets[:-1], characters.lengths)
    context = np.zeros(len(ids), np.uint64)
    for order in range(ORDER):
        if order:
            previous = np.zeros(len(ids), np.uint64)
            previous[order:] = ids[:-order]
            previous[position < order] = 0
            context = (context + previous + np.uint64(1)) * MULTIPLIER
            context ^= context >> np.uint64(29)
        yield to_bucket((context ^ ids) * MULTIPLIER), to_bucket(context * MULTIPLIER)


def to_bucket(keys: NDArray[np.uint64]) -> Ints:
    mixed = (keys ^ (keys >> np.uint64(32))) * MULTIPLIER
    return (mixed >> np.uint64(64 - BUCKETS_BITS)).astype(np.int64)
