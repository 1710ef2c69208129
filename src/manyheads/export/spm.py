"""SentencePiece models of a Marian folder, rewritten so that their ids are our words'.

Marian looks the pieces of a .spm file up in vocab.json; we take the ids of the SentencePiece model itself. So
each .spm gets every word of the vocabulary as a piece, in our order. Those that it had keep their scores, and
its normalizer stays: it splits text as before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, UNK_ID
from manyheads.errors import CheckpointError, DataError, RequestError
from manyheads.text.subwords import WORD_START, SubwordTokenizer

LANGUAGE_CODE = re.compile(r">>[^<>\s]+<<")
UNKNOWN_PENALTY = 10.0  # that SentencePiece's unigram model sets an unknown character below its worst piece


@dataclass(frozen=True)
class VocabularyMapping:
    """Our words, by id."""

    pieces: list[str]
    marian_ids: list[int]  # which of their words each is; several may be their unknown one
    vocab_words: int  # that vocab.json has; behind them stand pieces of the .spm files that it lacks


def read_spm(path: Path) -> Any:
    """The parts of a SentencePiece model."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise RequestError(
            ".spm files are rewritten with protobuf, which is not installed: "
            "pip install 'manyheads[huggingface]'"
        ) from None
    spm = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        spm.ParseFromString(path.read_bytes())
    except OSError as fault:
        raise CheckpointError(f"{path}: {fault.strerror}; a Marian folder has it") from None
    except DecodeError:
        spm.Clear()
    if not spm.pieces:
        raise CheckpointError(f"{path}: not a SentencePiece model, or damaged")
    return spm


def text_pieces(spm: Any) -> list[str]:
    """The pieces that text can be split into: all but the unknown, begin, end and the like."""
    return [one.piece for one in spm.pieces if one.type not in (one.UNKNOWN, one.CONTROL)]


def rewrite_spm(spm: Any, lexicon: VocabularyMapping, name: str, *, is_source: bool) -> SubwordTokenizer:
    """A model with our ids that splits text as this one does."""
    made = type(spm)()
    made.CopyFrom(spm)
    del made.pieces[:]
    made.pieces.extend(build_pieces(spm, lexicon, is_source))
    made.ClearField("self_test_data")  # samples in the old ids
    set_special_ids(made.trainer_spec, lexicon)
    try:
        return SubwordTokenizer(made.SerializeToString(), name)
    except DataError:
        raise CheckpointError(f"{name}: could not be rewritten with the words of vocab.json") from None


def build_pieces(spm: Any, lexicon: VocabularyMapping, is_source: bool) -> Iterator[Any]:
    """Every word as a piece of this .spm: its own as they were, the others not used in splitting text.

    But a run of characters that this .spm does not know it passes on as it is (unless it spells them in
    bytes), and Marian finds it in vocab.json where it is a word there: such words are found here too.
    """
    own = {one.piece: one for one in spm.pieces if one.type not in (one.UNKNOWN, one.CONTROL)}
    characters = {piece for piece in own if len(piece) == 1}
    passes_on = not spm.trainer_spec.byte_fallback
    lowest = min((one.score for one in own.values()), default=0.0) - UNKNOWN_PENALTY
    for number, piece in enumerate(lexicon.pieces):
        part = type(spm.pieces[0])(piece=piece or f"<word {number}>", score=lowest, type="UNUSED")
        if number < NUM_SPECIAL_TOKENS:
            part.score, part.type = 0.0, part.UNKNOWN if number == UNK_ID else part.CONTROL
        elif LANGUAGE_CODE.fullmatch(piece):  # SentencePiece sets a space before all text, this word included
            part.piece, part.score, part.type = WORD_START + piece, 0.0, part.USER_DEFINED
        elif piece in own:
            part.CopyFrom(own[piece])
            if number >= lexicon.vocab_words and not is_source and part.type != part.BYTE:
                part.type = part.UNUSED
        elif passes_on and piece and number < lexicon.vocab_words and characters.isdisjoint(piece):
            part.type = part.NORMAL
        yield part


def set_special_ids(spec: Any, lexicon: VocabularyMapping) -> None:
    """Only what changes is written, so that a model of ours comes back byte for byte."""
    unknown, begin, end = lexicon.pieces[:NUM_SPECIAL_TOKENS]
    for key, value in {
        "vocab_size": len(lexicon.pieces),
        "unk_id": UNK_ID,
        "bos_id": BOS_ID,
        "eos_id": EOS_ID,
        "pad_id": -1,
        "unk_piece": unknown,
        "bos_piece": begin,
        "eos_piece": end,
    }.items():
        if getattr(spec, key) != value:
            setattr(spec, key, value)
