"""Glossary files: lines with tabs, CSV as spreadsheets write it, and TBX (ISO 30042), as term bases write it.

A table may begin with a row of language codes, which say what its columns are; otherwise the first column is
the source. A TBX file is read in either direction: every term of the source language becomes the first term
of the target language that its concept does not deprecate.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manyheads.errors import DataError
from manyheads.text.containers import XML, iterate_elements, match_language
from manyheads.text.corpus import require_formats
from manyheads.text.input_files import open_input
from manyheads.text.invalid import InvalidTextError, UnreadableFileError
from manyheads.text.plain_lines import read_plain_lines
from manyheads.text.spreadsheets import read_csv_rows

MAX_TERMS = 100_000
MAX_TERM_LENGTH = 500  # characters of a term or its translation
SUFFIXES = (".tsv", ".txt", ".csv", ".tbx")
DEPRECATED = ("deprecatedTerm", "deprecatedTerm-admn-sts", "supersededTerm", "supersededTerm-admn-sts")

Rows = Iterator[tuple[int, list[str]]]


def read_terms(path: Path, source: str, target: str) -> dict[str, str]:
    """Read the terms of a file and their translations, for a pair of languages."""
    suffix = path.suffix.lower()
    if suffix == ".tbx":
        terms = dict(check_terms(path, read_tbx(path, source, target)))
    else:
        rows = read_csv(path) if suffix == ".csv" else read_tabs(path)
        terms = dict(check_terms(path, select_columns(path, rows, source, target)))
    if not terms:
        raise DataError(f"{path}: has no terms for {source} to {target}")
    return terms


def check_terms(path: Path, entries: Iterator[tuple[int, str, str]]) -> Iterator[tuple[str, str]]:
    """Yield terms with their translations. Refuse those that are too long, and too many of them."""
    for number, (line, source, target) in enumerate(entries, 1):
        if number > MAX_TERMS:
            raise DataError(f"{path}: has more than {MAX_TERMS:,} terms: split it into several glossaries")
        length = max(len(source), len(target))
        if length > MAX_TERM_LENGTH:
            raise DataError(
                f"{path}: line {line} has a term of {length:,} characters, but the maximum is "
                f"{MAX_TERM_LENGTH}"
            )
        yield source, target


# ---- tables


def read_tabs(path: Path) -> Rows:
    for number, line in enumerate(read_plain_lines(path), 1):
        if line.strip():
            yield number, line.split("\t")


def read_csv(path: Path) -> Rows:
    try:
        with open_input(str(path), lambda size: None) as stream:
            for line, cells in read_csv_rows(stream, str(path)):
                if isinstance(cells, InvalidTextError):
                    raise DataError(f"{path}: line {line}: {cells}")
                if any(cell.strip() for cell in cells):
                    yield line, cells
    except UnreadableFileError as error:
        raise DataError(f"{path}: {error}") from None


def select_columns(path: Path, rows: Rows, source: str, target: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the term and the translation of each row."""
    columns: tuple[int, int] | None = None
    for line, cells in rows:
        if columns is None:
            columns = find_language_columns(cells, source, target)
            if columns is not None:
                continue
            columns = 0, 1
        try:
            term, translation = (" ".join(cells[column].split()) for column in columns)
        except IndexError:
            term = translation = ""
        if not term or not translation:
            separator = "a tab" if path.suffix.lower() != ".csv" else "a separator"
            raise DataError(f"{path}: line {line} is not a term, {separator} and its translation")
        yield line, term, translation


def find_language_columns(header: list[str], source: str, target: str) -> tuple[int, int] | None:
    """Return the columns of both languages, if the first row names them."""
    codes = {cell.strip().replace("_", "-").lower(): column for column, cell in enumerate(header)}
    known = {code: code for code in codes if code}
    matches = match_language(known, source), match_language(known, target)
    return None if None in matches else (codes[str(matches[0])], codes[str(matches[1])])


# ---- TBX


def read_tbx(path: Path, source: str, target: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the term and the translation of each term of a concept (TBX 2 and 3)."""
    with require_formats(str(path), "TBX"):
        try:
            with open_input(str(path), lambda size: None, is_xml=True) as stream:
                for concept in iterate_elements(stream, str(path), "{*}termEntry", "{*}conceptEntry"):
                    yield from list_concept_terms(concept, source, target)
        except UnreadableFileError as error:
            raise DataError(f"{path}: not TBX, or damaged: {error}") from None


def list_concept_terms(concept: Any, source: str, target: str) -> Iterator[tuple[int, str, str]]:
    sections: dict[str, list[str]] = {}
    for section in concept.iterdescendants("{*}langSet", "{*}langSec"):
        code = str(section.get(f"{{{XML}}}lang") or "").replace("_", "-").lower()
        sections.setdefault(code, []).extend(list_section_terms(section))
    known = {code: code for code in sections}
    codes = match_language(known, source), match_language(known, target)
    if codes[0] is None or codes[1] is None or not sections[codes[1]]:
        return
    for term in sections[codes[0]]:
        yield concept.sourceline, term, sections[codes[1]][0]


def list_section_terms(section: Any) -> Iterator[str]:
    """Yield the terms of a language that are not deprecated."""
    for term in section.iterdescendants("{*}term"):
        notes = term.getparent().iterdescendants("{*}termNote")
        text = " ".join("".join(term.itertext()).split())
        if text and not any((note.text or "").strip() in DEPRECATED for note in notes):
            yield text
