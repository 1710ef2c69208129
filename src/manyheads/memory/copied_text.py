"""Sentences that differ only in numbers, addresses and other copied text, and their translations.

"Open page 12."  and  "Open page 340."  have the same frame. If a correction translates the first, its
translation with 340 in place of 12 is that of the second.
"""

import re
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from manyheads.text.languages import get_base_language
from manyheads.text.verbatim import Span, find_verbatim, merge_touching

NUMBER = re.compile(r"(?<![0-9A-Za-z.,])\d+(?:[.,:]\d+)*(?![0-9A-Za-z])")
# Where the form of a noun depends on the number before it, numbers are not exchanged.
NUMERAL_AGREEMENT = frozenset(
    (
        "ru",
        "uk",
        "be",
        "pl",
        "cs",
        "sk",
        "sl",
        "hr",
        "sr",
        "bs",
        "mk",
        "lt",
        "lv",
        "ar",
        "he",
        "ga",
        "cy",
        "mt",
    )
)
# Korean particles after a number, whose form depends on its last sound.
PARTICLES = frozenset("은는이가을를과와으로라")


class Frame(NamedTuple):
    """A text without its copied parts, and these."""

    text: str  # what two texts must share
    values: tuple[str, ...]
    has_numbers: bool


def find_frame(text: str) -> Frame:
    spans = [*find_verbatim(text), *(Span(*match.span(), "number") for match in NUMBER.finditer(text))]
    if not spans:
        return Frame(text, (), False)
    spans = merge_touching(sorted(spans))
    edges = [(0, 0), *((span.start, span.end) for span in spans), (len(text), len(text))]
    between = [text[end:start] for (_, end), (start, _) in pairwise(edges)]
    names = [f"\0{span.category}\0" for span in spans]
    values = tuple(text[span.start : span.end] for span in spans)
    frame = "".join(part + name for part, name in zip(between, [*names, ""], strict=True))
    return Frame(frame, values, any(span.category == "number" for span in spans))


def adapt_target(target: str, old: Frame, new: Frame, language: str) -> str | None:
    """Return a translation of `old` with the values of `new`; None if it is not clear where they belong.

    Each value that differs must be in the translation as often as in its source, and must differ in the same
    way wherever it occurs.
    """
    if old.text != new.text or len(old.values) != len(new.values):
        return None
    changes: dict[str, str] = {}
    for before, after in zip(old.values, new.values, strict=True):
        if changes.setdefault(before, after) != after:
            return None
    counts = Counter(old.values)
    changed = {before: after for before, after in changes.items() if before != after}
    if not changed:
        return target
    base = get_base_language(language)
    if base in NUMERAL_AGREEMENT and old.has_numbers:
        return None
    pattern = compile_values(changed)
    matches = list(pattern.finditer(target))
    if Counter(match.group() for match in matches) != {value: counts[value] for value in changed}:
        return None
    if base == "ko" and any(target[match.end() : match.end() + 1] in PARTICLES for match in matches):
        return None
    return pattern.sub(lambda match: changed[match.group()], target)


def compile_values(values: "dict[str, str]") -> "re.Pattern[str]":
    """Return a pattern of any of these, but not inside a longer word or number."""
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile(
        r"(?<![0-9A-Za-z])(?<!\d[.,])(?:"
        + "|".join(map(re.escape, longest_first))
        + r")(?![0-9A-Za-z]|[.,]\d)"
    )
