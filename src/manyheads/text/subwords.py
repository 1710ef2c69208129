"""Subwords (5.1): SentencePiece models that convert text to ids and back without loss.

SentencePiece does not normalize here, `normalize` does, so that decode(encode(x)) == normalize(x) for any
text. The first ids are unknown, begin and end; there is no padding.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from manyheads.atomic_io import read_regular
from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, UNK_ID, SubwordConfig
from manyheads.errors import DataError
from manyheads.text import clean
from manyheads.text.casing import CaseLexicon
from manyheads.text.invalid import LONE_SURROGATE
from manyheads.text.term_annotation import TERM_SYMBOLS, AnnotationRemover
from manyheads.text.verbatim import COPY_SYMBOLS

WORD_START = "\u2581"  # written by SentencePiece for a space; it decodes the character to a space too
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
MAX_SINGLE_CALLS = 8  # sentences that take less time one by one: SentencePiece starts a thread for a list
TRAINING_THREADS = 4  # fixed: the sums of unigram training depend on it
MAX_SENTENCE_BYTES = 1 << 24  # SentencePiece skips longer ones silently; input lines are shorter


def normalize(text: str) -> str:
    """Normalize to NFC with single spaces and none at the ends.

    U+2581 becomes an underscore, and a lone surrogate, which no file can hold, the replacement character.
    """
    if text.isascii():
        return " ".join(text.split())
    if LONE_SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return clean.normalize(text.replace(WORD_START, "_"))


@dataclass(frozen=True)
class TokenSequences:
    """Ids of many sentences, concatenated. offsets [sentences + 1]"""

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]


class SubwordTokenizer:
    """A SentencePiece model: one vocabulary."""

    def __init__(self, model: bytes, name: str = "subwords.model") -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, ValueError):  # a piece that is not UTF-8 is a ValueError
            raise DataError(f"{name}: not a SentencePiece model, or damaged") from None
        ids, expected = self._get_special_ids(), (UNK_ID, BOS_ID, EOS_ID)
        if ids != expected:
            raise DataError(
                f"{name}: the ids of unknown, begin and end are {ids}, but must be {expected}: "
                f"train the SentencePiece model with unk_id=0 bos_id=1 eos_id=2 pad_id=-1"
            )

    def __reduce__(self) -> tuple[type["SubwordTokenizer"], tuple[bytes]]:
        """Let processes that we start have a copy."""
        return type(self), (self.model,)

    def _get_special_ids(self) -> tuple[int, int, int]:
        return self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return cls(read_regular(Path(path)), os.fspath(path))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        config: SubwordConfig,
        extra_symbols: Sequence[str] = (),
    ) -> Self:
        """Train on sentences. `extra_symbols` become pieces besides the symbols of the config."""
        model, source = io.BytesIO(), ErrorRecordingIterable(sentences)
        reserved = [
            *(COPY_SYMBOLS if config.copy_symbols else ()),
            *(TERM_SYMBOLS if config.term_symbols else ()),
        ]
        symbols = list(dict.fromkeys([*reserved, *config.user_symbols, *extra_symbols]))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(normalize, source),
                model_writer=model,
                model_type=config.algorithm,
                vocab_size=config.vocab_size,
                character_coverage=min(1.0, config.character_coverage),
                byte_fallback=config.byte_fallback,
                user_defined_symbols=symbols,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                pad_id=-1,
                num_threads=TRAINING_THREADS,
                max_sentence_length=MAX_SENTENCE_BYTES,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            if source.error is not None:
                raise source.error from None
            raise DataError(explain_training_failure(str(error), config, len(symbols))) from None
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_bytes(self.model)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin and end."""
        ids: list[int] = self._processor.encode(normalize(text))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, ignoring begin and end."""
        self._check_range(ids)
        text: str = self._processor.decode(
            [int(token_id) for token_id in ids if token_id not in (BOS_ID, EOS_ID)]
        )
        return text

    def encode_sentences(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Return the ids of many texts, each followed by end. Other threads run meanwhile."""
        normalized = [normalize(text) for text in texts]
        if len(normalized) <= MAX_SINGLE_CALLS:
            return [self._processor.encode(text, add_eos=True) for text in normalized]
        ids: list[list[int]] = self._processor.encode(normalized, add_eos=True, num_threads=threads)
        return ids

    def decode_sentences(self, sentences: Sequence[list[int]]) -> list[str]:
        """Return the texts of many id lists, ignoring begin and end. Other threads run meanwhile."""
        if not sentences:
            return []
        self._check_range([max(ids) for ids in sentences if ids])
        plain = [
            ids if ids and min(ids) > EOS_ID else [token for token in ids if token not in (BOS_ID, EOS_ID)]
            for ids in sentences
        ]
        if len(plain) <= MAX_SINGLE_CALLS:
            return [self._processor.decode(ids) for ids in plain]
        texts: list[str] = self._processor.decode(plain, num_threads=1)
        return texts

    def _check_range(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < len(self):
            raise DataError(f"ids from {min(ids)} to {max(ids)}, but the vocabulary has 0 to {len(self) - 1}")

    def get_scored_vocabulary(self) -> list[tuple[str, float]]:
        """Return every piece with its score, by id."""
        ids = range(len(self))
        return [
            (self._processor.id_to_piece(token_id), self._processor.get_score(token_id)) for token_id in ids
        ]

    @cached_property
    def pieces(self) -> list[str]:
        """Every piece, by id. A space is written U+2581, a byte <0x0A>."""
        return [self._processor.id_to_piece(token_id) for token_id in range(len(self))]

    @cached_property
    def known_characters(self) -> frozenset[str]:
        """The characters that are not spelled in bytes, those of reserved symbols left out."""
        pieces = [piece for piece in self.pieces[NUM_SPECIAL_TOKENS:] if not BYTE_PIECE.fullmatch(piece)]
        reserved = {*COPY_SYMBOLS, *TERM_SYMBOLS}
        return frozenset("".join(piece for piece in pieces if piece not in reserved)) - {WORD_START}

    @cached_property
    def has_copy_symbols(self) -> bool:
        """Whether every copy symbol is one piece."""
        return set(COPY_SYMBOLS) <= set(self.pieces)

    @cached_property
    def has_term_symbols(self) -> bool:
        """Whether every symbol of terms is one piece."""
        return set(TERM_SYMBOLS) <= set(self.pieces)

    @cached_property
    def annotation_remover(self) -> AnnotationRemover:
        """What finds the ids of a text among those of its annotated terms."""
        return AnnotationRemover(self.pieces, WORD_START)

    @cached_property
    def word_start_ids(self) -> frozenset[int]:
        """The ids of pieces that start a word, or are no part of one."""
        return frozenset(
            token
            for token, piece in enumerate(self.pieces)
            if token > EOS_ID and not piece[:1].isalnum() and piece[:1] != "<"
        )

    def id_to_piece(self, token_id: int) -> str:
        """Return the piece of an id."""
        self._check_range([token_id])
        return self.pieces[token_id]

    def encode_as_pieces(self, text: str) -> list[str]:
        """Return the pieces of a text."""
        return [self.id_to_piece(token_id) for token_id in self.encode(text)]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> TokenSequences:
        """Return the ids of many texts, each followed by end. By default one thread per core."""
        normalized = [normalize(text) for text in texts]
        return concat_with_end(self._processor.encode(normalized, num_threads=threads or count_cpus()))


class ErrorRecordingIterable:
    """An iterable that keeps the exception it raised, which SentencePiece replaces by its own."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences, self.error = sentences, None

    error: BaseException | None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self.sentences
        except BaseException as error:
            self.error = error
            raise


def concat_with_end(sentences: list[list[int]]) -> TokenSequences:
    offsets = np.cumsum([0, *(len(ids) + 1 for ids in sentences)])
    with_ends = chain.from_iterable(chain(ids, (EOS_ID,)) for ids in sentences)
    return TokenSequences(np.fromiter(with_ends, np.int64, count=int(offsets[-1])), offsets)


def count_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def explain_training_failure(message: str, config: SubwordConfig, num_symbols: int) -> str:
    """Turn SentencePiece's message into the value, the limit and the remedy."""
    current = f"subwords.vocab_size is {config.vocab_size:,}"
    if match := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        max_size = int(match.group(1))
        return (
            f"{current}, but this corpus has pieces for {max_size:,} only: "
            f"set subwords.vocab_size={max_size} or less, or add text"
        )
    if match := re.search(r"smaller than required_chars\D+\d+ vs (\d+)", message):
        min_size = int(match.group(1))
        return (
            f"{current}, but characters, bytes and user symbols alone need {min_size:,}: set "
            f"subwords.vocab_size={min_size} or more, or lower subwords.character_coverage"
        )
    if config.vocab_size <= NUM_SPECIAL_TOKENS + num_symbols + 256 * config.byte_fallback:
        num_bytes = ", and 256 bytes" if config.byte_fallback else ""
        return (
            f"{current}, but {NUM_SPECIAL_TOKENS} special tokens, {num_symbols} user symbols{num_bytes} "
            f"take all of it: set a larger one"
        )
    if "sentences_.empty()" in message:
        return "subwords cannot be trained: no sentence is left to train on"
    return f"subwords cannot be trained: {message.strip()}"


# ---- both languages


@dataclass(frozen=True)
class SubwordPair:
    """The tokenizers of source and target, which are the same object if the vocabulary is joint."""

    source: SubwordTokenizer
    target: SubwordTokenizer
    casing: CaseLexicon | None = None  # of the source language

    JOINT, SOURCE, TARGET = "subwords.model", "subwords.source.model", "subwords.target.model"

    @property
    def is_joint(self) -> bool:
        return self.source is self.target

    @property
    def has_copy_symbols(self) -> bool:
        return self.source.has_copy_symbols and self.target.has_copy_symbols

    @cached_property
    def has_shared_ids(self) -> bool:
        """Whether an id is the same piece on both sides, even if the tokenizers segment text differently."""
        return self.is_joint or self.source.pieces == self.target.pieces

    def is_same_as(self, other: "SubwordPair") -> bool:
        """Return whether both pairs have the same models."""
        return all(
            tokenizer.sha256 == other_tokenizer.sha256
            for tokenizer, other_tokenizer in ((self.source, other.source), (self.target, other.target))
        )

    @property
    def files(self) -> dict[str, SubwordTokenizer]:
        if self.is_joint:
            return {self.JOINT: self.source}
        return {self.SOURCE: self.source, self.TARGET: self.target}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load from a data or model folder."""
        here = Path(folder)
        casing = load_casing(here / CaseLexicon.FILE)
        if (here / cls.JOINT).exists():
            shared = SubwordTokenizer.load(here / cls.JOINT)
            return cls(shared, shared, casing)
        if not (here / cls.SOURCE).exists():
            raise DataError(f"{folder}: no subwords; needs {cls.JOINT}, or {cls.SOURCE} and {cls.TARGET}")
        source, target = (SubwordTokenizer.load(here / name) for name in (cls.SOURCE, cls.TARGET))
        return cls(source, target, casing)

    @classmethod
    def train(
        cls,
        sample: Callable[[], Iterator[tuple[str, str]]],
        config: SubwordConfig,
    ) -> Self:
        """Train on pairs. `sample` is called once for each pass over them."""
        symbols = clean.find_frequent_placeholders(chain.from_iterable(sample()), config.detect_placeholders)
        if config.joint:
            shared = SubwordTokenizer.train(chain.from_iterable(sample()), config, symbols)
            return cls(shared, shared)
        return cls(
            SubwordTokenizer.train((source for source, _ in sample()), config, symbols),
            SubwordTokenizer.train((target for _, target in sample()), config, symbols),
        )

    def encode_source(self, text: str) -> list[int]:
        """Return the ids of a source as the model reads it, without begin and end."""
        return self.source.encode(self.read_source(text))

    def read_source(self, text: str) -> str:
        """Return a source as the model reads it: in its usual case if there is a case lexicon."""
        return self.casing.read(text) if self.casing else text

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.files.items():
            tokenizer.save(folder / name)
        if self.casing:
            (folder / CaseLexicon.FILE).write_bytes(self.casing.encode())


def load_casing(path: Path) -> CaseLexicon | None:
    """Return the case lexicon of a data or model folder; None if it has none."""
    try:
        return CaseLexicon.decode(read_regular(path), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
