"""Inside a block of Markdown: emphasis and links are elements; code, pictures and tags are kept."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.html_tokenizer import VOID_NAMES
from manyheads.documents.inline import MAX_DEPTH, BlockBuilder, InlineElement, RepeatedMarkup, TextBlock
from manyheads.documents.placement import place_source, place_translation, render_markup
from manyheads.translation import Translation

REFERENCE = "\0label:"  # before the label of a link, in place of an address
# What would be markup where it stands.
SPECIAL = re.compile(
    r"(?P<mark>`|\*(?=\S)|(?<=\S)\*|(?<!\w)_(?=\S)|(?<=\S)_(?!\w)|\](?=[(\[])|<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)"
    r"|\\(?=[!-/:-@\[-`{-~])|~(?=~)|!(?=\[))"
)
LINE_BREAK_TAG = re.compile(r"<br\b", re.IGNORECASE)
TAG = re.compile(r"<(?P<closing>/?)(?P<name>[A-Za-z][\w-]*)")
PLAIN_ADDRESS = re.compile(r"[^\s()<>\x00-\x1f]+")


class HardBreak:
    """The end of a line that is kept."""


def make_inline_parts(tokens: Sequence[Any], repeated: RepeatedMarkup) -> list[Any]:
    """Return blocks, and the line breaks between them, as HardBreak or as tags."""
    builder = BlockBuilder(repeated)
    is_address = False
    closing = find_closing_tags(tokens)
    closing_indices = set(closing.values())
    for index, token in enumerate(tokens):
        if token.type == "link_open" and token.markup == "autolink":
            is_address = True
        elif is_address:
            if token.type == "text":
                builder.add_element(InlineElement(content=f"<{token.content}>"), token.content)
            is_address = token.type != "link_close"
        elif token.type == "text":
            builder.add_text(token.content)
        elif token.type == "softbreak":
            builder.add_text(" ")
        elif token.type == "hardbreak":
            builder.add_separator(HardBreak())
        elif token.type == "code_inline":
            builder.add_element(InlineElement(content=render_code(token)), token.content)
        elif token.type == "image":
            picture = f"![{token.content}{render_address(token, 'src')}"
            builder.add_element(InlineElement(content=picture), token.content)
        elif token.type == "link_open":
            builder.open(InlineElement("[", closing=render_address(token, "href")))
        elif token.nesting > 0:
            builder.open(InlineElement(token.markup, closing=token.markup))
        elif token.nesting < 0:
            builder.close()
        elif LINE_BREAK_TAG.match(token.content):
            builder.add_separator(token.content)
        elif index in closing:
            builder.open(InlineElement(token.content, closing=tokens[closing[index]].content))
        elif index in closing_indices:
            builder.close()
        else:
            builder.add_element(InlineElement(content=token.content))
    return builder.finish()


def find_closing_tags(tokens: Sequence[Any]) -> dict[int, int]:
    """Return the index of the closing tag of each opening tag that has one at the same depth."""
    pairs: dict[int, int] = {}
    stack: list[tuple[str, int]] = []  # names and indices of what is open: tags and elements of Markdown
    for index, token in enumerate(tokens):
        tag = TAG.match(token.content) if token.type == "html_inline" else None
        if tag and tag["name"].lower() in VOID_NAMES:
            continue
        if token.nesting > 0 or (tag and not tag["closing"]):
            stack.append((tag["name"].lower() if tag else "", index))
        elif token.nesting < 0:
            while stack and stack.pop()[0]:  # tags that are not closed inside an element
                pass
        elif tag:
            inner = itertools.takewhile(lambda own: own[0], itertools.islice(reversed(stack), MAX_DEPTH))
            if tag["name"].lower() in [name for name, _ in inner]:
                while stack[-1][0] != tag["name"].lower():
                    stack.pop()
                pairs[stack.pop()[1]] = index
    return pairs


def render_code(token: Any) -> str:
    content: str = token.content
    has_ticks = content.startswith("`") or content.endswith("`")
    has_spaces = content.startswith(" ") and content.endswith(" ") and content.strip()
    space = " " if has_ticks or has_spaces else ""
    return f"{token.markup}{space}{content}{space}{token.markup}"


def render_address(token: Any, key: str) -> str:
    """Return what follows the text of a link or picture."""
    address, title = str(token.attrs.get(key, "")), str(token.attrs.get("title", "") or "")
    if address.startswith(REFERENCE):
        return f"][{address.removeprefix(REFERENCE).lower()}]"
    if not PLAIN_ADDRESS.fullmatch(address):
        address = "<{}>".format(re.sub(r"([<>\\])", r"\\\1", address)) if address else ""
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    return f']({address} "{quoted}")' if title else f"]({address})"


def render_inline(
    block: TextBlock, translation: Translation | None, policy: ConfidencePolicy | None, is_cell: bool
) -> str:
    parts = place_source(block) if translation is None else place_translation(block, translation, policy)
    text = render_markup([block.before, *parts, block.after], escape_markdown)
    return re.sub(r"(?<!\\)\|", r"\\|", text) if is_cell else text


def escape_markdown(text: str) -> str:
    return SPECIAL.sub(r"\\\g<mark>", text)
