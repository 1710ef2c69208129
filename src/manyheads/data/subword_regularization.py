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
from manyheads.text.subword_regularization import Sampler
from manyheads.text.subwords import WORD_START, Pieces, SubwordPair, Subwords, laid_end_to_end

SPLITS = 8  # of a word
BUCKETS = 2**18  # in which words are looked up by some bits of their code
ODD = np.uint64(0x9E3779B97F4A7C15)  # to multiply by: 2^64 over the golden ratio

Ints = NDArray[np.int64]
Codes = NDArray[np.uint64]


class Resplit:
    """The texts of one side with their words split anew, at BPE-dropout's p or a unigram model's exponent."""

    def __init__(self, subwords: Subwords, rate: float, seed: str) -> None:
        self.subwords, self.sampler, self.seed = subwords, Sampler(subwords, rate), seed
        self.begins = np.array([piece.startswith(WORD_START) for piece in subwords.names()])
        self.begins[EOS_ID] = True
        self.salt = np.uint64(random.Random(seed).getrandbits(64))
        self.numbers: dict[int, int] = {}  # of words, by their codes
        self.codes = Growing()  # of words, by their numbers, the first of which is nobody's
        self.first_in: Ints = np.zeros(BUCKETS, np.int64)  # the first word of each bucket
        self.starts, self.sizes, self.ids = Growing(), Growing(), Growing()  # of all splits; their ids
        self.codes.append(np.zeros(1, np.int64))
        for of_nobody in (self.starts, self.sizes):
            of_nobody.append(np.zeros(SPLITS, np.int64))

    def read(self, stored: Pieces, keys_B: Ints, longest: int) -> Pieces:
        """One that would have more than `longest` tokens stays as it is stored. Keys choose the splits."""
        if not len(stored.ids):  # a rank may have no part in a batch
            return stored
        begins_N = self.begins[stored.ids]
        begins_N[stored.offsets[:-1]] = True
        starts_W = np.flatnonzero(begins_N)
        splits_W = self._words(stored.ids, starts_W) * SPLITS + self._choices(stored, starts_W, keys_B)
        sizes_W = self.sizes.held[splits_W]
        firsts_B = np.searchsorted(starts_W, stored.offsets[:-1])
        offsets = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes_W, firsts_B))])
        found = Pieces(self.ids.held[ranges(self.starts.held[splits_W], sizes_W)], offsets)
        return found if np.diff(offsets).max() <= longest else the_shorter(found, stored, longest)

    def _choices(self, stored: Pieces, starts_W: Ints, keys_B: Ints) -> Ints:
        """Which of its splits each word takes, by the text's key and the word's place in it."""
        text_W = np.searchsorted(stored.offsets, starts_W, side="right") - 1
        place_W = (starts_W - stored.offsets[text_W]).astype(np.uint64)
        keys_W = scrambled(keys_B.astype(np.uint64) + self.salt)[text_W]
        return (scrambled(keys_W + place_W * ODD) % np.uint64(SPLITS)).astype(np.int64)

    def _words(self, ids_N: Ints, starts_W: Ints) -> Ints:
        """The number of each word: of most the first in their bucket, of new ones the next."""
        codes_W = coded(ids_N, starts_W)
        words_W = self.first_in[codes_W % BUCKETS]
        others = np.flatnonzero(self.codes.held[words_W] != codes_W)
        if len(others):
            codes = codes_W[others].tolist()
            spelled = zip(codes, spans(starts_W, len(ids_N), others), strict=True)
            self._learn({code: ids_N[span] for code, span in spelled if code not in self.numbers})
            words_W[others] = [self.numbers[code] for code in codes]
        return words_W

    def _learn(self, words: dict[int, Ints]) -> None:
        """Words by their codes, with all of their splits, which are the same in every process."""
        chance, drawn = random.Random(), list[list[int]]()
        for number, (code, ids) in enumerate(words.items(), len(self.codes.held)):
            text = self.subwords.decode(ids.tolist())
            chance.seed(f"{self.seed} {text}")
            is_end = ids[0] == EOS_ID
            drawn += [[EOS_ID] if is_end else self.sampler.sample(text, chance) for _ in range(SPLITS)]
            self.numbers[code] = number
        codes = np.array([*words], np.int64)
        free = self.first_in[codes % BUCKETS] == 0
        self.first_in[codes[free] % BUCKETS] = len(self.codes.held) + np.flatnonzero(free)
        self.codes.append(codes)
        sizes = np.array([len(split) for split in drawn], np.int64)
        self.starts.append(len(self.ids.held) + np.cumsum(sizes) - sizes)
        self.sizes.append(sizes)
        self.ids.append(np.array([one for split in drawn for one in split], np.int64))


class Growing:
    """An array of integers that is appended to: its room is doubled, not its numbers moved each time."""

    def __init__(self) -> None:
        self._room: Ints = np.empty(1024, np.int64)
        self._used = 0

    @property
    def held(self) -> Ints:
        return self._room[: self._used]

    def append(self, more: Ints) -> None:
        end = self._used + len(more)
        if end > len(self._room):
            room = np.empty(max(end, 2 * len(self._room)), np.int64)
            room[: self._used] = self.held
            self._room = room
        self._room[self._used : end] = more
        self._used = end


def both_sides(subwords: SubwordPair | None, rate: float, seed: int) -> tuple[Resplit, Resplit] | None:
    """Of source and target, each with chances of its own; None where nothing is split anew."""
    if rate == 0:
        return None
    if subwords is None:
        raise DataError(
            f"data.subword_sampling is {rate}, which needs the subwords: give Batches the store's"
        )
    sides = {"source": subwords.source, "target": subwords.target}
    source, target = (Resplit(side, rate, f"{seed} {name}") for name, side in sides.items())
    return source, target


def the_shorter(drawn: Pieces, stored: Pieces, longest: int) -> Pieces:
    """Each text as it was drawn, or, where that is too long, as it was stored."""

    def texts(pieces: Pieces) -> list[list[int]]:
        return [part[:-1].tolist() for part in np.split(pieces.ids, pieces.offsets[1:-1])]

    both = zip(texts(drawn), texts(stored), strict=True)
    return laid_end_to_end([new if len(new) < longest else old for new, old in both])


def coded(ids_N: Ints, starts_W: Ints) -> Ints:
    """A code of each word by its ids and their order.

    Of a million words two share one by a chance of 3e-8.
    """
    sizes_W = np.diff(starts_W, append=len(ids_N))
    place_N = np.arange(len(ids_N)) - np.repeat(starts_W, sizes_W)
    of_ids = scrambled((ids_N + (place_N << 32)).astype(np.uint64) + ODD)
    return scrambled(np.add.reduceat(of_ids, starts_W)).view(np.int64)


def spans(starts: Ints, end: int, which: Ints) -> list[slice]:
    """From these starts each to the next, or to the end."""
    ends = np.append(starts, end)
    return [slice(ends[one], ends[one + 1]) for one in which]


def scrambled(numbers: Codes) -> Codes:
    """Every bit of a number depends on every bit of it afterwards (the end of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def ranges(starts: Ints, sizes: Ints) -> Ints:
    """[starts[0], starts[0] + 1, ... sizes[0] of them, starts[1], ...]"""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)
