"""Words that a model cannot know, because its training sources did not have them.

Words are compared by their pieces, and not as wholes: a word that never occurred passes for known if the
sources had each of its pieces after the one before it. Without a calibration, or after training on much text,
only words with characters that the vocabulary lacks are recognized: the table of the source model then holds
the most frequent bigrams only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.features import PieceTable
from manyheads.confidence.source_model import SourceModel
from manyheads.text.subwords import SubwordTokenizer


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The words of training sources, as sequences of pieces."""

    subwords: SubwordTokenizer
    pieces: PieceTable
    source_model: SourceModel | None  # of a model that is calibrated

    @classmethod
    def of(
        cls, subwords: SubwordTokenizer, language: str, source_model: SourceModel | None = None
    ) -> "KnownWords":
        is_complete = source_model is not None and source_model.is_complete
        return cls(subwords, PieceTable.of(subwords, language), source_model if is_complete else None)

    def find_unknown(self, words: Sequence[str]) -> list[int]:
        """Return the indices of unknown words. What has no letters, such as a number, is never unknown."""
        return [index for index, word in enumerate(words) if has_letter(word) and not self.is_known(word)]

    def is_known(self, word: str) -> bool:
        ids = np.array(self.subwords.encode(word), np.int64)
        if not len(ids):
            return True
        if self.pieces.is_unknown[ids].any():
            return False
        return self.source_model is None or self.source_model.has_seen(ids)

    def list_known_pieces(self) -> NDArray[np.bool_]:
        """Return for each piece whether a known word can have it. [V]"""
        if self.source_model is None:
            return ~self.pieces.is_unknown
        return ~self.pieces.is_unknown & self.source_model.list_seen()


def has_letter(word: str) -> bool:
    return any(map(str.isalpha, word))
