"""Copy symbols in place of text that is copied, and checks that a model has copied it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from manyheads.text.verbatim import COPY_SYMBOLS, IMPORTANCE, Category, Span, strip_marks

CODES: frozenset[Category] = frozenset(("address", "code"))
WORD_CHARACTER = re.compile("[!-~]")  # ASCII without white space
WORD = re.compile(f"{WORD_CHARACTER.pattern}*")
SYMBOL = re.compile(r"\u27e6([0-7])\u27e7")
ANY_SYMBOL = re.compile(r"\u27e6[0-7t=/]\u27e7")  # those of terms too
# Spaces that subwords put between a bracket or a mark and a symbol.
SPACED_SYMBOL = re.compile(r"(?<=[(\[{“‘「『]) (?=\u27e6[0-7]\u27e7)|(?<=\u27e7) (?=[.,)\]}”’」』])")


def mask(text: str, spans: Sequence[Span]) -> tuple[str, list[str]]:
    """Replace spans by copy symbols, in order. Return the text and the values of the symbols."""
    parts, values, position = [], [], 0
    for symbol, span in zip(COPY_SYMBOLS, spans, strict=False):
        parts += [text[position : span.start], symbol]
        values.append(text[span.start : span.end])
        position = span.end
    return "".join([*parts, text[position:]]), values


def select_masked(spans: Sequence[Span]) -> list[Span]:
    """Return as many spans as there are symbols, the most important first, in the order of the text."""
    if len(spans) <= len(COPY_SYMBOLS):
        return list(spans)
    ranked = sorted(spans, key=lambda span: (IMPORTANCE.index(span.category), span.start))
    return sorted(ranked[: len(COPY_SYMBOLS)])


def has_all_symbols(text: str, count: int) -> bool:
    """Return whether each of the first symbols occurs once, and no other."""
    return sorted(SYMBOL.findall(text)) == [str(index) for index in range(count)]


def unmask(text: str, values: Sequence[str]) -> str:
    """Replace the symbols by their values. Spaces stay, but for those beside brackets and before marks."""
    text = SPACED_SYMBOL.sub("", text)
    return SYMBOL.sub(lambda match: values[int(match[1])], text)


def split_at(text: str, spans: Sequence[Span]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text, and whether each is one of the spans."""
    position = 0
    for span in spans:
        if position < span.start:
            yield text[position : span.start], False
        yield text[span.start : span.end], True
        position = span.end
    if position < len(text):
        yield text[position:], False


def join_codes(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return the spans with addresses and codes of one word made one: letters between them mean nothing."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and {last.category, span.category} <= CODES and WORD.fullmatch(text, last.end, span.start):
            joined[-1] = Span(last.start, span.end, last.category)
        else:
            joined.append(span)
    return joined


def extend_to_word(text: str, span: Span) -> Span:
    """Return the span with the rest of its word, but for the marks of the sentence around it."""
    start, end = span.start, span.end
    while start > 0 and WORD_CHARACTER.match(text[start - 1]):
        start -= 1
    while end < len(text) and WORD_CHARACTER.match(text[end]):
        end += 1
    word = text[start : span.start].lstrip("\"'([{")
    return Span(span.start - len(word), span.end + len(strip_marks(text[span.end : end])), span.category)


# ---- checks of text that a model has copied by itself

DIGITS = re.compile(r"\d+")
DIGIT_SEPARATORS = re.compile(r"(?<=\d)[.,'’\u00a0\u202f ](?=\d)")


def find_missing(output: str, values: Sequence[tuple[str, Category]]) -> list[str]:
    """Return which values an output lacks. Numbers may be written as in another language: 1.234,56."""
    counts = Counter(value for value, category in values if category != "number")
    missing = [value for value, count in counts.items() if output.count(value) < count]
    numbers = [value for value, category in values if category == "number"]
    if numbers:
        groups = Counter(DIGITS.findall(output))
        joined = Counter(DIGITS.findall(DIGIT_SEPARATORS.sub("", output)))
        for value in numbers:
            own = Counter(DIGITS.findall(value))
            digits = "".join(DIGITS.findall(value))
            if not own <= groups and joined[digits] <= 0:
                missing.append(value)
            groups -= own
            joined[digits] -= 1
    return missing
