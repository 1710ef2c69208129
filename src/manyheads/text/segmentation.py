"""Splitting text into segments: sentences to translate, and what is between them and stays unchanged.

    "  Hello. How are you?\n\n🙂"  ->  "  "  [Hello.]  " "  [How are you?]  "\n\n🙂"

The concatenated segments are exactly the text. Sentences are found by sentencex if it knows the language. For
Korean, and if sentencex is not installed, by rules: a sentence ends with . ! ? or … and the quotes and
brackets that close after it, before white space; with their full-width forms, before anything. It does not
end with a full stop after a single letter, after a number at its start, or after one of a few abbreviations.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

LINE_BREAKS = re.compile(r"(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])+")
ADDRESS_MARKS = frozenset("/\\@#.,:;!?%&=+~|")  # with which no sentence begins
CLOSING_MARKS = r"[\"'”’»›)\]}」』）】》〉]*+"
# A run of marks is matched from its start only: a line of dots must not take quadratic time.
SENTENCE_END = re.compile(
    rf"(?:(?<![.!?…])[.!?…]++{CLOSING_MARKS}(?=\s)|(?<![。！？])[。！？]++{CLOSING_MARKS})"
)
# What stands before a dot that ends no sentence: a number at the start, or an abbreviation, which is searched
# in the last characters only.
NUMBERING = re.compile(r"\s*+\d{1,3}\.")
ABBREVIATION = re.compile(
    r"(?:^|\s)(?:[^\W\d]|Mr|Mrs|Ms|Dr|Prof|St|No|vs|cf|e\.g|i\.e|etc|z\.B|bzw|ca|Nr)\.$", re.IGNORECASE
)
ABBREVIATION_LENGTH = 6  # with the space before it and its dot
WHITE_SPACE = re.compile(r"\s*+")
# Where a long sentence may be split: after punctuation rather than between words.
BREAK_PATTERNS = (
    re.compile(r"[;:—–؛；：]\s+|[；：]"),
    re.compile(r"[,،，、]\s+|[，、]"),
    re.compile(r"\s+"),
)


class Segment(NamedTuple):
    """A part of a text."""

    text: str
    is_translatable: bool
    note: str | None = None  # why a text with words is not translated, where it is worth telling


def split_text(text: str, language: str | None) -> list[Segment]:
    """Return the sentences of a text and what is between them. Without a language each line is a sentence."""
    if not has_line_breaks(text):
        return split_line(text, language)
    segments, start = [], 0
    for line_break in LINE_BREAKS.finditer(text):
        segments += split_line(text[start : line_break.start()], language)
        segments.append(Segment(line_break.group(), False))
        start = line_break.end()
    return segments + split_line(text[start:], language)


def has_line_breaks(text: str) -> bool:
    """Return whether LINE_BREAKS occur in a text. Python's own lines are a faster way to know."""
    return bool(text) and text.splitlines() != [text]


def replace_line_breaks(text: str) -> str:
    """Make a text one line: runs of line breaks become a space."""
    return LINE_BREAKS.sub(" ", text) if has_line_breaks(text) else text


def split_line(line: str, language: str | None) -> list[Segment]:
    sentences = [line] if language is None else split_sentences(line, language)
    assert sum(map(len, sentences)) == len(line)
    return [segment for sentence in sentences for segment in split_edges(sentence)]


def split_edges(text: str) -> list[Segment]:
    """Return the white space before, the content and the white space after, unless empty."""
    content = text.strip()
    if len(content) == len(text):
        return [Segment(text, has_words(text))] if text else []
    start = text.index(content) if content else len(text)
    end = start + len(content)
    segments = (
        Segment(text[:start], False),
        Segment(content, has_words(content)),
        Segment(text[end:], False),
    )
    return [segment for segment in segments if segment.text]


def has_words(text: str) -> bool:
    """Return whether there is a letter or a digit to translate. Emoji and punctuation stay unchanged."""
    return text[:1].isalnum() or any(map(str.isalnum, text))


def split_sentences(line: str, language: str) -> list[str]:
    """Split a line into sentences with the white space after them. Concatenated they are the line."""
    splitter = load_splitter(language)
    if splitter is None:
        return split_by_rules(line)
    try:
        sentences = splitter(line)
    except UnicodeEncodeError:  # a lone surrogate, which only Python strings can hold
        return split_by_rules(line)
    return [line] if len(sentences) < 2 else align_sentences(line, sentences)


@lru_cache(maxsize=64)
def load_splitter(language: str) -> Callable[[str], list[str]] | None:
    """Return sentencex's function for a language, or None where our rules apply."""
    code = language.partition("-")[0]
    if code.lower() == "ko":
        return None
    try:
        from sentencex import segment
    except ImportError:
        return None
    return lambda line: list(segment(code, line))


def align_sentences(line: str, sentences: list[str]) -> list[str]:
    """Return the sentences of a splitter as slices of the line, each with the white space that follows it."""
    starts, position = [], 0
    for sentence in sentences:
        content = sentence.strip()
        if not content:
            continue
        position = line.find(content, position)
        if position < 0:  # the splitter changed the text: do not split
            return [line]
        if not is_inside_address(line, position):
            starts.append(position)
        position += len(content)
    bounds = [0, *starts[1:], len(line)]
    return [line[start:end] for start, end in pairwise(bounds)]


def is_inside_address(line: str, position: int) -> bool:
    """Return whether a full stop or the like before a position is followed by a mark of an address."""
    return line[max(0, position - 1) : position] in (".", "!", "?") and line[position] in ADDRESS_MARKS


def split_by_rules(line: str) -> list[str]:
    """Apply the rules above."""
    sentences, start = [], 0
    for match in SENTENCE_END.finditer(line):
        end = match.end()
        if end < len(line) and not is_inside_sentence(line, start, end):
            next_start = WHITE_SPACE.match(line, end).end()  # type: ignore[union-attr]
            sentences.append(line[start:next_start])
            start = next_start
    return [*sentences, line[start:]]


def is_inside_sentence(line: str, start: int, end: int) -> bool:
    """Whether a dot at `end` does not end the sentence that begins at `start`."""
    if NUMBERING.fullmatch(line, start, end):
        return True
    return ABBREVIATION.search(line[max(start, end - ABBREVIATION_LENGTH) : end]) is not None


# ---- long sentences


def split_long_sentence(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a sentence into parts that fit, as far as possible. Concatenated they are the sentence.

    It is split nearest to its middle, after a semicolon, colon or dash if there is one, else after a comma,
    else between words.
    """
    if fits(text):
        return [text]
    position = find_break(text)
    if position is None:
        return [text]
    return [*split_long_sentence(text[:position], fits), *split_long_sentence(text[position:], fits)]


def find_break(text: str) -> int | None:
    length = len(text.rstrip())
    for pattern in BREAK_PATTERNS:
        positions = [match.end() for match in pattern.finditer(text, 1) if match.end() < length]
        # Parts of a few characters are useless: breaks near the ends count only as a last resort.
        central = [position for position in positions if length / 5 <= position <= length * 4 / 5]
        if central or (positions and pattern is BREAK_PATTERNS[-1]):
            return min(central or positions, key=lambda position: abs(position - length / 2))
    return None


def split_in_halves(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split in halves between characters until the parts fit."""
    if fits(text) or len(text) < 2:
        return [text]
    middle = len(text) // 2
    return [*split_in_halves(text[:middle], fits), *split_in_halves(text[middle:], fits)]
