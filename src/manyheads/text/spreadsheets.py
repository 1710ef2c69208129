"""Rows of spreadsheets: CSV as spreadsheets write it, and XLSX.

XLSX is read with zipfile and lxml, which TMX needs already: of the format, pairs need cells of text and
numbers only. The sheet is streamed; the table of strings that its cells refer to is held in memory.
"""

import csv
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import IO, Any

from manyheads.errors import DataError
from manyheads.text.containers import iterate_elements
from manyheads.text.input_files import read_lines
from manyheads.text.invalid import LINE_TOO_LONG, MAX_LINE_BYTES, InvalidTextError, UnreadableFileError

Rows = Iterator[tuple[int, list[str] | InvalidTextError]]

DELIMITERS = "\t;,"  # semicolons where the decimal point is a comma
SAMPLE_LINES = 20  # that the delimiter is found in
STATED_DELIMITER = re.compile(r"sep=([\t;,])\s*")  # the first line that some spreadsheets write
SHEET_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
COLUMN = re.compile("[A-Z]{1,3}")
MAX_STRINGS_BYTES = 4 << 30  # of the table of strings, as its archive states it
MAX_COLUMNS = 16_384  # of a sheet
NUMBER = re.compile("[0-9]{1,9}")
# What zipfile, its decompressors and get_row_number raise for a damaged file.
DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


def read_csv_rows(stream: IO[bytes], file: str) -> Rows:
    """Read the rows of a CSV with the line that each begins at. A cell in quotes may hold several lines."""
    lines = LineFeeder(read_lines(stream, file))
    first = list(islice(iter(lines), SAMPLE_LINES))
    delimiter = find_delimiter("".join(first))
    if first and (stated := STATED_DELIMITER.fullmatch(first[0].removeprefix("\ufeff"))):
        delimiter, first[0] = stated[1], "\n"
    reader = csv.reader(chain(first, lines), delimiter=delimiter)
    csv.field_size_limit(MAX_LINE_BYTES)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "field larger" not in str(error):
                raise UnreadableFileError(file, error, line) from None
            lines.take_long_line(reader.line_num)
            yield line, InvalidTextError(LINE_TOO_LONG, "a quote that is never closed?")
            continue
        if long_line := lines.take_long_line(reader.line_num):
            yield long_line, InvalidTextError(LINE_TOO_LONG)
        elif cells:
            yield line, cells


class LineFeeder:
    """Feeds lines of text to the CSV reader. Bytes that are not UTF-8 become surrogates, refused later."""

    def __init__(self, lines: Iterator[bytes | None]) -> None:
        self.lines = enumerate(lines, 1)
        self.long_lines: list[int] = []  # the numbers of those that the reader gets as empty ones

    def __iter__(self) -> Iterator[str]:
        for number, line in self.lines:
            if line is None:
                self.long_lines.append(number)
            yield (line or b"").decode("utf-8", "surrogateescape") + "\n"

    def take_long_line(self, last: int) -> int | None:
        """Return the first line up to `last` that was too long, and forget all of these."""
        numbers = [number for number in self.long_lines if number <= last]
        del self.long_lines[: len(numbers)]
        return numbers[0] if numbers else None


def find_delimiter(text: str) -> str:
    """Return the delimiter that all lines have equally often outside of quotes; else the most frequent."""
    lines = re.sub(r'"[^"]*"', "", text).splitlines()
    for delimiter in DELIMITERS:
        counts = {line.count(delimiter) for line in lines if line}
        if len(counts) == 1 and counts != {0}:
            return delimiter
    plain = "".join(lines)
    return max(reversed(DELIMITERS), key=plain.count)


# ---- XLSX


def read_xlsx_rows(file: str) -> Rows:
    """Read the rows of the first sheet, with their numbers."""
    try:
        with zipfile.ZipFile(file) as archive:
            strings = read_shared_strings(archive, file)
            with archive.open(find_first_sheet(archive, file)) as stream:
                for number, row in enumerate(iterate_elements(stream, file, "{*}row"), 1):
                    yield get_row_number(row.get("r"), number), list_cells(row, strings, file)
    except DAMAGES as error:
        raise UnreadableFileError(file, error) from None
    except OSError as error:
        if error.errno is None:  # of bz2, which calls damaged data so
            raise UnreadableFileError(file, error) from None
        raise DataError(f"{file}: {error.strerror}") from None


def read_shared_strings(archive: zipfile.ZipFile, file: str) -> list[str]:
    """Return the strings that cells refer to by number."""
    name = "xl/sharedStrings.xml"
    if name not in archive.namelist():
        return []
    if archive.getinfo(name).file_size > MAX_STRINGS_BYTES:
        raise DataError(f"{file}: more than {MAX_STRINGS_BYTES >> 30} GiB of text: save it as CSV")
    with archive.open(name) as stream:
        return [join_text(item) for item in iterate_elements(stream, file, "{*}si")]


def find_first_sheet(archive: zipfile.ZipFile, file: str) -> str:
    """Return the name of the first sheet's part in the archive."""
    try:
        with archive.open("xl/workbook.xml") as stream:
            sheet = next(
                element.get(SHEET_RELATION) for element in iterate_elements(stream, file, "{*}sheet")
            )
        with archive.open("xl/_rels/workbook.xml.rels") as stream:
            relations = iterate_elements(stream, file, "{*}Relationship")
            target = next(str(item.get("Target")) for item in relations if item.get("Id") == sheet)
    except (KeyError, StopIteration):
        raise DataError(f"{file}: not a spreadsheet of XLSX: has no sheet") from None
    name = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
    if name not in archive.namelist():
        raise DataError(f"{file}: its first sheet, {name}, is not in the file: save it again")
    return name


def get_row_number(reference: str | None, default: int) -> int:
    if not reference:
        return default
    if not NUMBER.fullmatch(reference):
        raise ValueError(f"a row with the number {reference[:20]!r}")
    return int(reference)


def list_cells(row: Any, strings: list[str], file: str) -> list[str]:
    """Return the texts of a row's cells; those that the row leaves out are empty."""
    cells: list[str] = []
    for cell in row.iterchildren("{*}c"):
        column = get_column(cell.get("r"), len(cells))
        if column >= MAX_COLUMNS:
            raise UnreadableFileError(file, ValueError(f"a cell in column {column + 1}"))
        cells.extend([""] * (column + 1 - len(cells)))
        cells[column] = get_cell_text(cell, strings, file)
    return cells


def get_column(reference: str | None, default: int) -> int:
    """Return the number of a column from 0: that of AB12 is 27."""
    letters = COLUMN.match(reference or "")
    if letters is None:
        return default
    number = 0
    for letter in letters[0]:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def get_cell_text(cell: Any, strings: list[str], file: str) -> str:
    if cell.get("t") == "inlineStr":
        return join_text(cell)
    value = next(cell.iterchildren("{*}v"), None)
    text = "" if value is None else value.text or ""
    if cell.get("t") != "s":
        return text
    number = int(text) if NUMBER.fullmatch(text.strip()) else len(strings)
    if number >= len(strings):
        raise UnreadableFileError(file, ValueError(f"string {text[:20]} is not in the file"))
    return strings[number]


def join_text(element: Any) -> str:
    """Return the text of all runs of an element, without the phonetic guides of Japanese."""
    runs: Iterable[Any] = element.iterdescendants("{*}t")
    return "".join(run.text or "" for run in runs if not run.getparent().tag.endswith("}rPh"))
