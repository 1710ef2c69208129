"""Paragraphs and headings of OpenDocument text (.odt).

Text stands in the paragraph itself, and formatting is a span around it. Notes, bookmarks and frames move with
the words; line breaks, tabs and wide spaces end a block.
"""

from collections.abc import Iterator
from typing import Any

from manyheads.documents.inline import MAX_DEPTH, BlockBuilder, InlineElement, RepeatedMarkup
from manyheads.documents.office_document import PlacedBlock
from manyheads.documents.office_package import OfficePackage, count_characters
from manyheads.documents.placement import Part

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")
WRAPPERS = frozenset(f"{TEXT}{name}" for name in ("span", "a", "ruby", "ruby-base", "meta"))
SEPARATORS = frozenset(f"{TEXT}{name}" for name in ("line-break", "tab", "s"))
TRACKED_CHANGES = f"{TEXT}tracked-changes"


class OdtFormat:
    def __init__(self) -> None:
        self.repeated = RepeatedMarkup()

    def list_parts(self, package: OfficePackage) -> list[str]:
        return ["content.xml", *(["styles.xml"] if "styles.xml" in package.entries else [])]

    def find_paragraphs(self, root: Any) -> Iterator[Any]:
        for paragraph in root.iter(*PARAGRAPHS):
            if next(paragraph.iterancestors(TRACKED_CHANGES), None) is None:
                yield paragraph

    def read(self, paragraph: Any) -> list[Any]:
        builder = BlockBuilder(self.repeated)
        self._read_content(paragraph, builder)
        return builder.finish()

    def _read_content(self, node: Any, builder: BlockBuilder) -> None:
        builder.add_text(node.text or "")
        for child in node:
            self._read_child(child, builder)
            builder.add_text(child.tail or "")

    def _read_child(self, child: Any, builder: BlockBuilder) -> None:
        if child.tag in WRAPPERS and builder.depth < MAX_DEPTH:
            builder.open(InlineElement(node=child, size=count_characters(child)))
            self._read_content(child, builder)
            builder.close()
        elif child.tag == f"{TEXT}s" and child.get(f"{TEXT}c", "1") == "1":
            builder.add_text(" ")
        elif child.tag == f"{TEXT}soft-page-break":
            pass  # where a page ended before the translation
        elif child.tag in SEPARATORS:
            builder.add_separator(child)
        else:
            builder.add_element(InlineElement(node=child, content=""))

    def write(self, paragraph: Any, contents: list[Any]) -> None:
        for child in list(paragraph):
            child.tail = None
            paragraph.remove(child)
        paragraph.text = None
        for content in contents:
            if isinstance(content, PlacedBlock):
                write_parts(paragraph, content.parts)
            else:
                append_node(paragraph, content)


def write_parts(parent: Any, parts: list[Part]) -> None:
    for part in parts:
        if isinstance(part, str):
            append_text(parent, part)
        elif part.element.content is not None:
            append_node(parent, part.element.node)
        else:
            node = part.element.node
            wrapper = node.makeelement(node.tag, dict(node.attrib), node.nsmap)
            parent.append(wrapper)
            write_parts(wrapper, part.parts)


def append_node(parent: Any, node: Any) -> None:
    node.tail = None
    parent.append(node)


def append_text(parent: Any, text: str) -> None:
    """Append text behind the last child."""
    text = keep_xml_characters(text)
    last = next(parent.iterchildren(reversed=True), None)  # len(parent) would count all
    if last is not None:
        last.tail = (last.tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def keep_xml_characters(text: str) -> str:
    """Drop control characters, which XML cannot hold; a translation of hostile text may have them."""
    return "".join(
        character
        for character in text
        if character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")
        if not "\ud800" <= character <= "\udfff"
    )
