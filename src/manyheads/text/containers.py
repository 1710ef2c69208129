"""Translators' files through translate-toolkit: TMX, gettext PO and XLIFF, a unit at a time.

The toolkit says what a unit holds; the walk over the file is ours, so that a memory of gigabytes is read as a
stream. Each reader gives the line of a unit with its source and target, or with why it has none.
"""

import re
from collections.abc import Iterator
from typing import IO, Any

from manyheads.config import CorpusConfig
from manyheads.errors import DataError
from manyheads.text.corpus import (
    BROKEN_FILE,
    INVALID_UTF8,
    MAX_LINE_BYTES,
    NO_LANGUAGE,
    UNFINISHED,
    InvalidTextError,
    UnreadableFileError,
    read_lines,
)
from manyheads.text.languages import get_base_language

Unit = tuple[int, tuple[str, str] | InvalidTextError]


def elements(stream: IO[bytes], file: str, *tags: str) -> Iterator[Any]:
    """Elements as they close, each forgotten after use with all that stands before it.

    Nothing outside of the file is read: an entity may stand for text, not for a file.
    """
    from lxml import etree

    try:
        for _, element in etree.iterparse(stream, tag=tags, resolve_entities=False, no_network=True):
            yield element
            element.clear()
            for node in (element, *element.iterancestors()):
                while node.getprevious() is not None:
                    del node.getparent()[0]
    except etree.XMLSyntaxError as fault:
        raise UnreadableFileError(file, fault, fault.lineno) from None


def tmx(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    from translate.storage.tmx import tmxunit

    for element in elements(stream, file, "{*}tu"):
        unit = tmxunit.createfromxmlElement(element)
        unit.namespace = namespace_of(element)
        texts: dict[str, str] = {}
        for node in unit.getlanguageNodes():  # of two in one language, the first
            texts.setdefault(language_of(node), unit.getNodeText(node) or "")
        source, target = (nearest(texts, language) for language in (corpus.source, corpus.target))
        if source is None or target is None:
            yield element.sourceline, InvalidTextError(NO_LANGUAGE, f"has {', '.join(texts) or 'none'}")
        else:
            yield element.sourceline, (texts[source], texts[target])


def namespace_of(element: Any) -> str | None:
    name: str = element.tag
    return name[1:].partition("}")[0] if name.startswith("{") else None


def language_of(node: Any) -> str:
    """TMX 1.4 writes xml:lang, 1.1 wrote lang."""
    found: str = node.get("{http://www.w3.org/XML/1998/namespace}lang") or node.get("lang") or ""
    return found.replace("_", "-").lower()


def nearest(languages: dict[str, str], wanted: str) -> str | None:
    """The language itself, or its nearest kin: en finds en-US, en-GB finds en, but pt-BR never pt-PT."""
    wanted = wanted.replace("_", "-").lower()
    kin = [
        code for code in languages if get_base_language(code) == wanted or code == get_base_language(wanted)
    ]
    return wanted if wanted in languages else next(iter(kin), None)


def xliff(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Versions 1.x (trans-unit) and 2.x (segment)."""
    from translate.storage.xliff import Xliff1Unit
    from translate.storage.xliff2 import Xliff2Unit

    for element in elements(stream, file, "{*}trans-unit", "{*}segment"):
        kind: Any = Xliff1Unit if element.tag.endswith("trans-unit") else Xliff2Unit
        unit = kind.createfromxmlElement(element)
        unit.namespace = namespace_of(element)
        source, target = text_of(unit.source_dom), text_of(unit.get_target_dom())
        stated = stated_languages(element)
        wanted = [get_base_language(corpus.source), get_base_language(corpus.target)]
        if target and unfinished(element):
            yield element.sourceline, InvalidTextError(UNFINISHED)
        elif [get_base_language(code) for code in stated] == wanted[::-1]:
            yield element.sourceline, (target, source)
        elif stated and [get_base_language(code) for code in stated] != wanted:
            yield element.sourceline, InvalidTextError(NO_LANGUAGE, f"translates {' into '.join(stated)}")
        else:
            yield element.sourceline, (source, target)


def text_of(node: Any) -> str:
    """The text of a source or target. Native code in it (%s, <b>) is text; what stands for code, a tag."""
    if node is None:
        return ""
    parts = [node.text or ""]
    for child in node:
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        mark = f"{name}{child.get('id') or ''}"
        inside = text_of(child)
        if name in ("g", "pc"):
            inside = f"<{mark}>{inside}</{mark}>"
        elif not inside and name in ("x", "bx", "ex", "ph", "bpt", "ept", "it", "sc", "ec"):
            inside = f"<{mark}/>"
        parts += [inside, child.tail or ""]
    return "".join(parts)


def unfinished(element: Any) -> bool:
    """By its state, where one is stated; for the toolkit, what nobody approved is unfinished."""
    target = element.find("{*}target")
    state = target.get("state") or element.get("state") or ""
    return state in ("new", "initial") or state.startswith("needs-") or element.get("approved") == "no"


def stated_languages(element: Any) -> list[str]:
    """What the file says that it translates from and into; nothing where it does not say both."""
    for node in element.iterancestors():
        found = [
            node.get("source-language") or node.get("srcLang"),
            node.get("target-language") or node.get("trgLang"),
        ]
        if all(found):
            return [str(code) for code in found]
    return []


def po(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Messages stand between empty lines; each is handed over alone, in UTF-8."""
    from translate.storage.poparser import PoParseError
    from translate.storage.pypo import pofile

    charset = "utf-8"
    for line, block in blocks(stream, file):
        if header := re.search(rb'^"Content-Type:[^\n]*charset=([-\w]+)', block, flags=re.M):
            charset = known_charset(header.group(1).decode(), file, line)
        try:
            text = block.decode(charset)
        except UnicodeDecodeError as fault:
            detail = f"byte 0x{block[fault.start]:02x} is not {charset}"
            yield line + block[: fault.start].count(b"\n"), InvalidTextError(INVALID_UTF8, detail)
            continue
        try:
            units = pofile.parsestring(CHARSET.sub(r"\1utf-8", text).encode()).units
        except (PoParseError, ValueError) as fault:
            yield line, InvalidTextError(BROKEN_FILE, str(fault))
            continue
        if not units and any(row and not row.startswith("#") for row in text.splitlines()):
            yield line, InvalidTextError(BROKEN_FILE, "a message without msgid or msgstr")
        for unit in units:
            yield from ((line, found) for found in message_pairs(unit))


CHARSET = re.compile(r'^("Content-Type:.*charset=)[-\w]+', flags=re.M)


def known_charset(name: str, file: str, line: int) -> str:
    if name == "CHARSET":  # an unfilled template
        return "utf-8"
    try:
        "".encode(name)
    except (LookupError, UnicodeError):
        raise DataError(
            f"{file}:{line}: unknown charset {name!r}: msgconv -t UTF-8 converts the file"
        ) from None
    return name


def blocks(stream: IO[bytes], file: str) -> Iterator[tuple[int, bytes]]:
    """Runs of lines between empty ones, each with the number of its first line."""
    held: list[bytes] = []
    size = number = 0
    for number, line in enumerate(read_lines(stream, file), 1):
        size += MAX_LINE_BYTES if line is None else len(line)
        if size >= MAX_LINE_BYTES:
            raise UnreadableFileError(file, ValueError("a message of a megabyte or more"), number)
        if line:
            held.append(line)
        elif held:
            yield number - len(held), b"\n".join(held)
            held, size = [], 0
    if held:
        yield number - len(held) + 1, b"\n".join(held)


def message_pairs(unit: Any) -> Iterator[tuple[str, str] | InvalidTextError]:
    """One pair; for a plural two: the singular with the first form, the plural with the last."""
    if unit.isheader() or not unit.source:
        return
    if unit.isobsolete() or unit.isfuzzy():
        yield InvalidTextError(UNFINISHED)
        return
    sources = [str(text) for text in getattr(unit.source, "strings", [unit.source])]
    targets = [str(text) for text in getattr(unit.target, "strings", [unit.target or ""])]
    yield sources[0], targets[0]
    if len(sources) > 1:
        yield sources[-1], targets[-1]
