"""Markdown: headings, paragraphs, list items and table cells are translated, code and links are kept.

markdown-it-py finds the blocks. Everything outside their texts keeps its bytes; a paragraph that was wrapped
becomes one line. markdown_inline.py reads and writes what is inside a block.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.html_document import HtmlDocument
from manyheads.documents.inline import RepeatedMarkup, TextBlock
from manyheads.documents.markdown_inline import REFERENCE, HardBreak, make_inline_parts, render_inline
from manyheads.errors import DataError, install_command
from manyheads.translation import Translation

FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
MARKER = re.compile(r"[-+*](?=\s)|#{1,6}(?=\s)|>|[-=_*]{3,}\s*\Z|~{3}")  # what would begin another block
NUMBER_MARKER = re.compile(r"(\d{1,9})([.)])(?=\s)")


@dataclass
class MarkdownBlock:
    """The text from start to end of the document, in parts: blocks to translate, and line breaks."""

    start: int
    end: int
    parts: list[Any]
    line_break: str = ""  # how a line of it is broken
    is_cell: bool = False  # of a table


@dataclass
class HtmlPart:
    start: int
    end: int
    page: HtmlDocument


@dataclass
class MarkdownDocument:
    text: str
    spans: list[MarkdownBlock | HtmlPart] = field(default_factory=list)  # in order

    def __post_init__(self) -> None:
        front_matter = FRONT_MATTER.match(self.text)
        skipped = front_matter.end() if front_matter else 0
        # markdown-it reads a lone carriage return as the end of a line, and NUL as U+FFFD.
        body = self.text[skipped:]
        self.line_starts = [skipped, *(skipped + end.end() for end in re.finditer(r"\r\n|\n|\r", body))]
        self.line_starts.append(len(self.text) + 1)
        self.repeated = RepeatedMarkup()
        self.position = skipped  # behind the last span
        for token, is_cell in parse_tokens(body):
            span = self._make_html(token) if token.type == "html_block" else self._make_block(token, is_cell)
            if span is not None:
                self.spans.append(span)
                self.position = span.end

    def _make_html(self, token: Any) -> HtmlPart | None:
        start, end = self.line_starts[token.map[0]], min(self.line_starts[token.map[1]], len(self.text))
        raw = self.text[start:end]
        is_plain = raw.split() == token.content.split()  # not inside a quotation
        return HtmlPart(start, end, HtmlDocument(raw)) if is_plain and start >= self.position else None

    def _make_block(self, token: Any, is_cell: bool) -> MarkdownBlock | None:
        """Return where the text of a token stands; None if that is not clear, and it is left as it is."""
        lines: list[str] = token.content.split("\n")
        starts = self.line_starts[token.map[0] :]
        if not lines[0] or len(starts) <= len(lines):
            return None
        start = self.text.find(lines[0], max(starts[0], self.position), starts[1])
        if start < 0 and is_cell:
            lines = [lines[0].replace("|", "\\|")]
            start = self.text.find(lines[0], max(starts[0], self.position), starts[1])
        last_start = start if len(lines) == 1 else self.text.rfind(lines[-1], *starts[len(lines) - 1 :][:2])
        if start < 0 or last_start < 0:
            return None
        end = last_start + len(lines[-1])
        line_break = ""
        if len(lines) > 1:
            second = self.text.find(lines[1], starts[1], starts[2])
            mark = "\\" if "\\\n" in token.content else "  "
            line_break = f"{mark}\n{self.text[starts[1] : second]}" if second >= 0 else " "
        return MarkdownBlock(
            start, end, make_inline_parts(token.children or [], self.repeated), line_break, is_cell
        )

    @property
    def texts(self) -> list[str]:
        texts: list[str] = []
        for span in self.spans:
            if isinstance(span, HtmlPart):
                texts += span.page.texts
            else:
                texts += [part.text for part in span.parts if is_translated(part)]
        return texts

    def render(self, translations: Sequence[Translation], policy: ConfidencePolicy | None = None) -> str:
        remaining, rendered, position = iter(translations), [], 0
        for span in self.spans:
            rendered.append(self.text[position : span.start])
            position = span.end
            if isinstance(span, HtmlPart):
                own = [next(remaining) for _ in span.page.texts]
                rendered.append(span.page.render(own, policy))
            elif any(map(is_translated, span.parts)):
                rendered.append(render_block(span, remaining, policy))
            else:
                rendered.append(self.text[span.start : span.end])
        return "".join([*rendered, self.text[position:]])


def is_translated(part: Any) -> bool:
    return isinstance(part, TextBlock) and part.is_translatable


def render_block(
    block: MarkdownBlock, translations: Iterator[Translation], policy: ConfidencePolicy | None
) -> str:
    parts = []
    for part in block.parts:
        if isinstance(part, HardBreak):
            parts.append(block.line_break or "<br>")
        elif isinstance(part, str):
            parts.append(part)
        else:
            translation = next(translations) if part.is_translatable else None
            parts.append(render_inline(part, translation, policy, block.is_cell))
    text = "".join(parts)
    if block.is_cell:
        return text
    return NUMBER_MARKER.sub(r"\1\\\2", text, count=1) if NUMBER_MARKER.match(text) else escape_marker(text)


def escape_marker(text: str) -> str:
    return f"\\{text}" if MARKER.match(text) else text


def parse_tokens(text: str) -> Iterator[tuple[Any, bool]]:
    """Yield the tokens of blocks with text, and whether each is a cell of a table."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise DataError(f"reading Markdown needs the extra `formats`: {install_command('formats')}") from None

    parser: Any = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.normalizeLink = str  # addresses are kept as they are written
    parser.validateLink = bool
    parser.core.ruler.after("block", "keep_labels", keep_labels)
    is_cell = False
    for token in parser.parse(text):
        if token.type in ("inline", "html_block"):
            yield token, is_cell
        is_cell = token.type in ("td_open", "th_open")


def keep_labels(state: Any) -> None:
    """Make links name the labels that they refer to, not the addresses of these."""
    for label, reference in state.env.get("references", {}).items():
        reference["href"], reference["title"] = f"{REFERENCE}{label}", ""
