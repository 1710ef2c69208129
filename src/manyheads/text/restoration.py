"""What is restored in the translation of a sentence: text that is copied, and capitals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.text.casing import to_capitals
from manyheads.text.masks import SYMBOL, find_missing, has_all_symbols, unmask
from manyheads.text.subwords import BYTE_PIECE
from manyheads.text.verbatim import Category, Span

WORD_START = "\u2581"  # as SentencePiece writes a space


@dataclass(frozen=True, slots=True)
class Restoration:
    """Of one sentence."""

    spans: tuple[Span, ...] = ()  # of its text that are copied
    values: tuple[str, ...] = ()  # of the copy symbols that the model reads in place of spans
    unmasked: tuple[tuple[str, Category], ...] = ()  # the other spans, which the model reads as they are
    is_upper: bool = False  # the model reads lower case instead of capitals

    def restore(self, output: str) -> str | None:
        """Return the translation, or None if something that must survive is missing or doubled."""
        if self.values and not has_all_symbols(output, len(self.values)):
            return None
        if self.unmasked and find_missing(output, self.unmasked):
            return None
        if self.is_upper:
            output = capitalize_outside(output, [value for value, _ in self.unmasked])
        return unmask(output, self.values) if self.values else output

    def restore_pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return subword pieces of the source or the output as those of the restored text."""
        return [self._restore_piece(piece) for piece in pieces]

    def _restore_piece(self, piece: str) -> str:
        if self.values and (match := SYMBOL.fullmatch(piece)) and int(match[1]) < len(self.values):
            return self.values[int(match[1])].replace(" ", WORD_START)
        return to_capitals(piece) if self.is_upper and not BYTE_PIECE.fullmatch(piece) else piece


def capitalize_outside(text: str, values: Sequence[str]) -> str:
    """Return a text in capitals, but for these values, which stay as they are."""
    if not values:
        return to_capitals(text)
    longest_first = sorted(set(values), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return "".join(part if index % 2 else to_capitals(part) for index, part in enumerate(parts))
