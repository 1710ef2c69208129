"""Place the inline elements of a block around the words of its translation, by the alignment.

Where the engine gives no alignment, words are aligned with the same word of the source, if there is one, and
else by their position. The sentence is translated as a whole in either case.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manyheads.confidence_policy import LOW_CONFIDENCE_MARK, ConfidencePolicy
from manyheads.documents.inline import InlineElement, TextBlock
from manyheads.translation import Translation

MAX_SEARCHED = 64  # elements side by side for each of which all words are compared
SEARCH_WINDOW = 20  # characters ahead in which a token is searched
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
NO_SPACES = re.compile(r"[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u3400-\u9FFF\uF900-\uFAFF]")

WORD = re.compile(r"\w+|[^\w\s]")

Span = tuple[int, int]  # start and end of characters


@dataclass
class PlacedElement:
    """An element of a translation, and what is in it."""

    element: InlineElement
    parts: "list[Part]"


Part = str | PlacedElement


def place_translation(
    block: TextBlock, translation: Translation, policy: ConfidencePolicy | None = None
) -> list[Part]:
    """Return a translated block as text and elements; below the confidence of a policy, what that says."""
    below = policy.below if policy is not None and policy.is_below(translation) else "keep"
    if below == "source":
        return place_source(block)
    if below == "empty":
        return []
    text = translation.text.strip()
    parts: list[Part] = TagPlacement(block, translation, text).place() if block.elements else [text]
    return [LOW_CONFIDENCE_MARK, *parts] if below == "mark" else parts


def place_source(block: TextBlock) -> list[Part]:
    """Return a block as it was."""
    return place_source_span(block.text, block.elements, 0, len(block.text))


def place_source_span(text: str, elements: Sequence[InlineElement], start: int, end: int) -> list[Part]:
    parts: list[Part] = []
    for element in elements:
        own = place_source_span(text, element.children, element.start, element.end)
        parts += [text[start : element.start], PlacedElement(element, own)]
        start = element.end
    return [*parts, text[start:end]]


def render_markup(parts: Sequence[Part], escape: Callable[[str], str]) -> str:
    """Return text and elements in a format that is text itself."""
    rendered = []
    for part in parts:
        if isinstance(part, str):
            rendered.append(escape(part))
        else:
            element = part.element
            content = render_markup(part.parts, escape) if element.content is None else element.content
            rendered += [element.opening, content, element.closing]
    return "".join(rendered)


@dataclass
class TranslatedWord:
    """A word of the translation, and the source spans that its tokens are aligned with."""

    start: int
    end: int
    origins: list[Span]


class PlacedSpan(NamedTuple):
    """The words and characters of the translation that an element is placed around."""

    low: int  # the first word, counted from the first of the span that the element is in
    high: int
    order: int  # of the element in the source
    opens_at: int
    closes_at: int
    element: InlineElement


class TagPlacement:
    def __init__(self, block: TextBlock, translation: Translation, text: str) -> None:
        self.block, self.text = block, text
        self.copied: dict[str, int] = {}  # where the last copy of a text ends
        self.words = self._align(translation)
        self.starts, self.ends = [word.start for word in self.words], [word.end for word in self.words]
        # The words in the order of what they were translated from.
        self.by_origin = sorted(
            (start, number) for number, word in enumerate(self.words) for start, _ in word.origins
        )

    def _align(self, translation: Translation) -> list[TranslatedWord]:
        block, text = self.block, self.text
        if translation.alignment is None:
            return align_by_position(block.text, text)
        source_spans = list(locate_tokens(block.text, translation.source_tokens))
        origins: dict[int, list[Span]] = {}
        for source, target in translation.alignment:
            origins.setdefault(target, []).append(source_spans[source])
        return group_words(text, list(locate_tokens(text, translation.tokens)), origins)

    def place(self) -> list[Part]:
        """Return the translation with every element once, nested as in the source."""
        whole = (0, len(self.block.text))
        return self._place_span(self.block.elements, whole, 0, len(self.words), 0, len(self.text))

    def _place_span(
        self,
        elements: list[InlineElement],
        span: Span,
        first: int,
        last: int,
        start: int,
        end: int,
    ) -> list[Part]:
        """Return the text from start to end, which holds the words first to last, with these elements."""
        free = [True] * (last - first)
        placed: list[PlacedSpan] = []
        for order, element in enumerate(elements):
            if (element.start, element.end) == span and len(elements) == 1:
                own = self._place_span(element.children, span, first, last, start, end)
                return [PlacedElement(element, own)]
            interval = self._find_copy(element, first, free, start, end)
            if interval is None:
                find = self._find_interval if len(elements) <= MAX_SEARCHED else self._find_first_run
                low, high = find(element, first, free)
                opens_at = self.words[first + low].start if first + low < last else end
                closes_at = self.words[first + high - 1].end if high > low else opens_at
                interval = PlacedSpan(low, high, order, opens_at, closes_at, element)
            free[interval.low : interval.high] = [False] * (interval.high - interval.low)
            placed.append(interval._replace(order=order))
        parts: list[Part] = []
        for low, high, _, opens_at, closes_at, element in sorted(placed, key=lambda entry: entry[:3]):
            opens_at, closes_at = max(opens_at, start), max(closes_at, start)
            own_span = (element.start, element.end)
            words = first + low, first + high
            own = self._place_span(element.children, own_span, *words, opens_at, closes_at)
            parts += [self.text[start:opens_at], PlacedElement(element, own)]
            start = closes_at
        return [*parts, self.text[start:end]]

    def _find_copy(
        self, element: InlineElement, first: int, free: list[bool], start: int, end: int
    ) -> "PlacedSpan | None":
        """Return where the text of an element occurs in the translation unchanged.

        It must do so once, unless it is text that is kept as it is.
        """
        content = self.block.text[element.start : element.end]
        is_kept = element.content is not None
        if not content or (not is_kept and (len(content) < 2 or self.text.count(content, start, end) != 1)):
            return None
        # The same text is kept several times in the order of the source.
        opens_at = self.text.find(content, max(start, self.copied.get(content, 0)), end)
        while opens_at >= 0:
            closes_at = self.copied[content] = opens_at + len(content)
            covered = range(
                max(0, bisect_right(self.ends, opens_at) - first),
                min(len(free), bisect_left(self.starts, closes_at) - first),
            )
            is_word = not (is_inside_word(self.text, opens_at) or is_inside_word(self.text, closes_at))
            if is_word and covered and all(free[number] for number in covered):
                return PlacedSpan(covered[0], covered[-1] + 1, 0, opens_at, closes_at, element)
            opens_at = self.text.find(content, closes_at, end)
        return None

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

    def _find_first_run(self, element: InlineElement, first: int, free: list[bool]) -> tuple[int, int]:
        """Return the free words in a row from the first that came from the element, in little time."""
        begin = bisect_left(self.by_origin, (element.start, 0))
        end = bisect_left(self.by_origin, (element.end, 0))
        own = {number - first for _, number in self.by_origin[begin:end]}
        low = min((number for number in own if 0 <= number < len(free) and free[number]), default=None)
        if low is None:
            behind = self.by_origin[end][1] - first if end < len(self.by_origin) else len(free)
            insert_at = min(max(behind, 0), len(free))
            return insert_at, insert_at
        high = low
        while high < len(free) and high in own and free[high]:
            high += 1
        return low, high


def align_by_position(source: str, target: str) -> list[TranslatedWord]:
    """Align words with the same words of the source, and the others in order with those that are left."""
    source_words = list(WORD.finditer(source))
    same: dict[str, list[Span]] = {}
    for match in reversed(source_words):
        same.setdefault(match.group().casefold(), []).append(match.span())
    words = [TranslatedWord(*match.span(), []) for match in WORD.finditer(target)]
    for word in words:
        if spans := same.get(target[word.start : word.end].casefold()):
            word.origins.append(spans.pop())
    left = sorted(span for spans in same.values() for span in spans)
    others = [word for word in words if not word.origins]
    for index, word in enumerate(others):
        word.origins += [left[index * len(left) // len(others)]] if left else []
    return words


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


def is_inside_word(text: str, position: int) -> bool:
    """Whether letters of the same script stand before and behind a position."""
    left, right = text[max(position - 1, 0) : position], text[position : position + 1]
    return left.isalnum() and right.isalnum() and left.isascii() == right.isascii()


def is_word_boundary(text: str, end: int, start: int) -> bool:
    """Whether one word can end and the next begin at these positions."""
    if end != start:
        return True
    left, right = text[end - 1], text[start]
    return not (left.isalnum() and right.isalnum()) or bool(NO_SPACES.match(left) or NO_SPACES.match(right))
