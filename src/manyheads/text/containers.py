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
    INVALID_UTF8,
    LONGEST_LINE,
    NO_LANGUAGE,
    UNFINISHED,
    BadText,
    Unreadable,
    lines_of,
)

Unit = tuple[int, tuple[str, str] | BadText]


def elements(stream: IO[bytes], file: str, *tags: str) -> Iterator[Any]:
    """Elements as they close, each forgotten after use. No entity is resolved and nothing outside is read."""
    from lxml import etree

    try:
        for _, element in etree.iterparse(stream, tag=tags, resolve_entities=False, no_network=True):
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]
    except etree.XMLSyntaxError as fault:
        raise Unreadable(file, fault, fault.lineno) from None


def tmx(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    from translate.storage.tmx import tmxunit

    for element in elements(stream, file, "{*}tu"):
        unit = tmxunit.createfromxmlElement(element)
        unit.namespace = namespace_of(element)
        texts = {language_of(node): unit.getNodeText(node) or "" for node in unit.getlanguageNodes()}
        source, target = (nearest(texts, language) for language in (corpus.source, corpus.target))
        if source is None or target is None:
            yield element.sourceline, BadText(NO_LANGUAGE, f"has {', '.join(texts) or 'none'}")
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
    """The language itself, or the first of its regions: en finds en-US, en-GB finds en."""
    wanted = wanted.replace("_", "-").lower()
    same = [code for code in languages if code.partition("-")[0] == wanted.partition("-")[0]]
    return wanted if wanted in languages else next(iter(same), None)


def xliff(stream: IO[bytes], file: str, corpus: CorpusConfig) -> Iterator[Unit]:
    """Versions 1.x (trans-unit) and 2.x (segment)."""
    from translate.storage.xliff import Xliff1Unit
    from translate.storage.xliff2 import Xliff2Unit

    for element in elements(stream, file, "{*}trans-unit", "{*}segment"):
        kind: Any = Xliff1Unit if element.tag.endswith("trans-unit") else Xliff2Unit
        unit = kind.createfromxmlElement(element)
        unit.namespace = namespace_of(element)
        source, target = unit.source or "", unit.target or ""
        if target and unfinished(element):
            yield element.sourceline, BadText(UNFINISHED)
        elif turned_round(element, file, corpus):
            yield element.sourceline, (target, source)
        else:
            yield element.sourceline, (source, target)


def unfinished(element: Any) -> bool:
    """By its state, where one is stated; for the toolkit, what nobody approved is unfinished."""
    target = element.find("{*}target")
    state = target.get("state") or element.get("state") or ""
    return state in ("new", "initial") or state.startswith("needs-") or element.get("approved") == "no"


def turned_round(element: Any, file: str, corpus: CorpusConfig) -> bool:
    """Whether the file translates the other way; one of other languages is refused."""
    stated = [language for node in element.iterancestors() for language in languages_stated(node)]
    pair = [language.partition("-")[0].lower() for language in stated]
    wanted = [code.partition("-")[0].lower() for code in (corpus.source, corpus.target)]
    if not pair or pair == wanted:
        return False
    if pair == wanted[::-1]:
        return True
    raise DataError(
        f"{file}:{element.sourceline}: translates {' into '.join(stated)}, "
        f"but {corpus.source} into {corpus.target} is asked for"
    )


def languages_stated(node: Any) -> list[str]:
    found = [
        node.get("source-language") or node.get("srcLang"),
        node.get("target-language") or node.get("trgLang"),
    ]
    return [str(code) for code in found] if all(found) else []


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
            yield line + block[: fault.start].count(b"\n"), BadText(INVALID_UTF8, detail)
            continue
        try:
            units = pofile.parsestring(CHARSET.sub(r"\1utf-8", text).encode()).units
        except (PoParseError, ValueError) as fault:
            raise Unreadable(file, fault, line) from None
        if not units and any(row and not row.startswith("#") for row in text.splitlines()):
            raise Unreadable(file, ValueError("a message without msgid or msgstr"), line)
        for unit in units:
            yield from ((line, found) for found in message_pairs(unit))


CHARSET = re.compile(r'^("Content-Type:.*charset=)[-\w]+', flags=re.M)


def known_charset(name: str, file: str, line: int) -> str:
    if name == "CHARSET":  # an unfilled template
        return "utf-8"
    try:
        "".encode(name)
    except LookupError:
        raise DataError(
            f"{file}:{line}: unknown charset {name!r}: msgconv -t UTF-8 converts the file"
        ) from None
    return name


def blocks(stream: IO[bytes], file: str) -> Iterator[tuple[int, bytes]]:
    """Runs of lines between empty ones, each with the number of its first line."""
    held: list[bytes] = []
    size = number = 0
    for number, line in enumerate(lines_of(stream, file), 1):
        size += LONGEST_LINE if line is None else len(line)
        if size >= LONGEST_LINE:
            raise Unreadable(file, ValueError("a message of a megabyte or more"), number)
        if line:
            held.append(line)
        elif held:
            yield number - len(held), b"\n".join(held)
            held, size = [], 0
    if held:
        yield number - len(held) + 1, b"\n".join(held)


def message_pairs(unit: Any) -> Iterator[tuple[str, str] | BadText]:
    """One pair; for a plural two: the singular with the first form, the plural with the last."""
    if unit.isheader() or not unit.source:
        return
    if unit.isobsolete() or unit.isfuzzy():
        yield BadText(UNFINISHED)
        return
    sources = [str(text) for text in getattr(unit.source, "strings", [unit.source])]
    targets = [str(text) for text in getattr(unit.target, "strings", [unit.target or ""])]
    yield sources[0], targets[0]
    if len(sources) > 1:
        yield sources[-1], targets[-1]
