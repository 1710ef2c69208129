"""Paragraphs of Word documents (.docx): body, headers, footers, footnotes and endnotes.

Text stands in runs, each with its formatting. Runs of the formatting that most of a paragraph has are plain
text of the block; other runs, links and tracked insertions are elements. References to notes, bookmarks and
comments move with the words; breaks, tabs, pictures and fields end a block.
"""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from manyheads.documents.inline import MAX_DEPTH, BlockBuilder, InlineElement, RepeatedMarkup
from manyheads.documents.odt_format import keep_xml_characters
from manyheads.documents.office_document import PlacedBlock
from manyheads.documents.office_package import OfficePackage, count_characters, import_etree, parse_xml
from manyheads.documents.placement import Part

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
CONTENT_TYPES = "[Content_Types].xml"
OVERRIDE = "{http://schemas.openxmlformats.org/package/2006/content-types}Override"
TRANSLATED_TYPES = ("document.main+xml", "header+xml", "footer+xml", "footnotes+xml", "endnotes+xml")
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

RUN, TEXT, RUN_PROPERTIES = f"{WORD}r", f"{WORD}t", f"{WORD}rPr"
CONTAINERS = tuple(f"{WORD}{name}" for name in ("p", "sdtContent", "fldSimple"))  # of runs
PROPERTIES = frozenset([f"{WORD}pPr", RUN_PROPERTIES])
WRAPPERS = frozenset(f"{WORD}{name}" for name in ("hyperlink", "ins", "smartTag", "moveTo"))
MOVING = frozenset(
    f"{WORD}{name}"
    for name in (
        "footnoteReference", "endnoteReference", "commentReference", "bookmarkStart", "bookmarkEnd",
        "commentRangeStart", "commentRangeEnd", "permStart", "permEnd",
    )
)  # fmt: skip
DROPPED = frozenset(f"{WORD}{name}" for name in ("proofErr", "lastRenderedPageBreak", "softHyphen"))
ORDINARY_FORMATTING = 1000  # characters of the formatting of a run that may be repeated as often as need be
IGNORED_FORMATTING = frozenset(f"{WORD}{name}" for name in ("lang", "noProof"))


@dataclass(frozen=True)
class RunNode:
    """A run whose text or child is written with its formatting."""

    properties: Any = field(compare=False)  # None: without any
    formatting: bytes = b""  # a key of the properties
    child: Any = None


@dataclass(frozen=True)
class WrapperNode:
    node: Any
    properties: Any  # of its plain text


class DocxFormat:
    def __init__(self) -> None:
        self.repeated = RepeatedMarkup()

    def list_parts(self, package: OfficePackage) -> list[str]:
        root = parse_xml(package.read(CONTENT_TYPES), f"{package.name}: {CONTENT_TYPES}")
        parts = [
            entry.get("PartName", "").lstrip("/")
            for entry in root.iter(OVERRIDE)
            if entry.get("ContentType", "").endswith(TRANSLATED_TYPES)
        ]
        return [part for part in dict.fromkeys(parts) if part in package.entries] or ["word/document.xml"]

    def find_paragraphs(self, root: Any) -> Iterator[Any]:
        for container in root.iter(*CONTAINERS):
            if container.tag == f"{WORD}p" or container.find(RUN) is not None:
                yield container

    def read(self, paragraph: Any) -> list[Any]:
        builder = BlockBuilder(self.repeated)
        self._read_content(paragraph, builder)
        return builder.finish()

    def _read_content(self, container: Any, builder: BlockBuilder) -> None:
        plain = find_main_formatting(container)
        for child in container:
            if child.tag == RUN:
                self._read_run(child, builder, plain)
            elif child.tag in WRAPPERS and builder.depth < MAX_DEPTH:
                main = find_main_run(child)
                wrapper = WrapperNode(child, get_properties(main))
                builder.open(InlineElement(node=wrapper, size=count_characters(child)))
                self._read_content(child, builder)
                builder.close()
            elif child.tag in MOVING:
                builder.add_element(InlineElement(node=child, content=""))
            elif child.tag not in PROPERTIES | DROPPED:
                builder.add_separator(child)  # content controls and fields are containers of their own

    def _read_run(self, run: Any, builder: BlockBuilder, plain: bytes) -> None:
        properties = get_properties(run)
        formatting = describe_formatting(properties)
        own = RunNode(properties, formatting)
        for child in run:
            if child.tag == TEXT or child.tag == f"{WORD}noBreakHyphen":
                text = "\u2011" if child.tag != TEXT else child.text or ""
                if formatting == plain:
                    builder.add_text(text)
                elif not builder.extend_element(text, own):  # Word splits runs as it likes
                    builder.add_element(InlineElement(node=own), text)
            elif child.tag in MOVING:
                builder.add_element(InlineElement(node=RunNode(properties, formatting, child), content=""))
            elif child.tag not in PROPERTIES | DROPPED:
                builder.add_separator(RunNode(properties, formatting, child))

    def write(self, paragraph: Any, contents: list[Any]) -> None:
        properties = get_properties(find_main_run(paragraph))
        for child in list(paragraph):
            if child.tag not in PROPERTIES:
                paragraph.remove(child)
        writer = RunWriter(self.repeated)
        for content in contents:
            if isinstance(content, PlacedBlock):
                writer.write_parts(paragraph, content.parts, properties)
            else:
                writer.append_node(paragraph, content)


class RunWriter:
    """Writes text and nodes as runs. What has the formatting of the last run goes on in it."""

    def __init__(self, repeated: RepeatedMarkup) -> None:
        self.repeated = repeated
        self.sizes: dict[Any, int] = {}  # characters of formatting
        self.last: tuple[Any, Any] = None, None  # the run that was written last, and its formatting

    def write_parts(self, parent: Any, parts: list[Part], properties: Any) -> None:
        for part in parts:
            if isinstance(part, str):
                self.append_text(parent, properties, part)
                continue
            node = part.element.node
            if part.element.content is not None:
                self.append_node(parent, node)
            elif isinstance(node, WrapperNode):
                wrapper = node.node.makeelement(node.node.tag, dict(node.node.attrib), node.node.nsmap)
                parent.append(wrapper)
                self.write_parts(wrapper, part.parts, node.properties)
            else:
                text = "".join(text for text in part.parts if isinstance(text, str))
                self.append_text(parent, node.properties, text)

    def append_node(self, parent: Any, node: Any) -> None:
        if isinstance(node, RunNode):
            self._find_run(parent, node.properties).append(node.child)
        else:
            parent.append(node)

    def append_text(self, parent: Any, properties: Any, text: str) -> None:
        if text:
            node = import_etree().SubElement(self._find_run(parent, properties), TEXT)
            node.set(XML_SPACE, "preserve")
            node.text = keep_xml_characters(text)

    def _find_run(self, parent: Any, properties: Any) -> Any:
        """Return the last run of the parent if it has this formatting, else a new one."""
        run, formatting = self.last
        if properties is not None and formatting is properties and is_last_child(run, parent):
            return run
        run = import_etree().SubElement(parent, RUN)
        if properties is not None:
            if properties not in self.sizes:
                self.sizes[properties] = sum(map(count_characters, properties.iter()))
            if self.sizes[properties] > ORDINARY_FORMATTING:
                self.repeated.add(self.sizes[properties])
            run.append(deepcopy(properties))
        self.last = run, properties
        return run


def is_last_child(node: Any, parent: Any) -> bool:
    return node.getparent() is parent and node.getnext() is None


def get_properties(run: Any) -> Any:
    return None if run is None else run.find(RUN_PROPERTIES)


def describe_formatting(properties: Any) -> bytes:
    """Return a key that is equal for equal formatting."""
    if properties is None:
        return b""
    etree = import_etree()
    children = [child for child in properties if child.tag not in IGNORED_FORMATTING]
    return b"".join(sorted(etree.tostring(child, method="c14n", with_tail=False) for child in children))


def find_main_run(container: Any) -> Any:
    """Return the first run with the formatting that most text of a container has; None without text."""
    lengths: Counter[bytes] = Counter()
    runs: dict[bytes, Any] = {}
    for run in container.iterchildren(RUN):
        key = describe_formatting(get_properties(run))
        lengths[key] += sum(len(text.text or "") for text in run.iterchildren(TEXT))
        runs.setdefault(key, run)
    return runs[max(lengths, key=lambda key: lengths[key])] if runs else None


def find_main_formatting(container: Any) -> bytes:
    return describe_formatting(get_properties(find_main_run(container)))
