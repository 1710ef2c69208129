"""Texts to ids and back by table lookup: words are segmented independently."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from manyheads.config import EOS_ID, UNK_ID
from manyheads.data.subword_regularization import Ints, concat_ranges
from manyheads.errors import DataError
from manyheads.text.subwords import WORD_START, SubwordTokenizer, TokenSequences, normalize

MAX_WORDS = 500_000  # of a table of words; typos are new ones without end
BYTE_PIECE_START = "<0x"
TEXT_END = "\n"  # in no text, which SentencePiece reads without line ends


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


def contains_unknown(sequences: TokenSequences, indices: Ints) -> NDArray[np.bool_]:
    """Return which of these texts have an unknown token, which cannot be decoded."""
    unknown = np.flatnonzero(sequences.ids == UNK_ID)
    return np.isin(indices, np.searchsorted(sequences.offsets, unknown, side="right") - 1)
