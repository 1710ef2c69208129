"""Terms with their translations inside the source, for models that are trained to use them.

    "I see the dogs."  ->  "I see the ⟦t⟧ dogs⟦=⟧ Hund⟦/⟧."  ->  "Ich sehe die Hunde."

The translation is in its base form, and the model inflects it (target lemma annotations: Dinu et al., 2019;
Bergmanis and Pinnis, 2021). The words stand behind spaces, so that subwords segment them as ever.
"""

from collections.abc import Sequence
from typing import NamedTuple

TERM_START, TERM_TRANSLATION, TERM_END = TERM_SYMBOLS = ("\u27e6t\u27e7", "\u27e6=\u27e7", "\u27e6/\u27e7")


class Annotation(NamedTuple):
    """Characters of a text, and their translation in its base form."""

    start: int
    end: int
    translation: str


def annotate(text: str, annotations: Sequence[Annotation]) -> str:
    """Return the text with annotations, which are in order and do not overlap."""
    parts, position = [], 0
    for start, end, translation in annotations:
        parts += [text[position:start], format_term(text[start:end], translation)]
        position = end
    return "".join([*parts, text[position:]])


def format_term(term: str, translation: str) -> str:
    return f"{TERM_START} {term}{TERM_TRANSLATION} {translation}{TERM_END}"


class AnnotationRemover:
    """Removes annotations from token ids. What is left are the ids of the plain text, nearly."""

    def __init__(self, pieces: Sequence[str], word_start: str) -> None:
        """`word_start` is the piece of a space, which precedes a symbol that starts a word."""
        self.start, self.translation, self.end, self.space = (
            pieces.index(piece) if piece in pieces else -1 for piece in (*TERM_SYMBOLS, word_start)
        )

    def find_kept(self, ids: Sequence[int]) -> list[int]:
        """Return the positions of the ids that belong to the plain text."""
        kept: list[int] = []
        is_inside = False
        for position, token in enumerate(ids):
            if token == self.start:
                if kept and ids[kept[-1]] == self.space and kept[-1] == position - 1:
                    kept.pop()
            elif token == self.translation:
                is_inside = True
            elif token == self.end:
                is_inside = False
            elif not is_inside:
                kept.append(position)
        return kept

    def find_annotations(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the first and the last symbol of each annotated term, by their positions."""
        starts = [position for position, token in enumerate(ids) if token == self.start]
        ends = [position for position, token in enumerate(ids) if token == self.end]
        return list(zip(starts, ends, strict=True))
