"""What tells a good translation from a bad one, computed from ids for many sentences at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Floats, Ragged, share_of_repeats
from manyheads.confidence.source_model import SourceModel
from manyheads.config import NUM_SPECIAL_TOKENS, UNK_ID
from manyheads.text.languages import get_script_pattern
from manyheads.text.subwords import WORD_START, SubwordTokenizer

FEATURES = (
    "log_p",  # mean log p of the output's tokens, the end included
    "source_log_p",  # mean log p of the source's tokens by the source model
    "source_worst",  # the same of its worst four tokens in a row
    "too_short",  # how much shorter than expected the output is, in logarithms
    "too_long",
    "source_unknown",  # share of pieces that are bytes or unknown
    "output_unknown",
    "source_piece_length",  # characters per piece
    "output_piece_length",
    "repetition",  # share of repeated bigrams in the output minus that in the source
    "source_foreign",  # share of letters of another script than the language's
    "output_foreign",
    "source_length",  # logarithm of the number of tokens
)
WINDOW = 4


@dataclass(frozen=True, eq=False)
class PieceTable:
    """What the features need to know of each piece of a vocabulary. [V] each"""

    is_unknown: NDArray[np.bool_]  # bytes and unknown
    characters: NDArray[np.int64]
    letters: NDArray[np.int64]
    foreign: NDArray[np.int64]  # letters that are not of the language's script

    @classmethod
    def of(cls, subwords: SubwordTokenizer, language: str) -> "PieceTable":
        pieces = [piece.replace(WORD_START, "") for piece in subwords.pieces]
        pieces[:NUM_SPECIAL_TOKENS] = [""] * NUM_SPECIAL_TOKENS  # the end token has no letters
        is_byte = [len(piece) == 6 and piece.startswith("<0x") for piece in pieces]
        is_byte[UNK_ID] = True
        pattern = get_script_pattern(language)
        letters = [
            0 if known else sum(map(str.isalpha, piece)) for piece, known in zip(pieces, is_byte, strict=True)
        ]
        own = letters if pattern is None else [len(pattern.findall(piece)) for piece in pieces]
        letters_V = np.array(letters)
        return cls(
            np.array(is_byte),
            np.array([*map(len, pieces)]),
            letters_V,
            np.maximum(0, letters_V - np.array(own)),
        )


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """Computes the features of translations of one model."""

    source_model: SourceModel
    source_pieces: PieceTable
    target_pieces: PieceTable
    log_length_ratio: float  # expected: of output tokens to source tokens

    def compute(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], log_p: Sequence[float]
    ) -> Floats:
        """Return the features of sentences. Sources end with the end token, outputs do not. [N, features]"""
        source, output = Ragged.of(sources), Ragged.of(outputs)
        source_log_p = self.source_model.score(source)
        lengths = output.lengths + 1
        deviation = np.log(lengths / np.maximum(1, source.lengths)) - self.log_length_ratio
        columns: list[NDArray[Any]] = [
            np.asarray(log_p, np.float64) / lengths,
            source.mean(source_log_p),
            source.mean_of_worst_window(source_log_p, WINDOW),
            np.maximum(0, -deviation),
            np.maximum(0, deviation),
            source.mean(self.source_pieces.is_unknown[source.ids]),
            output.mean(self.target_pieces.is_unknown[output.ids]),
            source.mean(self.source_pieces.characters[source.ids]),
            output.mean(self.target_pieces.characters[output.ids]),
            share_of_repeats(output, 2) - share_of_repeats(source, 2),
            share_of_foreign(source, self.source_pieces),
            share_of_foreign(output, self.target_pieces),
            np.log(np.maximum(1, source.lengths)),
        ]
        return np.stack(columns, 1)


def share_of_foreign(sentences: Ragged, pieces: PieceTable) -> Floats:
    letters = sentences.sum(pieces.letters[sentences.ids])
    return sentences.sum(pieces.foreign[sentences.ids]) / np.maximum(1, letters)
