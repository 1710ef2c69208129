"""Near-duplicates by MinHash (Broder, 1997): pairs that share almost all character n-grams of both sides.

A signature has BANDS keys. Each is a hash of ROWS minima, and two pairs with the Jaccard similarity j share a
given key with the probability j^ROWS: of pairs with j = 0.9, 95 % share one of four, with j = 0.5, 6 %.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Ints
from manyheads.judge.character_model import to_characters

BANDS, ROWS = 4, 6
GRAM = 5  # characters
MIN_CHARACTERS = 60  # of both sides: shorter pairs differ by a word at least
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
Keys = NDArray[np.uint64]


def compute_signatures(sources: Sequence[str], targets: Sequence[str]) -> Keys:
    """Return the keys of each pair, 0 for pairs that are too short. [N, BANDS]"""
    texts = [f"{source}\t{target}" for source, target in zip(sources, targets, strict=True)]
    characters = to_characters(texts)
    keys = np.zeros((len(texts), BANDS), np.uint64)
    is_long = characters.lengths >= MIN_CHARACTERS
    if not is_long.any():
        return keys
    ids = characters.ids.astype(np.uint64)
    grams = np.zeros(len(ids), np.uint64)
    for shift in range(GRAM):  # those at the end of a text reach into the next: few, and the same ones
        rolled = np.roll(ids, -shift)
        grams = (grams + rolled) * MULTIPLIER
        grams ^= grams >> np.uint64(31)
    starts = characters.offsets[:-1]
    ends_of_text = np.repeat(characters.offsets[1:], characters.lengths)
    grams[np.arange(len(ids)) + GRAM > ends_of_text] = np.uint64(2**64 - 1)
    seeds = np.random.default_rng(1).integers(1, 2**63, BANDS * ROWS, np.uint64) * np.uint64(2) + np.uint64(1)
    for number, seed in enumerate(seeds):
        minima = np.minimum.reduceat((grams * seed) >> np.uint64(32), starts)
        band = number // ROWS
        keys[:, band] = (keys[:, band] + minima + np.uint64(1)) * MULTIPLIER
        keys[:, band] ^= keys[:, band] >> np.uint64(29)
    keys[~is_long] = 0
    return keys


def find_first_duplicates(keys_NB: Keys) -> Ints:
    """Return the number of the first pair that shares a key with each pair; its own number if none does."""
    first = np.arange(len(keys_NB))
    for band in range(keys_NB.shape[1]):
        keys = keys_NB[:, band]
        order = np.argsort(keys, kind="stable")
        is_start = np.append(True, np.diff(keys[order]) != 0)
        group_first = order[np.flatnonzero(is_start)[np.cumsum(is_start) - 1]]
        is_long = keys[order] != 0
        np.minimum.at(first, order[is_long], group_first[is_long])
    return first
