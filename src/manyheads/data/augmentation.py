"""Augmentation of whole batches: noise in some sources, and symbols that are copied from source to target.

Which pairs are changed, and how, is a function of (seed, epoch, pair). Only those are decoded, changed and
encoded again. Words are segmented independently, so the ids of a word are looked up once it has occurred.

Shapes: B pairs of a batch, C of them changed.
"""

import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from manyheads.config import EOS_ID, UNK_ID, AugmentationConfig
from manyheads.data.subword_regularization import GOLDEN_GAMMA, Hashes, Ints, concat_ranges, mix_bits
from manyheads.errors import DataError
from manyheads.text.copying import insert_copy_symbols
from manyheads.text.noise import NOISES
from manyheads.text.subwords import WORD_START, SubwordPair, SubwordTokenizer, TokenSequences, normalize
from manyheads.text.verbatim import COPY_SYMBOLS

MAX_WORDS = 500_000  # of a table of words; typos are new ones without end
BYTE_PIECE_START = "<0x"
TEXT_END = "\n"  # in no text, which SentencePiece reads without line ends


class SourceAugmenter:
    """Changes the pairs of a batch by the rates of the configuration."""

    def __init__(self, subwords: SubwordPair, config: AugmentationConfig, seed: int) -> None:
        self.copied_rate = config.copied
        if config.copied:
            check_copy_symbols(subwords)
        self.noises = [NOISES[name] for name in config.noise_rates]
        self.bounds = np.cumsum([*config.noise_rates.values()])  # of a uniform number that chooses the noise
        self.salt = np.uint64(random.Random(f"{seed} augmentation").getrandbits(64))
        self.source = WordCodec(subwords.source)
        self.target = self.source if subwords.is_joint else WordCodec(subwords.target)
        self.rng = random.Random()

    def augment(
        self, source: TokenSequences, target: TokenSequences, keys_B: Ints, max_length: int
    ) -> tuple[TokenSequences, TokenSequences]:
        """Change some pairs by their keys. A pair that would exceed `max_length` stays as stored."""
        hashes_B = mix_bits(keys_B.astype(np.uint64) + self.salt)
        noises_B = np.searchsorted(self.bounds, to_uniform(hashes_B), side="right")
        is_copied_B = to_uniform(mix_bits(hashes_B + GOLDEN_GAMMA)) < self.copied_rate
        changed_C = np.flatnonzero((noises_B < len(self.noises)) | is_copied_B)
        changed_C = changed_C[~contains_unknown(source, changed_C) & ~contains_unknown(target, changed_C)]
        if not len(changed_C):
            return source, target
        copied = changed_C[is_copied_B[changed_C]]
        sources = dict(zip(changed_C.tolist(), self.source.decode(source, changed_C), strict=True))
        targets = dict(zip(copied.tolist(), self.target.decode(target, copied), strict=True))
        for pair, noise, seed in zip(
            changed_C.tolist(), noises_B[changed_C].tolist(), hashes_B[changed_C].tolist(), strict=True
        ):
            self.rng.seed(seed)
            if pair in targets:
                sources[pair], targets[pair] = insert_copy_symbols(sources[pair], targets[pair], self.rng)
            if noise < len(self.noises):
                sources[pair] = self.noises[noise](sources[pair], self.rng)
        new_sources = dict(zip(sources, self.source.encode(sources.values()), strict=True))
        new_targets = dict(zip(targets, self.target.encode(targets.values()), strict=True))
        drop_unusable(new_sources, new_targets, max_length)
        return replace_texts(source, new_sources), replace_texts(target, new_targets)


class WordCodec:
    """Decodes and encodes texts by table lookup, since words are segmented independently."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        if tokenizer.decode([*tokenizer.encode("a"), *tokenizer.encode("b")]) != "a b":
            raise DataError(
                "augmentation encodes words one by one, but these subwords do not mark where a word starts: "
                "train the SentencePiece model with add_dummy_prefix=true"
            )
        self.tokenizer, self.words = tokenizer, WordTable(tokenizer)
        self.pieces = np.array([piece.replace(WORD_START, " ") for piece in tokenizer.pieces], object)
        self.pieces[EOS_ID] = TEXT_END

    def decode(self, sequences: TokenSequences, indices: Ints) -> list[str]:
        """Return some of the texts."""
        starts, sizes = sequences.offsets[indices], np.diff(sequences.offsets)[indices]
        pieces = self.pieces[sequences.ids[concat_ranges(starts, sizes)]]
        texts = "".join(pieces.tolist()).split(TEXT_END)[:-1]
        return [
            text[1:]
            if BYTE_PIECE_START not in text
            else self.tokenizer.decode(sequences.ids[start : start + size - 1].tolist())
            for text, start, size in zip(texts, starts.tolist(), sizes.tolist(), strict=True)
        ]

    def encode(self, texts: Iterable[str]) -> list[bytes]:
        """Return the ids of texts with their ends, as the bytes of an array: those of words are joined."""
        if len(self.words) > MAX_WORDS:
            self.words.clear()
        lookup, end = self.words.__getitem__, to_bytes([EOS_ID])
        return [b"".join(map(lookup, split_words(text))) + end for text in texts]


class WordTable(dict[str, bytes]):
    """The ids of words as bytes, each encoded when it is first looked up."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        self.tokenizer = tokenizer

    def __missing__(self, word: str) -> bytes:
        ids = self[word] = to_bytes(self.tokenizer.encode(word))
        return ids


def to_bytes(ids: list[int]) -> bytes:
    return np.array(ids, np.int64).tobytes()


def count_ids(ids: bytes) -> int:
    return len(ids) // np.dtype(np.int64).itemsize


def split_words(text: str) -> list[str]:
    """Return the words of the normalized text."""
    return text.split() if text.isascii() else normalize(text).split()


def make_augmenter(
    subwords: SubwordPair | None, config: AugmentationConfig, seed: int
) -> SourceAugmenter | None:
    """Return the augmenter of a run; None if all rates are 0."""
    if not config.rates:
        return None
    if subwords is None:
        raise DataError("augmentation needs the subwords: pass those of the store")
    return SourceAugmenter(subwords, config, seed)


def check_copy_symbols(subwords: SubwordPair) -> None:
    """Raise if a copy symbol is not a subword of its own on both sides."""
    if not subwords.has_copy_symbols:
        raise DataError(
            f"augmentation.copied needs the copy symbols {COPY_SYMBOLS[0]} to {COPY_SYMBOLS[-1]} as "
            f"subwords, which these do not have: prepare the data again with subwords.copy_symbols=true, "
            f"or set augmentation.copied=0"
        )


def to_uniform(hashes: Hashes) -> NDArray[np.float64]:
    """Return numbers in [0, 1) from the upper 53 bits."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def contains_unknown(sequences: TokenSequences, indices: Ints) -> NDArray[np.bool_]:
    """Return which of these texts have an unknown token, which cannot be decoded."""
    unknown = np.flatnonzero(sequences.ids == UNK_ID)
    return np.isin(indices, np.searchsorted(sequences.offsets, unknown, side="right") - 1)


def drop_unusable(sources: dict[int, bytes], targets: dict[int, bytes], max_length: int) -> None:
    """Drop pairs of which a side has become empty, except for its end, or too long."""
    unusable = [
        pair
        for side in (sources, targets)
        for pair, ids in side.items()
        if not 1 < count_ids(ids) <= max_length
    ]
    for pair in unusable:
        sources.pop(pair, None)
        targets.pop(pair, None)


def replace_texts(stored: TokenSequences, new_ids: dict[int, bytes]) -> TokenSequences:
    """Return the texts, some of them replaced."""
    if not new_ids:
        return stored
    indices = np.fromiter(new_ids, np.int64)
    new_sizes = np.fromiter(map(count_ids, new_ids.values()), np.int64)
    every = np.concatenate([stored.ids, np.frombuffer(b"".join(new_ids.values()), np.int64)])
    starts_B, sizes_B = stored.offsets[:-1].copy(), np.diff(stored.offsets)
    starts_B[indices] = len(stored.ids) + np.cumsum(new_sizes) - new_sizes
    sizes_B[indices] = new_sizes
    return TokenSequences(every[concat_ranges(starts_B, sizes_B)], np.concatenate([[0], np.cumsum(sizes_B)]))
