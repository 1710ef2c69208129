"""Subwords (5.1): SentencePiece models that turn text into ids and back without loss.

SentencePiece normalizes nothing here: `normalize` does, so that decode(encode(x)) == normalize(x) for any
text. The ids begin with unknown, begin and end; there is no padding.
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

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, UNK_ID, SubwordConfig
from manyheads.errors import DataError
from manyheads.text import clean
from manyheads.text.invalid import LONE_SURROGATE

WORD_START = "\u2581"  # how SentencePiece writes a space; it decodes the character itself to a space too
TRAINING_THREADS = 4  # fixed: the unigram model's sums depend on their number
MAX_SENTENCE_BYTES = 1 << 24  # bytes; SentencePiece would skip longer ones silently, and ours are shorter


def normalize(text: str) -> str:
    """NFC, single spaces, none at the ends; U+2581 becomes the underscore that it looks like, and half a
    surrogate pair, which no file can hold, the sign for what cannot be read."""
    if LONE_SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return clean.normalize(text.replace(WORD_START, "_"))


@dataclass(frozen=True)
class TokenSequences:
    """Ids of many sentences, laid end to end. offsets [sentences + 1]"""

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]


class SubwordTokenizer:
    """One vocabulary."""

    def __init__(self, model: bytes, name: str = "subwords.model") -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise DataError(f"{name}: not a SentencePiece model, or damaged") from None
        ids = self._processor.unk_id(), self._processor.bos_id(), self._processor.eos_id()
        if ids != (UNK_ID, BOS_ID, EOS_ID):
            raise DataError(
                f"{name}: unknown, begin and end are {ids}, but must be {(UNK_ID, BOS_ID, EOS_ID)}: "
                f"train the SentencePiece model with unk_id=0 bos_id=1 eos_id=2 pad_id=-1"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return cls(Path(path).read_bytes(), os.fspath(path))
        except OSError as fault:
            raise DataError(f"{path}: {fault.strerror}") from None

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        config: SubwordConfig,
        extra_symbols: Sequence[str] = (),
    ) -> Self:
        """Pieces learned from sentences. `found`: symbols to reserve beside those that the config names."""
        model, source = io.BytesIO(), ErrorRecordingIterable(sentences)
        reserved = list(dict.fromkeys([*config.user_symbols, *extra_symbols]))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(normalize, source),
                model_writer=model,
                model_type=config.algorithm,
                vocab_size=config.vocab_size,
                character_coverage=min(1.0, config.character_coverage),
                byte_fallback=config.byte_fallback,
                user_defined_symbols=reserved,
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
        except (RuntimeError, OSError) as fault:
            if source.error is not None:
                raise source.error from None
            raise DataError(explain_training_failure(str(fault), config, len(reserved))) from None
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.model).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_bytes(self.model)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without begin and end."""
        ids: list[int] = self._processor.encode(normalize(text))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; begin and end say nothing."""
        self._check_range(ids)
        text: str = self._processor.decode([int(one) for one in ids if one not in (BOS_ID, EOS_ID)])
        return text

    def _check_range(self, ids: Sequence[int]) -> None:
        if len(ids) and not 0 <= min(ids) <= max(ids) < len(self):
            raise DataError(f"ids from {min(ids)} to {max(ids)}, but the vocabulary is 0 to {len(self) - 1}")

    def get_scored_vocabulary(self) -> list[tuple[str, float]]:
        """Every piece, in the order of its id, with its score: what a sampler needs."""
        ids = range(len(self))
        return [(self._processor.id_to_piece(one), self._processor.get_score(one)) for one in ids]

    def get_vocabulary(self) -> list[str]:
        """Every piece, in the order of its id."""
        return [piece for piece, _ in self.get_scored_vocabulary()]

    def id_to_piece(self, token_id: int) -> str:
        """An id as people read it: a space is written U+2581, a byte <0x0A>."""
        self._check_range([token_id])
        text: str = self._processor.id_to_piece(token_id)
        return text

    def encode_as_pieces(self, text: str) -> list[str]:
        """How a text is split."""
        return [self.id_to_piece(one) for one in self.encode(text)]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> TokenSequences:
        """Ids of many texts, each followed by end. `threads`: by default as many as there are cores."""
        mended = [normalize(text) for text in texts]
        return concat_with_end(self._processor.encode(mended, num_threads=threads or count_cpus()))


class ErrorRecordingIterable:
    """An iterable that keeps what went wrong in it, for SentencePiece makes another error of it."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences, self.error = sentences, None

    error: BaseException | None

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self.sentences
        except BaseException as fault:
            self.error = fault
            raise


def concat_with_end(sentences: list[list[int]]) -> TokenSequences:
    offsets = np.cumsum([0, *(len(ids) + 1 for ids in sentences)])
    closed = chain.from_iterable(chain(ids, (EOS_ID,)) for ids in sentences)
    return TokenSequences(np.fromiter(closed, np.int64, count=int(offsets[-1])), offsets)


def count_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def explain_training_failure(fault: str, config: SubwordConfig, reserved: int) -> str:
    """SentencePiece's words, turned into the value, the limit and the remedy."""
    wanted = f"subwords.vocab_size is {config.vocab_size:,}"
    if found := re.search(r"Vocabulary size too high.*?<= (\d+)", fault):
        most = int(found.group(1))
        return (
            f"{wanted}, but this corpus has words for {most:,} only: "
            f"set subwords.vocab_size={most} or less, or add text"
        )
    if found := re.search(r"smaller than required_chars\D+\d+ vs (\d+)", fault):
        least = int(found.group(1))
        return (
            f"{wanted}, but characters, bytes and reserved symbols alone need {least:,}: set "
            f"subwords.vocab_size={least} or more, or lower subwords.character_coverage"
        )
    if config.vocab_size <= NUM_SPECIAL_TOKENS + reserved + 256 * config.byte_fallback:
        return (
            f"{wanted}, but {NUM_SPECIAL_TOKENS} special tokens, {reserved} reserved symbols"
            + (" and 256 bytes" if config.byte_fallback else "")
            + " leave no room: set a larger one"
        )
    if "sentences_.empty()" in fault:
        return "no subwords could be learned: not one sentence is left to learn from"
    return f"no subwords could be learned: {fault.strip()}"


# ---- both languages


@dataclass(frozen=True)
class SubwordPair:
    """The source's subwords and the target's: one and the same where the vocabulary is joint."""

    source: SubwordTokenizer
    target: SubwordTokenizer

    JOINT, SOURCE, TARGET = "subwords.model", "subwords.source.model", "subwords.target.model"

    @property
    def is_joint(self) -> bool:
        return self.source is self.target

    @cached_property
    def has_shared_ids(self) -> bool:
        """Whether an id is the same piece on both sides, though the two may split text differently."""
        return self.is_joint or self.source.get_vocabulary() == self.target.get_vocabulary()

    def is_same_as(self, other: "SubwordPair") -> bool:
        """Whether ids mean the same in both."""
        return all(
            own.sha256 == theirs.sha256
            for own, theirs in ((self.source, other.source), (self.target, other.target))
        )

    @property
    def files(self) -> dict[str, SubwordTokenizer]:
        if self.is_joint:
            return {self.JOINT: self.source}
        return {self.SOURCE: self.source, self.TARGET: self.target}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """From a data or model folder."""
        here = Path(folder)
        if (here / cls.JOINT).exists():
            both = SubwordTokenizer.load(here / cls.JOINT)
            return cls(both, both)
        if not (here / cls.SOURCE).exists():
            raise DataError(
                f"{folder}: no subwords; {cls.JOINT}, or {cls.SOURCE} and {cls.TARGET}, must be there"
            )
        return cls(SubwordTokenizer.load(here / cls.SOURCE), SubwordTokenizer.load(here / cls.TARGET))

    @classmethod
    def train(
        cls,
        sample: Callable[[], Iterator[tuple[str, str]]],
        config: SubwordConfig,
    ) -> Self:
        """From pairs, which are gone through several times."""
        found = clean.find_frequent_placeholders(chain.from_iterable(sample()), config.detect_placeholders)
        if config.joint:
            both = SubwordTokenizer.train(chain.from_iterable(sample()), config, found)
            return cls(both, both)
        return cls(
            SubwordTokenizer.train((source for source, _ in sample()), config, found),
            SubwordTokenizer.train((target for _, target in sample()), config, found),
        )

    def save(self, folder: Path) -> None:
        for name, subwords in self.files.items():
            subwords.save(folder / name)
