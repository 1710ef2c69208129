"""Split HTML into tags, text and verbatim elements, which concatenated give the page again.

HTML is never rejected as malformed: what is not a tag is text. Comments end as the HTML standard says; what
it reads as a comment by mistake, such as `</ em>`, and a tag that the end of the page cuts off are kept.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

INLINE_NAMES = frozenset(
    [
        "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i",
        "ins", "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time",
        "tt", "u",
    ]
)  # fmt: skip
VERBATIM_NAMES = frozenset(
    ["script", "style", "code", "pre", "kbd", "samp", "var", "textarea", "svg", "math", "template", "object"]
)
VOID_NAMES = frozenset(["area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"])
RAW_TEXT_NAMES = frozenset(["script", "style", "textarea"])  # they hold no tags but their own end tag
# Quantifiers are possessive (`*+`), so that no input makes the regular expressions backtrack.
TAG_START = re.compile(r"<(?:(?=[!?]|/[^a-zA-Z])|(?P<closing>/?)(?P<name>[a-zA-Z][^\s/><]*+))")
COMMENT = r"<!--(?:-?>|.*?(?:--!?>|\Z))"
DECLARATION = re.compile(rf"{COMMENT}|<[!?][^>]*+(?:>|\Z)|</[^>]*+>", re.DOTALL)
ATTRIBUTE = re.compile(
    r"""(?P<key>[^\s/>][^\s/>=]*+)
        (?:\s*+=\s*+(?P<value>"[^"]*+"|'[^']*+'|(?!["'])[^\s>]++|(?=>)))?+""",
    re.VERBOSE,
)
UNFINISHED_TAG = re.compile(
    r"""(?:\s++[\w:-]++\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s"'<>]*+))*+[\s/]*+\Z""", re.VERBOSE
)
TAG_REST = re.compile(rf"(?:[\s/]++|{ATTRIBUTE.pattern})*+>", re.VERBOSE)


@dataclass(frozen=True)
class HtmlToken:
    raw: str
    name: str = ""  # of a tag; empty for text, comments and verbatim elements
    is_closing: bool = False
    text: str | None = None  # of a text token, with its entities decoded

    @property
    def is_inline(self) -> bool:
        return self.name in INLINE_NAMES


def tokenize(page: str) -> Iterator[HtmlToken]:
    """Yield the tokens of a page. Elements that are not translated are one token with all they hold."""
    text_start = 0
    finder = TagEndFinder(page)
    position = 0  # from where the next tag is searched
    while match := TAG_START.search(page, position):
        end = finder.find(match)
        if end is None:  # not a tag
            position = match.end()
            continue
        if match.start() > text_start:
            yield make_text_token(page[text_start : match.start()])
        name, rest = (match["name"] or "").lower(), page[match.end() : end - 1]
        is_void = name in VOID_NAMES or rest.endswith("/")
        is_opening = bool(name) and not match["closing"] and not is_void
        if is_opening and (name in VERBATIM_NAMES or is_not_translated(rest)):
            position = find_element_end(page, name, end)
            yield HtmlToken(page[match.start() : position])
        else:
            position = end
            yield HtmlToken(page[match.start() : end], name, bool(match["closing"]))
        text_start = position
    if text_start < len(page):
        yield make_text_token(page[text_start:])


class TagEndFinder:
    """Finds the ends of tags. A page with an unclosed quote is read to its end once, not for each tag."""

    def __init__(self, page: str) -> None:
        self.page, self.last = page, page.rfind(">")  # the last one, behind which no tag ends
        self.has_valid_quotes = True  # until a quote is found that never ends

    def find(self, start: "re.Match[str]") -> int | None:
        """Return the position behind the tag that begins here; None if it is not a tag."""
        if start["name"] is None:
            if start.end() > self.last and self.page.startswith("</", start.start()):
                return None
            declaration = DECLARATION.match(self.page, start.start())
            return declaration.end() if declaration else None
        if start.end() > self.last:
            return len(self.page) if UNFINISHED_TAG.match(self.page, start.end()) else None
        if self.has_valid_quotes and (rest := TAG_REST.match(self.page, start.end())):
            return rest.end()
        self.has_valid_quotes = False
        return self.page.index(">", start.end()) + 1


def is_not_translated(attributes: str) -> bool:
    """Whether attributes hold translate="no" or the class notranslate."""
    for attribute in ATTRIBUTE.finditer(attributes):
        value = (attribute["value"] or "").strip("\"'").lower()
        match attribute["key"].lower():
            case "translate" if value.strip() == "no":
                return True
            case "class" if "notranslate" in value.split():
                return True
    return False


def make_text_token(raw: str) -> HtmlToken:
    return HtmlToken(raw, text=unicodedata.normalize("NFC", unescape(raw)))


def find_element_end(page: str, name: str, start: int) -> int:
    """Return the position behind the end tag of an element; the end of the page if there is none."""
    tag = rf"{re.escape(name)}(?=[\s/>]|\Z)[^>]*+(?:>|\Z)"
    # CDATA sections exist in SVG and MathML only.
    skipped = rf"{COMMENT}|<!\[CDATA\[.*?(?:\]\]>|\Z)" if name in ("svg", "math") else COMMENT
    if name in RAW_TEXT_NAMES:
        expression = rf"<(?P<closing>/){tag}"
    else:
        expression = rf"(?P<skipped>{skipped})|<(?P<closing>/?){tag}"
    depth = 1
    for match in re.compile(expression, re.I | re.S).finditer(page, start):
        if name not in RAW_TEXT_NAMES and match["skipped"]:
            continue
        depth += -1 if match["closing"] else 1
        if depth == 0:
            return match.end()
    return len(page)
