"""Texts split anew at each reading, quickly enough for a GPU that waits for them.

Words are split apart from each other, so a text takes for each of its words one of a few splits, which are
drawn when the word is first met and then looked up. Which one is a function of (seed, epoch, pair, place).

Shapes: N tokens as stored, W words, a text's end being a word too, and B texts.
"""

import random

import numpy as np
from numpy.typing import NDArray

from manyheads.config import EOS_ID
from manyheads.errors import DataError
from manyheads.text.subword_regularization import SubwordSampler
from manyheads.text.subwords import WORD_START, SubwordPair, SubwordTokenizer, TokenSequences, concat_with_end

SEGMENTATIONS_PER_WORD = 8  # of a word
NUM_BUCKETS = 2**18  # in which words are looked up by some bits of their code
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # to multiply by: 2^64 over the golden ratio

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


class SubwordRegularizer:
    """The texts of one side with their words split anew, at BPE-dropout's p or a unigram model's exponent."""

    def __init__(self, subwords: SubwordTokenizer, rate: float, seed: str) -> None:
        self.subwords, self.sampler, self.seed = subwords, SubwordSampler(subwords, rate), seed
        self.is_word_start = np.array([piece.startswith(WORD_START) for piece in subwords.get_vocabulary()])
        self.is_word_start[EOS_ID] = True
        self.salt = np.uint64(random.Random(seed).getrandbits(64))
        self.word_indices: dict[int, int] = {}  # of words, by their codes
        self.hashes = GrowableArray()  # of words, by their numbers, the first of which is nobody's
        self.bucket_heads: Ints = np.zeros(NUM_BUCKETS, np.int64)  # the first word of each bucket
        self.starts, self.sizes, self.ids = (
            GrowableArray(),
            GrowableArray(),
            GrowableArray(),
        )  # of all splits; their ids
        self.hashes.append(np.zeros(1, np.int64))
        for of_nobody in (self.starts, self.sizes):
            of_nobody.append(np.zeros(SEGMENTATIONS_PER_WORD, np.int64))

    def resample(self, stored: TokenSequences, keys_B: Ints, max_length: int) -> TokenSequences:
        """One that would have more than `longest` tokens stays as it is stored. Keys choose the splits."""
        if not len(stored.ids):  # a rank may have no part in a batch
            return stored
        begins_N = self.is_word_start[stored.ids]
        begins_N[stored.offsets[:-1]] = True
        starts_W = np.flatnonzero(begins_N)
        splits_W = self._find_words(
            stored.ids, starts_W
        ) * SEGMENTATIONS_PER_WORD + self._choose_segmentations(stored, starts_W, keys_B)
        sizes_W = self.sizes.values[splits_W]
        firsts_B = np.searchsorted(starts_W, stored.offsets[:-1])
        offsets = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes_W, firsts_B))])
        found = TokenSequences(self.ids.values[concat_ranges(self.starts.values[splits_W], sizes_W)], offsets)
        return found if np.diff(offsets).max() <= max_length else replace_too_long(found, stored, max_length)

    def _choose_segmentations(self, stored: TokenSequences, starts_W: Ints, keys_B: Ints) -> Ints:
        """Which of its splits each word takes, by the text's key and the word's place in it."""
        text_W = np.searchsorted(stored.offsets, starts_W, side="right") - 1
        place_W = (starts_W - stored.offsets[text_W]).astype(np.uint64)
        keys_W = mix_bits(keys_B.astype(np.uint64) + self.salt)[text_W]
        return (mix_bits(keys_W + place_W * GOLDEN_GAMMA) % np.uint64(SEGMENTATIONS_PER_WORD)).astype(
            np.int64
        )

    def _find_words(self, ids_N: Ints, starts_W: Ints) -> Ints:
        """The number of each word: of most the first in their bucket, of new ones the next."""
        codes_W = hash_words(ids_N, starts_W)
        words_W = self.bucket_heads[codes_W % NUM_BUCKETS]
        others = np.flatnonzero(self.hashes.values[words_W] != codes_W)
        if len(others):
            codes = codes_W[others].tolist()
            spelled = zip(codes, make_slices(starts_W, len(ids_N), others), strict=True)
            self._add_words({code: ids_N[span] for code, span in spelled if code not in self.word_indices})
            words_W[others] = [self.word_indices[code] for code in codes]
        return words_W

    def _add_words(self, words: dict[int, Ints]) -> None:
        """Words by their codes, with all of their splits, which are the same in every process."""
        chance, drawn = random.Random(), list[list[int]]()
        for number, (code, ids) in enumerate(words.items(), len(self.hashes.values)):
            text = self.subwords.decode(ids.tolist())
            chance.seed(f"{self.seed} {text}")
            is_end = ids[0] == EOS_ID
            drawn += [
                [EOS_ID] if is_end else self.sampler.sample(text, chance)
                for _ in range(SEGMENTATIONS_PER_WORD)
            ]
            self.word_indices[code] = number
        codes = np.array([*words], np.int64)
        free = self.bucket_heads[codes % NUM_BUCKETS] == 0
        self.bucket_heads[codes[free] % NUM_BUCKETS] = len(self.hashes.values) + np.flatnonzero(free)
        self.hashes.append(codes)
        sizes = np.array([len(split) for split in drawn], np.int64)
        self.starts.append(len(self.ids.values) + np.cumsum(sizes) - sizes)
        self.sizes.append(sizes)
        self.ids.append(np.array([one for split in drawn for one in split], np.int64))


class GrowableArray:
    """An array of integers that is appended to: its room is doubled, not its numbers moved each time."""

    def __init__(self) -> None:
        self._buffer: Ints = np.empty(1024, np.int64)
        self._size = 0

    @property
    def values(self) -> Ints:
        return self._buffer[: self._size]

    def append(self, more: Ints) -> None:
        end = self._size + len(more)
        if end > len(self._buffer):
            room = np.empty(max(end, 2 * len(self._buffer)), np.int64)
            room[: self._size] = self.values
            self._buffer = room
        self._buffer[self._size : end] = more
        self._size = end


def make_regularizers(
    subwords: SubwordPair | None, rate: float, seed: int
) -> tuple[SubwordRegularizer, SubwordRegularizer] | None:
    """Of source and target, each with chances of its own; None where nothing is split anew."""
    if rate == 0:
        return None
    if subwords is None:
        raise DataError(
            f"data.subword_regularization is {rate}, which needs the subwords: give Batches the store's"
        )
    sides = {"source": subwords.source, "target": subwords.target}
    source, target = (SubwordRegularizer(side, rate, f"{seed} {name}") for name, side in sides.items())
    return source, target


def replace_too_long(drawn: TokenSequences, stored: TokenSequences, longest: int) -> TokenSequences:
    """Each text as it was drawn, or, where that is too long, as it was stored."""

    def texts(pieces: TokenSequences) -> list[list[int]]:
        return [part[:-1].tolist() for part in np.split(pieces.ids, pieces.offsets[1:-1])]

    both = zip(texts(drawn), texts(stored), strict=True)
    return concat_with_end([new if len(new) < longest else old for new, old in both])


def hash_words(ids_N: Ints, starts_W: Ints) -> Ints:
    """A code of each word by its ids and their order.

    Of a million words two share one by a chance of 3e-8.
    """
    sizes_W = np.diff(starts_W, append=len(ids_N))
    place_N = np.arange(len(ids_N)) - np.repeat(starts_W, sizes_W)
    of_ids = mix_bits((ids_N + (place_N << 32)).astype(np.uint64) + GOLDEN_GAMMA)
    return mix_bits(np.add.reduceat(of_ids, starts_W)).view(np.int64)


def make_slices(starts: Ints, end: int, which: Ints) -> list[slice]:
    """From these starts each to the next, or to the end."""
    ends = np.append(starts, end)
    return [slice(ends[one], ends[one + 1]) for one in which]


def mix_bits(numbers: Hashes) -> Hashes:
    """Every bit of a number depends on every bit of it afterwards (the end of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def concat_ranges(starts: Ints, sizes: Ints) -> Ints:
    """[starts[0], starts[0] + 1, ... sizes[0] of them, starts[1], ...]"""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)
