"""Subword regularization of whole batches, fast enough for a GPU that waits for them.

Words are segmented independently, so each word of a text takes one of a few segmentations, which are sampled
when the word first occurs and then looked up. Which one is a function of (seed, epoch, pair, position).

Shapes: N stored tokens, W words (the end token of a text is a word too), B texts.
"""

import random

import numpy as np
from numpy.typing import NDArray

from manyheads.config import EOS_ID
from manyheads.errors import DataError
from manyheads.text.subword_regularization import SubwordSampler
from manyheads.text.subwords import WORD_START, SubwordPair, SubwordTokenizer, TokenSequences, concat_with_end

SEGMENTATIONS_PER_WORD = 8
NUM_BUCKETS = 2**18  # of the hash table of words
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio (SplitMix64)

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


class SubwordRegularizer:
    """Resamples how texts are segmented: `rate` is p of BPE-dropout, or the exponent of unigram sampling."""

    def __init__(self, tokenizer: SubwordTokenizer, rate: float, seed: str) -> None:
        self.tokenizer, self.sampler, self.seed = tokenizer, SubwordSampler(tokenizer, rate), seed
        self.is_word_start = np.array([piece.startswith(WORD_START) for piece in tokenizer.pieces])
        self.is_word_start[EOS_ID] = True
        self.salt = np.uint64(random.Random(seed).getrandbits(64))
        self.word_indices: dict[int, int] = {}  # by hash
        self.bucket_heads: Ints = np.zeros(NUM_BUCKETS, np.int64)  # the first word of each bucket
        self.hashes = GrowableArray()  # by word index; index 0 is no word
        self.starts, self.sizes = GrowableArray(), GrowableArray()  # by segmentation, into ids
        self.ids = GrowableArray()
        self.hashes.append(np.zeros(1, np.int64))
        for array in (self.starts, self.sizes):
            array.append(np.zeros(SEGMENTATIONS_PER_WORD, np.int64))

    def resample(self, stored: TokenSequences, keys_B: Ints, max_length: int) -> TokenSequences:
        """Segment the words of each text by its key. A text that exceeds `max_length` stays as stored."""
        if not len(stored.ids):  # a rank may have no part in a batch
            return stored
        begins_N = self.is_word_start[stored.ids]
        begins_N[stored.offsets[:-1]] = True
        starts_W = np.flatnonzero(begins_N)
        words_W = self._find_words(stored.ids, starts_W)
        choices_W = self._choose_segmentations(stored, starts_W, keys_B)
        segmentations_W = words_W * SEGMENTATIONS_PER_WORD + choices_W
        sizes_W = self.sizes.values[segmentations_W]
        first_words_B = np.searchsorted(starts_W, stored.offsets[:-1])
        offsets = np.concatenate([[0], np.cumsum(np.add.reduceat(sizes_W, first_words_B))])
        ids = self.ids.values[concat_ranges(self.starts.values[segmentations_W], sizes_W)]
        sampled = TokenSequences(ids, offsets)
        if np.diff(offsets).max() <= max_length:
            return sampled
        return replace_too_long(sampled, stored, max_length)

    def _choose_segmentations(self, stored: TokenSequences, starts_W: Ints, keys_B: Ints) -> Ints:
        """Choose a segmentation of each word by the key of its text and its position there."""
        text_W = np.searchsorted(stored.offsets, starts_W, side="right") - 1
        position_W = (starts_W - stored.offsets[text_W]).astype(np.uint64)
        keys_W = mix_bits(keys_B.astype(np.uint64) + self.salt)[text_W]
        hashes_W = mix_bits(keys_W + position_W * GOLDEN_GAMMA)
        return (hashes_W % np.uint64(SEGMENTATIONS_PER_WORD)).astype(np.int64)

    def _find_words(self, ids_N: Ints, starts_W: Ints) -> Ints:
        """Return the index of each word. Most are the first of their bucket; unknown ones are added."""
        hashes_W = hash_words(ids_N, starts_W)
        words_W = self.bucket_heads[hashes_W % NUM_BUCKETS]
        others = np.flatnonzero(self.hashes.values[words_W] != hashes_W)
        if len(others):
            hashes = hashes_W[others].tolist()
            slices = zip(hashes, make_slices(starts_W, len(ids_N), others), strict=True)
            self._add_words({key: ids_N[word] for key, word in slices if key not in self.word_indices})
            words_W[others] = [self.word_indices[key] for key in hashes]
        return words_W

    def _add_words(self, words: dict[int, Ints]) -> None:
        """Add words by their hashes, with all their segmentations, which are the same in every process."""
        rng, sampled = random.Random(), list[list[int]]()
        for index, (key, ids) in enumerate(words.items(), len(self.hashes.values)):
            text = self.tokenizer.decode(ids.tolist())
            rng.seed(f"{self.seed} {text}")
            is_end = ids[0] == EOS_ID
            sampled += [
                [EOS_ID] if is_end else self.sampler.sample(text, rng) for _ in range(SEGMENTATIONS_PER_WORD)
            ]
            self.word_indices[key] = index
        hashes = np.array([*words], np.int64)
        is_free = self.bucket_heads[hashes % NUM_BUCKETS] == 0
        self.bucket_heads[hashes[is_free] % NUM_BUCKETS] = len(self.hashes.values) + np.flatnonzero(is_free)
        self.hashes.append(hashes)
        sizes = np.array([len(ids) for ids in sampled], np.int64)
        self.starts.append(len(self.ids.values) + np.cumsum(sizes) - sizes)
        self.sizes.append(sizes)
        self.ids.append(np.array([token_id for ids in sampled for token_id in ids], np.int64))


class GrowableArray:
    """An integer array with amortized append: its capacity doubles."""

    def __init__(self) -> None:
        self._buffer: Ints = np.empty(1024, np.int64)
        self._size = 0

    @property
    def values(self) -> Ints:
        return self._buffer[: self._size]

    def append(self, values: Ints) -> None:
        end = self._size + len(values)
        if end > len(self._buffer):
            buffer = np.empty(max(end, 2 * len(self._buffer)), np.int64)
            buffer[: self._size] = self.values
            self._buffer = buffer
        self._buffer[self._size : end] = values
        self._size = end


def make_regularizers(
    subwords: SubwordPair | None, rate: float, seed: int
) -> tuple[SubwordRegularizer, SubwordRegularizer] | None:
    """Return the regularizers of source and target, with independent randomness; None if `rate` is 0."""
    if rate == 0:
        return None
    if subwords is None:
        raise DataError(
            f"data.subword_regularization is {rate}, which needs the subwords: pass those of the store"
        )
    sides = {"source": subwords.source, "target": subwords.target}
    source, target = (
        SubwordRegularizer(tokenizer, rate, f"{seed} {name}") for name, tokenizer in sides.items()
    )
    return source, target


def replace_too_long(sampled: TokenSequences, stored: TokenSequences, max_length: int) -> TokenSequences:
    """Return the sampled texts, with those that are too long as they were stored."""

    def split_texts(sequences: TokenSequences) -> list[list[int]]:
        return [part[:-1].tolist() for part in np.split(sequences.ids, sequences.offsets[1:-1])]

    both = zip(split_texts(sampled), split_texts(stored), strict=True)
    return concat_with_end([new if len(new) < max_length else old for new, old in both])


def hash_words(ids_N: Ints, starts_W: Ints) -> Ints:
    """Hash each word by its ids and their order. Among a million words a collision has probability 3e-8."""
    sizes_W = np.diff(starts_W, append=len(ids_N))
    position_N = np.arange(len(ids_N)) - np.repeat(starts_W, sizes_W)
    hashes_N = mix_bits((ids_N + (position_N << 32)).astype(np.uint64) + GOLDEN_GAMMA)
    return mix_bits(np.add.reduceat(hashes_N, starts_W)).view(np.int64)


def make_slices(starts: Ints, end: int, indices: Ints) -> list[slice]:
    """Return the slices from these starts to the next start, or to the end."""
    bounds = np.append(starts, end)
    return [slice(bounds[index], bounds[index + 1]) for index in indices]


def mix_bits(numbers: Hashes) -> Hashes:
    """Mix so that every output bit depends on every input bit (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def concat_ranges(starts: Ints, sizes: Ints) -> Ints:
    """[starts[0], starts[0] + 1, ... sizes[0] of them, starts[1], ...]"""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)
