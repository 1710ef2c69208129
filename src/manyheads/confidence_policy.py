"""What happens to translations below a confidence: one rule for commands, bulk jobs and the server."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from manyheads.errors import RequestError
from manyheads.text.identification import LOOKS_LIKE
from manyheads.translation import Translation

Below = Literal["keep", "mark", "source", "empty"]
BELOW_CHOICES: tuple[Below, ...] = get_args(Below)
DEFAULT_MIN_CONFIDENCE = 0.5
LOW_CONFIDENCE_MARK = "[?] "


@dataclass(frozen=True)
class ConfidencePolicy:
    """A threshold, and what becomes of translations below it. Without a confidence nothing is below it.

    keep    the translation, as it is
    mark    LOW_CONFIDENCE_MARK and the translation
    source  the source text
    empty   nothing
    """

    min_confidence: float = DEFAULT_MIN_CONFIDENCE
    below: Below = "keep"

    def __post_init__(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise RequestError(f"the minimum confidence is {self.min_confidence:g}, but must be from 0 to 1")
        if self.below not in BELOW_CHOICES:
            *others, last = BELOW_CHOICES
            raise RequestError(
                f"what to do below the minimum confidence is {self.below!r}, but must be {', '.join(others)} "
                f"or {last}"
            )

    def is_below(self, translation: Translation) -> bool:
        return translation.confidence is not None and translation.confidence < self.min_confidence

    def choose_text(self, translation: Translation) -> str:
        """Return the text that stands for a translation."""
        if self.below == "keep" or not self.is_below(translation):
            return translation.text
        if self.below == "mark":
            return LOW_CONFIDENCE_MARK + translation.text
        return translation.source if self.below == "source" else ""

    def apply(self, translation: Translation) -> Translation:
        """Return the translation with the text that stands for it. Tokens and scores remain."""
        text = self.choose_text(translation)
        return translation if text == translation.text else replace(translation, text=text)

    def describe(self, num_below: int, num_lines: int) -> str:
        """Return a summary: 12 of 3,000 lines below confidence 0.5."""
        actions = {
            "keep": "",
            "mark": f" begin with {LOW_CONFIDENCE_MARK.strip()}",
            "source": " are left in the source language",
            "empty": " are left empty",
        }
        noun = "line" if num_lines == 1 else "lines"
        counted = f"{num_below:,} of {num_lines:,} {noun} below confidence {self.min_confidence:g}"
        return counted + actions[self.below]


@dataclass
class ConfidenceCounts:
    """How many of the translations so far are below the threshold of a policy."""

    num_lines: int = 0
    num_below: int = 0
    num_foreign: int = 0  # that look like another language, and were not translated

    def add(self, translations: Sequence[Translation], policy: ConfidencePolicy) -> None:
        limit = policy.min_confidence
        confidences = [translation.confidence for translation in translations]
        self.num_lines += len(confidences)
        self.num_below += sum([value is not None and value < limit for value in confidences])
        self.num_foreign += sum(
            [not translation.sentences and is_foreign(translation) for translation in translations]
        )

    def merge(self, other: "ConfidenceCounts") -> None:
        self.num_lines += other.num_lines
        self.num_below += other.num_below
        self.num_foreign += other.num_foreign


def is_foreign(translation: Translation) -> bool:
    """Return whether a text was found to be in another language."""
    return any(note.startswith(LOOKS_LIKE) for note in translation.notes)


def describe_foreign(num_foreign: int, num_lines: int) -> str:
    """Return a summary: 2 of 3,000 lines look like another language and are copied."""
    noun, looks, is_ = ("line", "looks", "is") if num_lines == 1 else ("lines", "look", "are")
    return f"{num_foreign:,} of {num_lines:,} {noun} {looks} like another language and {is_} copied"
