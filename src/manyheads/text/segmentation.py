"""A text in parts: what is translated, and what stands between and stays as it is.

    "  Hello. How are you?\n\n🙂"  ->  "  "  [Hello.]  " "  [How are you?]  "\n\n🙂"

Joined again the parts are the text to the character. Sentences are found by sentencex where it knows the
language. For Korean, and where sentencex is not installed, these are the rules: a sentence ends with . ! ? or
… and the quotes and brackets that close after it, before white space; with their full-width forms, before
anything. It does not end with a full stop after a single letter, after a number that begins it, or after one
of a few abbreviations.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

LINE_BREAKS = re.compile(r"(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])+")
CLOSING_MARKS = r"[\"'”’»›)\]}」』）】》〉]*+"
# A run of signs is looked at from its beginning only: a line of nothing but dots must not take forever.
SENTENCE_END = re.compile(
    rf"(?:(?<![.!?…])[.!?…]++{CLOSING_MARKS}(?=\s)|(?<![。！？])[。！？]++{CLOSING_MARKS})"
)
NOT_SENTENCE_END = re.compile(
    r"(?:^\s*\d{1,3}|(?:^|\s)(?:[^\W\d]|Mr|Mrs|Ms|Dr|Prof|St|No|vs|cf|e\.g|i\.e|etc|z\.B|bzw|ca|Nr))\.$",
    re.IGNORECASE,
)
# Where a sentence that is too long may be parted: behind punctuation rather than behind a word.
BREAK_PATTERNS = (
    re.compile(r"[;:—–؛；：]\s+|[；：]"),
    re.compile(r"[,،，、]\s+|[，、]"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True)
class Segment:
    """Some of a text."""

    text: str
    is_translatable: bool


def split_text(text: str, language: str | None) -> Iterator[Segment]:
    """A text's sentences, and what stands between them. Without a language each line is one sentence."""
    start = 0
    for found in LINE_BREAKS.finditer(text):
        yield from split_line(text[start : found.start()], language)
        yield Segment(found.group(), False)
        start = found.end()
    yield from split_line(text[start:], language)


def split_line(line: str, language: str | None) -> Iterator[Segment]:
    rest = line
    for sentence in [line] if language is None else split_sentences(line, language):
        yield from split_edges(sentence)
        rest = rest[len(sentence) :]
    assert not rest


def split_edges(text: str) -> Iterator[Segment]:
    """White space before, what is inside, white space after; as far as there is any."""
    inside = text.strip()
    start = text.index(inside) if inside else len(text)
    end = start + len(inside)
    for part in (
        Segment(text[:start], False),
        Segment(inside, has_words(inside)),
        Segment(text[end:], False),
    ):
        if part.text:
            yield part


def has_words(text: str) -> bool:
    """Whether there is anything to translate: a letter or a digit. Emoji and punctuation pass as they are."""
    return any(character.isalnum() for character in text)


def split_sentences(line: str, language: str) -> list[str]:
    """The sentences of a line with the white space around them: joined they are the line."""
    if language.partition("-")[0].lower() == "ko":
        return split_by_rules(line)
    try:
        from sentencex import segment
    except ImportError:
        return split_by_rules(line)
    try:
        return align_sentences(line, list(segment(language.partition("-")[0], line)))
    except UnicodeEncodeError:  # half a surrogate pair, which only Python's strings can hold
        return split_by_rules(line)


def align_sentences(line: str, found: list[str]) -> list[str]:
    """What a splitter found, each with the white space that follows it in the line."""
    starts, place = [], 0
    for sentence in found:
        inside = sentence.strip()
        if not inside:
            continue
        place = line.find(inside, place)
        if place < 0:  # the splitter changed the text: it is left whole
            return [line]
        starts.append(place)
        place += len(inside)
    bounds = [0, *starts[1:], len(line)]
    return [line[first:last] for first, last in pairwise(bounds)]


def split_by_rules(line: str) -> list[str]:
    """The rules above."""
    found, start = [], 0
    for end in SENTENCE_END.finditer(line):
        if end.end() < len(line) and not NOT_SENTENCE_END.search(line[start : end.end()]):
            gap = end.end() + len(line[end.end() :]) - len(line[end.end() :].lstrip())
            found.append(line[start:gap])
            start = gap
    return [*found, line[start:]]


# ---- sentences that are too long


def split_long_sentence(text: str, fits: Callable[[str], bool]) -> list[str]:
    """A sentence in parts that fit, as far as it can be parted: joined they are the sentence.

    It is parted nearest to its middle, behind a semicolon, colon or dash if there is one, else behind a
    comma, else between words.
    """
    if fits(text):
        return [text]
    place = find_break(text)
    if place is None:
        return [text]
    return [*split_long_sentence(text[:place], fits), *split_long_sentence(text[place:], fits)]


def find_break(text: str) -> int | None:
    inside = len(text.rstrip())
    for kind in BREAK_PATTERNS:
        places = [found.end() for found in kind.finditer(text, 1) if found.end() < inside]
        # A part of a few characters says nothing: those near the ends do not count while there is a choice.
        middle = [place for place in places if inside / 5 <= place <= inside * 4 / 5]
        if middle or (places and kind is BREAK_PATTERNS[-1]):
            return min(middle or places, key=lambda place: abs(place - inside / 2))
    return None


def split_in_halves(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halved between characters until the parts fit."""
    if fits(text) or len(text) < 2:
        return [text]
    middle = len(text) // 2
    return [*split_in_halves(text[:middle], fits), *split_in_halves(text[middle:], fits)]
