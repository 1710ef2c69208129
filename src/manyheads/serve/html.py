"""HTML with its words translated and its tags in place.

The rule. Tags, comments, and all inside script, style, code, pre and their like, or marked translate="no" or
class="notranslate", come out as they went in, to the character. Text between two block-level tags (any tag
that INLINE does not name) is translated as one. The inline tags in it are put around the words that came from
the words that they stood around, by the alignment: each pair comes out once, nested as before, and if nothing
came of its words it is empty. Without an alignment, or where inline tags do not pair up, the text between any
two tags is translated by itself. Entities are read as what they stand for, and written where HTML needs them.
Nothing is malformed: what is no tag is text.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape

from manyheads.translator import Translation

INLINE = (
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong "
    "sub sup time tt u"
)
VERBATIM = "script style code pre kbd samp var textarea svg math template object"
INLINE_NAMES, VERBATIM_NAMES = frozenset(INLINE.split()), frozenset(VERBATIM.split())
VOID_NAMES = frozenset(["area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"])
RAW_TEXT_NAMES = frozenset(["script", "style", "textarea"])  # in which there are no tags but their own end
# Quantifiers are possessive (`*+`): whatever is sent, no letter is read over and over again.
START = re.compile(r"<(?:(?=[!?])|(?P<closing>/?)(?P<name>[a-zA-Z][^\s/><]*+))")
COMMENT = r"<!--(?:-?>|.*?(?:--!?>|\Z))"  # as the HTML standard ends them
ASIDE = re.compile(rf"{COMMENT}|<[!?][^>]*+(?:>|\Z)", re.DOTALL)
ATTRIBUTE = re.compile(
    r"""(?P<key>[^\s/>][^\s/>=]*+)
        (?:\s*+=\s*+(?P<value>"[^"]*+"|'[^']*+'|(?!["'])[^\s>]++|(?=>)))?+""",
    re.VERBOSE,
)
REST = re.compile(rf"(?:[\s/]++|{ATTRIBUTE.pattern})*+>", re.VERBOSE)
MAX_DEPTH = 20  # inline tags in each other that are still followed
SEARCH_WINDOW = 20  # characters ahead in which a token is looked for
# Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
NO_SPACES = re.compile(r"[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u3400-\u9FFF\uF900-\uFAFF]")


@dataclass(frozen=True)
class HtmlToken:
    raw: str
    name: str = ""  # none: a comment, or what is not touched
    is_closing: bool = False
    text: str | None = None  # of a run of text, with its entities read

    @property
    def is_inline(self) -> bool:
        return self.name in INLINE_NAMES


@dataclass
class InlineElement:
    """A pair of inline tags, and which characters of its block's text stand between them."""

    opening: str
    start: int
    end: int = 0
    closing: str = ""
    children: "list[InlineElement]" = field(default_factory=list)


@dataclass
class TextBlock:
    """Text that is translated as one, and the inline tags in it."""

    before: str  # white space
    text: str
    after: str
    elements: list[InlineElement]


class HtmlDocument:
    """A page in parts. `texts` are to be translated; `filled` puts their translations in."""

    def __init__(self, page: str, whole_blocks: bool = True) -> None:
        self.parts: list[str | TextBlock] = []
        run: list[HtmlToken] = []
        for tag in tokenize(page):
            if tag.text is not None or tag.is_inline:
                run.append(tag)
                continue
            self.parts += make_blocks(run, whole_blocks)
            self.parts.append(tag.raw)
            run = []
        self.parts += make_blocks(run, whole_blocks)

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.parts if isinstance(part, TextBlock)]

    def render(self, translations: Sequence[Translation]) -> str:
        answers = iter(translations)
        return "".join(
            part if isinstance(part, str) else render_block(part, next(answers)) for part in self.parts
        )


# ---- from a page to blocks


def tokenize(page: str) -> Iterator[HtmlToken]:
    """Runs of text, tags, and what is not touched as a whole; joined again they are the page."""
    start = 0
    ends = TagEndFinder(page)
    at = 0  # where the next tag may begin
    while found := START.search(page, at):
        end = ends.find(found)
        if end is None:  # it is text
            at = found.end()
            continue
        if found.start() > start:
            yield make_text_token(page[start : found.start()])
        name, rest = (found["name"] or "").lower(), page[found.end() : end - 1]
        alone = name in VOID_NAMES or rest.endswith("/")
        opens = bool(name) and not found["closing"] and not alone
        if opens and (name in VERBATIM_NAMES or is_not_translated(rest)):
            at = find_element_end(page, name, end)
            yield HtmlToken(page[found.start() : at])
        else:
            at = end
            yield HtmlToken(page[found.start() : end], name, bool(found["closing"]))
        start = at
    if start < len(page):
        yield make_text_token(page[start:])


class TagEndFinder:
    """Where tags end. A page whose quotes never end is read to its end once, and not for each tag."""

    def __init__(self, page: str) -> None:
        self.page, self.last = page, page.rfind(">")
        self.quotes = True  # whether a > in quotes does not count

    def find(self, start: "re.Match[str]") -> int | None:
        """None: it is no tag."""
        if start["name"] is None:
            aside = ASIDE.match(self.page, start.start())
            return aside.end() if aside else None
        if start.end() > self.last:
            return None
        if self.quotes and (rest := REST.match(self.page, start.end())):
            return rest.end()
        self.quotes = False
        return self.page.index(">", start.end()) + 1


def is_not_translated(attributes: str) -> bool:
    for found in ATTRIBUTE.finditer(attributes):
        value = (found["value"] or "").strip("\"'").lower()
        match found["key"].lower():
            case "translate" if value.strip() == "no":
                return True
            case "class" if "notranslate" in value.split():
                return True
    return False


def make_text_token(raw: str) -> HtmlToken:
    return HtmlToken(raw, text=unicodedata.normalize("NFC", unescape(raw)))


def find_element_end(page: str, name: str, start: int) -> int:
    """Behind the end tag that belongs to a start tag; the page's end where there is none."""
    kind = rf"{re.escape(name)}(?=[\s/>]|\Z)[^>]*+(?:>|\Z)"
    closing_only = rf"<(?P<closing>/){kind}"
    # There are sections of CDATA in pictures and formulas, and nowhere else.
    passed = rf"{COMMENT}|<!\[CDATA\[.*?(?:\]\]>|\Z)" if name in ("svg", "math") else COMMENT
    either = rf"(?P<passed>{passed})|<(?P<closing>/?){kind}"
    depth = 1
    pattern = re.compile(closing_only if name in RAW_TEXT_NAMES else either, re.I | re.S)
    for found in pattern.finditer(page, start):
        if name not in RAW_TEXT_NAMES and found["passed"]:
            continue
        depth += -1 if found["closing"] else 1
        if depth == 0:
            return found.end()
    return len(page)


def make_blocks(run: list[HtmlToken], whole_blocks: bool) -> list[str | TextBlock]:
    """Text and inline tags up to a block-level tag: one block, or one for each run of text."""
    has_tags = any(tag.text is None for tag in run)
    elements = build_inline_tree(run) if has_tags else []
    if elements is None or (has_tags and not whole_blocks):
        return [part for tag in run for part in ([tag.raw] if tag.text is None else make_blocks([tag], True))]
    # White space is one space, as a browser shows it; a line break would end a sentence.
    joined, places = collapse_whitespace("".join(tag.text or "" for tag in run))
    if not any(character.isalnum() for character in joined):
        return ["".join(tag.raw for tag in run)]
    text = joined.strip()
    lead = joined.index(text)
    for one in iterate_elements(elements):
        one.start, one.end = (min(max(places[at] - lead, 0), len(text)) for at in (one.start, one.end))
    return [TextBlock(joined[:lead], text, joined[lead + len(text) :], elements)]


def collapse_whitespace(text: str) -> tuple[str, list[int]]:
    """White space that a browser joins is one space; and where each character of the text went."""
    kept: list[str] = []
    places = []
    for character in text:
        space = character in " \t\r\n\f"
        places.append(len(kept))
        if space and kept and kept[-1] == " ":
            places[-1] -= 1
        else:
            kept.append(" " if space else character)
    return "".join(kept), [*places, len(kept)]


def build_inline_tree(run: list[HtmlToken]) -> list[InlineElement] | None:
    """The inline elements of a block as a tree; None where tags do not pair up, or are too deep."""
    roots: list[InlineElement] = []
    stack: list[tuple[str, InlineElement]] = []
    at = 0
    for tag in run:
        if tag.text is not None:
            at += len(tag.text)
        elif not tag.is_closing:
            element = InlineElement(tag.raw, at)
            (stack[-1][1].children if stack else roots).append(element)
            stack.append((tag.name, element))
        elif not stack or stack[-1][0] != tag.name or len(stack) > MAX_DEPTH:
            return None
        else:
            _, element = stack.pop()
            element.end, element.closing = at, tag.raw
    return None if stack else roots


def iterate_elements(elements: list[InlineElement]) -> Iterator[InlineElement]:
    for one in elements:
        yield one
        yield from iterate_elements(one.children)


# ---- from translations to a page


def render_block(block: TextBlock, found: Translation) -> str:
    text = found.text.strip()
    inside = escape_text(text) if not block.elements else TagPlacement(block, found, text).render()
    return escape_text(block.before) + inside + escape_text(block.after)


def escape_text(text: str) -> str:
    return escape(text, quote=False).replace("\xa0", "&nbsp;")


@dataclass
class TranslatedWord:
    """A word of the translation, or a sign, and where in the source its tokens came from."""

    start: int
    end: int
    origins: list[tuple[int, int]]


class TagPlacement:
    """Puts a block's inline tags around words of its translation."""

    def __init__(self, block: TextBlock, found: Translation, text: str) -> None:
        self.block, self.text = block, text
        sources = list(locate_tokens(block.text, found.source_tokens))
        origins: dict[int, list[tuple[int, int]]] = {}
        for source, target in found.alignment or []:
            origins.setdefault(target, []).append(sources[source])
        self.words = group_words(text, list(locate_tokens(text, found.tokens)), origins)

    def render(self) -> str:
        return self._render_span(
            self.block.elements, (0, len(self.block.text)), 0, len(self.words), 0, len(self.text)
        )

    def _render_span(
        self,
        elements: list[InlineElement],
        span: tuple[int, int],
        first: int,
        last: int,
        start: int,
        end: int,
    ) -> str:
        """The text from start to end, which has the words first to last, with the elements in it."""
        free = [True] * (last - first)
        chosen: list[tuple[int, int, int, InlineElement]] = []
        for order, one in enumerate(elements):
            if (one.start, one.end) == span and len(elements) == 1:
                inside = self._render_span(one.children, span, first, last, start, end)
                return one.opening + inside + one.closing
            low, high = self._find_interval(one, first, free)
            free[low:high] = [False] * (high - low)
            chosen.append((first + low, first + high, order, one))
        parts = []
        for low, high, _, one in sorted(chosen, key=lambda entry: entry[:3]):
            begins = self.words[low].start if low < last else end
            ends = self.words[high - 1].end if high > low else begins
            begins, ends = max(begins, start), max(ends, start)
            inside = self._render_span(one.children, (one.start, one.end), low, high, begins, ends)
            parts += [escape_text(self.text[start:begins]), one.opening, inside, one.closing]
            start = ends
        return "".join([*parts, escape_text(self.text[start:end])])

    def _find_interval(self, one: InlineElement, first: int, free: list[bool]) -> tuple[int, int]:
        """The free words in a row of which most came out of the element and fewest did not."""
        best, low, high, begin, total = 0.0, 0, 0, 0, 0.0
        nearest, place = len(self.block.text) + 1, len(free)
        for number, is_free in enumerate(free):
            origins = self.words[first + number].origins
            inside = sum(one.start < end and start < one.end for start, end in origins)
            gain = (2 * inside - len(origins)) / len(origins) if origins else -0.1
            total = total + gain if total > 0 else gain
            begin = begin if total != gain else number
            if not is_free:
                total = 0.0
            elif total > best:
                best, low, high = total, begin, number + 1
            behind = min((start for start, _ in origins if start >= one.start), default=nearest)
            if behind < nearest and is_free:
                nearest, place = behind, number
        return (low, high) if high > low and one.end > one.start else (place, place)


def locate_tokens(text: str, tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where each token stands in a text; one that cannot be found, as part of a letter, has no room."""
    at = 0
    for token in tokens:
        piece = token.replace("\u2581", " ").strip()
        found = text.find(piece, at, at + len(piece) + SEARCH_WINDOW) if piece else -1
        if found >= 0:
            yield found, found + len(piece)
            at = found + len(piece)
        else:
            yield at, at


def group_words(
    text: str, tokens: list[tuple[int, int]], origins: dict[int, list[tuple[int, int]]]
) -> list[TranslatedWord]:
    """Tokens joined as far as they are parts of a word."""
    found: list[TranslatedWord] = []
    for number, (start, end) in enumerate(tokens):
        came_from = origins.get(number, [])
        if found and (start == end or not is_word_boundary(text, found[-1].end, start)):
            found[-1].end = max(found[-1].end, end)
            found[-1].origins += came_from
        elif start < end:
            found.append(TranslatedWord(start, end, list(came_from)))
    return found


def is_word_boundary(text: str, end: int, start: int) -> bool:
    """Whether a word may end at one place and the next begin at the other."""
    if end != start:
        return True
    left, right = text[end - 1], text[start]
    return not (left.isalnum() and right.isalnum()) or bool(NO_SPACES.match(left) or NO_SPACES.match(right))
