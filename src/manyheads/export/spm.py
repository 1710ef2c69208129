"""Rewriting the SentencePiece models of a Marian folder with our ids.

Marian looks the pieces of a .spm file up in vocab.json; we use the ids of the SentencePiece model itself.
So each .spm gets every entry of the vocabulary as a piece, in our order. Pieces that it had keep their
scores, and the normalizer stays, so it splits text as before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, UNK_ID
from manyheads.errors import CheckpointError, DataError, RequestError, install_command
from manyheads.text.subwords import WORD_START, SubwordTokenizer

LANGUAGE_CODE = re.compile(r">>[^<>\s]+<<")
UNKNOWN_PENALTY = 10.0  # by which SentencePiece scores an unknown character below its worst piece


@dataclass(frozen=True)
class VocabularyMapping:
    """Our vocabulary, by id."""

    pieces: list[str]
    marian_ids: list[int]  # Marian's id of each; several may be its unknown token
    vocab_words: int  # entries that vocab.json has; pieces of the .spm files that it lacks follow them


def read_spm(path: Path) -> Any:
    """Read a SentencePiece model as a protobuf message."""
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise RequestError(
            ".spm files are rewritten with protobuf, which is not installed: "
            f"{install_command('huggingface')}"
        ) from None
    spm = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        spm.ParseFromString(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}; a Marian folder has it") from None
    except DecodeError:
        spm.Clear()
    if not spm.pieces:
        raise CheckpointError(f"{path}: not a SentencePiece model, or damaged")
    return spm


def text_pieces(spm: Any) -> list[str]:
    """Return the pieces that text can be split into: all but unknown and control pieces."""
    return [piece.piece for piece in spm.pieces if piece.type not in (piece.UNKNOWN, piece.CONTROL)]


def rewrite_spm(spm: Any, vocabulary: VocabularyMapping, name: str, *, is_source: bool) -> SubwordTokenizer:
    """Return a model with our ids that splits text as this one does."""
    rewritten = type(spm)()
    rewritten.CopyFrom(spm)
    del rewritten.pieces[:]
    rewritten.pieces.extend(build_pieces(spm, vocabulary, is_source))
    rewritten.ClearField("self_test_data")  # samples in the old ids
    set_special_ids(rewritten.trainer_spec, vocabulary)
    try:
        return SubwordTokenizer(rewritten.SerializeToString(), name)
    except DataError:
        raise CheckpointError(f"{name}: could not be rewritten with the words of vocab.json") from None


def build_pieces(spm: Any, vocabulary: VocabularyMapping, is_source: bool) -> Iterator[Any]:
    """Yield every entry as a piece of this .spm: its own unchanged, the others unused in splitting text.

    Without byte fallback, characters that a .spm does not know pass through unchanged, and Marian finds them
    in vocab.json if they are an entry there. Such entries are used here too.
    """
    own = {piece.piece: piece for piece in spm.pieces if piece.type not in (piece.UNKNOWN, piece.CONTROL)}
    characters = {piece for piece in own if len(piece) == 1}
    passes_unknown = not spm.trainer_spec.byte_fallback
    lowest = min((piece.score for piece in own.values()), default=0.0) - UNKNOWN_PENALTY
    for token, piece in enumerate(vocabulary.pieces):
        entry = type(spm.pieces[0])(piece=piece or f"<word {token}>", score=lowest, type="UNUSED")
        if token < NUM_SPECIAL_TOKENS:
            entry.score, entry.type = 0.0, entry.UNKNOWN if token == UNK_ID else entry.CONTROL
        elif LANGUAGE_CODE.fullmatch(
            piece
        ):  # SentencePiece puts a space before all text, this piece included
            entry.piece, entry.score, entry.type = WORD_START + piece, 0.0, entry.USER_DEFINED
        elif piece in own:
            entry.CopyFrom(own[piece])
            if token >= vocabulary.vocab_words and not is_source and entry.type != entry.BYTE:
                entry.type = entry.UNUSED
        elif passes_unknown and piece and token < vocabulary.vocab_words and characters.isdisjoint(piece):
            entry.type = entry.NORMAL
        yield entry


def set_special_ids(spec: Any, vocabulary: VocabularyMapping) -> None:
    """Set the special ids. Only what changes is written, so that our own models stay byte-identical."""
    unknown, begin, end = vocabulary.pieces[:NUM_SPECIAL_TOKENS]
    for key, value in {
        "vocab_size": len(vocabulary.pieces),
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
