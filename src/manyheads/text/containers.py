"""Translation formats: TMX, gettext PO and XLIFF, one unit at a time.

The extra `formats` brings lxml, which reads the XML as a stream, and polib, which reads PO messages. Each
reader yields the line of a unit with its source and target, or with the reason why it has none.
"""

import codecs
import re
from collections.abc import Iterator
from typing import IO, Any

from manyheads.config import CorpusConfig
from manyheads.errors import DataError
from manyheads.text.input_files import read_lines
from manyheads.text.invalid import (
    BROKEN_FILE,
    INVALID_UTF8,
    MAX_LINE_BYTES,
    NO_LANGUAGE,
    UNFINISHED,
    InvalidTextError,
    UnreadableFileError,
)
from manyheads.text.languages import get_base_language

Unit = tuple[int, tuple[str, str] | InvalidTextError]

XML = "http://www.w3.org/XML/1998/namespace"
PAIRED_CODES = ("g", "pc")  # inline elements that enclose text
SINGLE_CODES = ("x", "bx", "ex", "ph", "bpt", "ept", "it", "sc", "ec")


def iterate_elements(stream: IO[bytes], file: str, *tags: str) -> Iterator[Any]:
    """Yield elements as they close, and free each after use together with everything before it.

    External entities are not resolved, so nothing outside the file is read.
    """
    from lxml import etree

    try:
        for _, element in etree.iterparse(stream, tag=tags, resolve_entities=False, no_network=True):
            yield element
            element.clear()
            for node in (element, *element.iterancestors()):
                parent = node.getparent()  # None: before the root there are only comments
                while parent is not None and node.getprevious() is not None:
                    del parent[0]
    except etree.XMLSyntaxError as error:
        raise UnreadableFileError(file, error, error.lineno) from None


# ---- TMX


def read_tmx(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Read the units of a translation memory. If a unit has a language twice, the first one counts."""
    for element in iterate_elements(stream, file, "{*}tu"):
        texts: dict[str, str] = {}
        for variant in element.iterchildren("{*}tuv"):
            texts.setdefault(get_tmx_language(variant), get_segment_text(variant))
        source, target = (match_language(texts, language) for language in (corpus.source, corpus.target))
        if source is None or target is None:
            yield element.sourceline, InvalidTextError(NO_LANGUAGE, f"has {', '.join(texts) or 'none'}")
        else:
            yield element.sourceline, (texts[source], texts[target])


def get_tmx_language(variant: Any) -> str:
    """TMX 1.4 writes xml:lang, TMX 1.1 wrote lang."""
    language: str = variant.get(f"{{{XML}}}lang") or variant.get("lang") or ""
    return language.replace("_", "-").lower()


def get_segment_text(variant: Any) -> str:
    """Return all text of the segment, native codes included."""
    segment = next(variant.iterdescendants("{*}seg"), None)
    if segment is None:
        return ""
    text = str(segment.xpath("string()"))
    spaces = segment.xpath("ancestor-or-self::*[@xml:space][1]/@xml:space")
    return " ".join(text.split()) if spaces == ["default"] else text


def match_language(languages: dict[str, str], wanted: str) -> str | None:
    """Return the language or its nearest match: en matches en-US, en-GB matches en, pt-BR never pt-PT."""
    wanted = wanted.replace("_", "-").lower()
    if wanted in languages:
        return wanted
    base = get_base_language(wanted)
    return next((code for code in languages if get_base_language(code) == wanted or code == base), None)


# ---- XLIFF


def read_xliff(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Read the units of XLIFF 1.x (trans-unit) and the segments of XLIFF 2.x (segment)."""
    wanted = [get_base_language(corpus.source), get_base_language(corpus.target)]
    for element in iterate_elements(stream, file, "{*}trans-unit", "{*}segment"):
        source, target = (get_inline_text(element.find(f"{{*}}{side}")) for side in ("source", "target"))
        stated = get_stated_languages(element)
        languages = [get_base_language(code) for code in stated]
        if target and is_unfinished(element):
            yield element.sourceline, InvalidTextError(UNFINISHED)
        elif languages == wanted[::-1]:
            yield element.sourceline, (target, source)
        elif stated and languages != wanted:
            yield element.sourceline, InvalidTextError(NO_LANGUAGE, f"translates {' into '.join(stated)}")
        else:
            yield element.sourceline, (source, target)


def get_inline_text(node: Any) -> str:
    """Return the text of a source or target. Native code (%s, <b>) is text; an element that stands for code
    becomes a tag."""
    if node is None:
        return ""
    parts = [node.text or ""]
    for child in node:
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        tag = f"{name}{child.get('id') or ''}"
        content = get_inline_text(child)
        if name in PAIRED_CODES:
            content = f"<{tag}>{content}</{tag}>"
        elif not content and name in SINGLE_CODES:
            content = f"<{tag}/>"
        parts += [content, child.tail or ""]
    return "".join(parts)


def is_unfinished(element: Any) -> bool:
    """Return whether the state of a unit with a target says that it is not finished."""
    state = element.find("{*}target").get("state") or element.get("state") or ""
    return state in ("new", "initial") or state.startswith("needs-") or element.get("approved") == "no"


def get_stated_languages(element: Any) -> list[str]:
    """Return the source and target language that the file states, or nothing unless it states both."""
    for node in element.iterancestors():
        codes = [
            node.get("source-language") or node.get("srcLang"),
            node.get("target-language") or node.get("trgLang"),
        ]
        if all(codes):
            return [str(code) for code in codes]
    return []


# ---- PO

NAME_ENCODINGS = ("idna", "punycode")  # Python's codecs for names of hosts, which are no charsets
PO_CHARSET = re.compile(rb'^"Content-Type:[^\n]*charset=([-\w]+)', flags=re.M)
PO_LINE = re.compile(r'(?:#~\s+)?(?P<keyword>msg\w+(?:\[\d\])?\s+)?"(?:[^"\\]|\\.)*"\s*')


def read_po(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Read messages, which are separated by empty lines, in the charset that the header states."""
    charset = "utf-8"
    for line, block in split_blocks(stream, file):
        if header := PO_CHARSET.search(block):
            charset = check_charset(header.group(1).decode(), file, line)
        try:
            text = block.decode(charset)
        except UnicodeDecodeError as error:
            detail = f"byte 0x{block[error.start]:02x} is not {charset}"
            yield line + block[: error.start].count(b"\n"), InvalidTextError(INVALID_UTF8, detail)
            continue
        try:
            entries = parse_po_entries(text)
        except InvalidTextError as error:
            yield line, error
            continue
        for entry in entries:
            yield from ((line, unit) for unit in get_message_pairs(entry))


def split_blocks(stream: IO[bytes], file: str) -> Iterator[tuple[int, bytes]]:
    """Yield runs of lines between empty lines, each with the number of its first line."""
    block: list[bytes] = []
    size = number = 0
    for number, line in enumerate(read_lines(stream, file), 1):
        size += MAX_LINE_BYTES if line is None else len(line)
        if size >= MAX_LINE_BYTES:
            raise UnreadableFileError(file, ValueError("a message of a megabyte or more"), number)
        if line:
            block.append(line)
        elif block:
            yield number - len(block), b"\n".join(block)
            block, size = [], 0
    if block:
        yield number - len(block) + 1, b"\n".join(block)


def check_charset(name: str, file: str, line: int) -> str:
    if name == "CHARSET":  # a template whose header was not filled in
        return "utf-8"
    try:
        "".encode(name)
        is_known = codecs.lookup(name).name not in NAME_ENCODINGS
    except (LookupError, UnicodeError):
        is_known = False
    if not is_known:
        raise DataError(f"{file}:{line}: unknown charset {name!r}: msgconv -t UTF-8 converts the file")
    return name


class PoText(str):
    """Text that polib splits at line feeds alone, as gettext does."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self.split("\n")


def parse_po_entries(text: str) -> list[Any]:
    """Parse the messages of a block. polib accepts unclosed quotes and a missing msgstr: check them first."""
    import polib

    lines, keyword = [], ""
    for line in map(str.strip, text.split("\n")):
        if line.startswith("#,"):
            lines.append(f"#, {line[2:].strip() or 'no flag'}")
        elif match := PO_LINE.fullmatch(line):
            keyword = match["keyword"] or keyword
            lines.append(line)
        elif line and not line.startswith("#"):
            raise InvalidTextError(BROKEN_FILE, f"not a line of a PO file: {line[:100]}")
    if keyword and not keyword.startswith("msgstr"):
        raise InvalidTextError(BROKEN_FILE, "a message without msgstr")
    try:
        return list(polib.pofile(PoText("\n".join([*lines, ""])), encoding="utf-8"))
    except OSError as error:
        raise InvalidTextError(BROKEN_FILE, str(error)) from None


def get_message_pairs(entry: Any) -> Iterator[tuple[str, str] | InvalidTextError]:
    """Yield one pair, or two for a plural: the singular with the first form, the plural with the last."""
    if not entry.msgid:
        return
    if entry.obsolete or entry.fuzzy:
        yield InvalidTextError(UNFINISHED)
        return
    targets = [text for _, text in sorted(entry.msgstr_plural.items())] or [entry.msgstr]
    yield entry.msgid, targets[0]
    if entry.msgid_plural:
        yield entry.msgid_plural, targets[-1]
