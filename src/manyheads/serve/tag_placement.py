"""Place the inline tags of a block around the words of its translation, by the alignment."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from manyheads.serve.html_blocks import InlineElement, TextBlock
from manyheads.translation import Translation

SEARCH_WINDOW = 20  # characters ahead in which a token is searched
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
NO_SPACES = re.compile(r"[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u3400-\u9FFF\uF900-\uFAFF]")

Span = tuple[int, int]  # start and end of characters


def escape_text(text: str) -> str:
    return escape(text, quote=False).replace("\xa0", "&nbsp;")


@dataclass
class TranslatedWord:
    """A word of the translation, and the source spans that its tokens are aligned with."""

    start: int
    end: int
    origins: list[Span]


class TagPlacement:
    def __init__(self, block: TextBlock, translation: Translation, text: str) -> None:
        self.block, self.text = block, text
        source_spans = list(locate_tokens(block.text, translation.source_tokens))
        origins: dict[int, list[Span]] = {}
        for source, target in translation.alignment or []:
            origins.setdefault(target, []).append(source_spans[source])
        self.words = group_words(text, list(locate_tokens(text, translation.tokens)), origins)

    def render(self) -> str:
        """Return the translation as HTML: every element once, nested as in the source."""
        whole = (0, len(self.block.text))
        return self._render_span(self.block.elements, whole, 0, len(self.words), 0, len(self.text))

    def _render_span(
        self,
        elements: list[InlineElement],
        span: Span,
        first: int,
        last: int,
        start: int,
        end: int,
    ) -> str:
        """Render the text from start to end, which holds the words first to last, with these elements."""
        free = [True] * (last - first)
        placed: list[tuple[int, int, int, InlineElement]] = []
        for order, element in enumerate(elements):
            if (element.start, element.end) == span and len(elements) == 1:
                content = self._render_span(element.children, span, first, last, start, end)
                return element.opening + content + element.closing
            low, high = self._find_interval(element, first, free)
            free[low:high] = [False] * (high - low)
            placed.append((first + low, first + high, order, element))
        parts = []
        for low, high, _, element in sorted(placed, key=lambda entry: entry[:3]):
            opens_at = self.words[low].start if low < last else end
            closes_at = self.words[high - 1].end if high > low else opens_at
            opens_at, closes_at = max(opens_at, start), max(closes_at, start)
            own_span = (element.start, element.end)
            content = self._render_span(element.children, own_span, low, high, opens_at, closes_at)
            parts += [escape_text(self.text[start:opens_at]), element.opening, content, element.closing]
            start = closes_at
        return "".join([*parts, escape_text(self.text[start:end])])

    def _find_interval(self, element: InlineElement, first: int, free: list[bool]) -> tuple[int, int]:
        """Return the free words in a row with most origins inside the element and fewest outside.

        This is the maximum-sum interval. An element without words of its own gets an empty interval before
        the word that came from right behind it.
        """
        best, low, high, begin, total = 0.0, 0, 0, 0, 0.0
        nearest, insert_at = len(self.block.text) + 1, len(free)
        for number, is_free in enumerate(free):
            origins = self.words[first + number].origins
            inside = sum(element.start < end and start < element.end for start, end in origins)
            gain = (2 * inside - len(origins)) / len(origins) if origins else -0.1
            total = total + gain if total > 0 else gain
            begin = begin if total != gain else number
            if not is_free:
                total = 0.0
            elif total > best:
                best, low, high = total, begin, number + 1
            behind = min((start for start, _ in origins if start >= element.start), default=nearest)
            if behind < nearest and is_free:
                nearest, insert_at = behind, number
        has_words = high > low and element.end > element.start
        return (low, high) if has_words else (insert_at, insert_at)


def locate_tokens(text: str, tokens: Sequence[str]) -> Iterator[Span]:
    """Yield the span of each token in a text; one that is not found, as a part of a letter, is empty."""
    position = 0
    for token in tokens:
        piece = token.replace("\u2581", " ").strip()
        start = text.find(piece, position, position + len(piece) + SEARCH_WINDOW) if piece else -1
        if start >= 0:
            yield start, start + len(piece)
            position = start + len(piece)
        else:
            yield position, position


def group_words(
    text: str, token_spans: Sequence[Span], origins: dict[int, list[Span]]
) -> list[TranslatedWord]:
    """Join the tokens of each word."""
    words: list[TranslatedWord] = []
    for number, (start, end) in enumerate(token_spans):
        own_origins = origins.get(number, [])
        if words and (start == end or not is_word_boundary(text, words[-1].end, start)):
            words[-1].end = max(words[-1].end, end)
            words[-1].origins += own_origins
        elif start < end:
            words.append(TranslatedWord(start, end, list(own_origins)))
    return words


def is_word_boundary(text: str, end: int, start: int) -> bool:
    """Whether one word can end and the next begin at these positions."""
    if end != start:
        return True
    left, right = text[end - 1], text[start]
    return not (left.isalnum() and right.isalnum()) or bool(NO_SPACES.match(left) or NO_SPACES.match(right))
