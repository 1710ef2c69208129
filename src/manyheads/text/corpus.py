"""Readers of parallel text: every supported format becomes a stream of sentence pairs.

Nothing is lost silently: what is not a pair is yielded as an `InvalidRecord` with its file, line and reason.
Files are read as streams, so memory does not grow with them, and are split into lines at "\\n" alone.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import CorpusConfig, InputConfig
from manyheads.errors import ConfigError, DataError, install_command
from manyheads.text.input_files import open_input, read_lines, strip_compression_suffix
from manyheads.text.invalid import (
    BOTH_EMPTY,
    BROKEN_FILE,
    EMPTY_SOURCE,
    EMPTY_TARGET,
    NO_COUNTERPART,
    WRONG_COLUMNS,
    WRONG_JSON,
    InvalidRecord,
    InvalidTextError,
    UnreadableFileError,
    decode_line,
    join_lines,
)

FORMAT_BY_SUFFIX = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".tmx": "tmx",
    ".po": "po",
    ".pot": "po",
    ".xlf": "xliff",
    ".xliff": "xliff",
}


class SentencePair(NamedTuple):
    """A sentence, its translation, and the line of its file."""

    source: str
    target: str
    line: int


PairStream = Iterator[SentencePair | InvalidRecord]
ByteProgress = Callable[[int], None]  # called with the number of bytes read from disk since the last call


def read_pairs(
    input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress | None = None
) -> PairStream:
    """Read the pairs and the invalid records of an input."""
    file_format = detect_format(input_config)
    readers: dict[str, Callable[..., PairStream]] = {
        "plain": read_plain,
        "tsv": read_tsv,
        "csv": read_spreadsheet,
        "xlsx": read_spreadsheet,
        "jsonl": read_jsonl,
        "tmx": read_container,
        "po": read_container,
        "xliff": read_container,
    }
    is_plain = file_format == "plain"
    if is_plain != (len(input_config.files) == 2):
        wanted = "two files, source and target" if is_plain else "one file that holds both sides"
        raise ConfigError(
            f"{', '.join(input_config.files)}: read as {file_format}, which must be {wanted}; "
            f"plain files come in pairs, and `format` names what the suffix does not"
        )
    return readers[file_format](input_config, corpus, progress or (lambda size: None))


def detect_format(input_config: InputConfig) -> str:
    """Return the configured format, or the one of the suffix: train.txt.xz is plain, memory.tmx.gz is TMX."""
    if input_config.format != "auto":
        return input_config.format
    if len(input_config.files) == 2:
        return "plain"
    suffix = strip_compression_suffix(input_config.files[0]).suffix.lower()
    return FORMAT_BY_SUFFIX.get(suffix, "plain")


def make_pair(source: str, target: str, line: int) -> SentencePair:
    """Return a pair. Raise InvalidTextError if a side is empty or blank."""
    if source and not source.isspace() and target and not target.isspace():
        return SentencePair(source, target, line)
    if target and not target.isspace():
        raise InvalidTextError(EMPTY_SOURCE)
    raise InvalidTextError(EMPTY_TARGET if source and not source.isspace() else BOTH_EMPTY)


# ---- two aligned plain files


def read_plain(input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress) -> PairStream:
    source, target = files = input_config.files
    number = 0
    try:
        with open_input(source, progress) as source_stream, open_input(target, progress) as target_stream:
            streams = {source: read_lines(source_stream, source), target: read_lines(target_stream, target)}
            sides = zip_longest(streams[source], streams[target], fillvalue=NO_COUNTERPART)
            try:
                for number, (source_line, target_line) in enumerate(sides, 1):
                    if isinstance(source_line, str) or isinstance(target_line, str):
                        short, long = files if isinstance(source_line, str) else files[::-1]
                        extra = 1 + sum(1 for _ in sides)
                        yield from report_missing_counterparts(short, long, number, extra)
                        return
                    yield make_plain_pair(files, source_line, target_line, number)
            except UnreadableFileError as error:
                yield from report_after_break(error, number, files, streams)
    except UnreadableFileError as error:  # in both files, or at the very start
        yield InvalidRecord(error.file, number + 1, BROKEN_FILE, str(error))


def make_plain_pair(
    files: tuple[str, ...], source_line: bytes | None, target_line: bytes | None, line: int
) -> SentencePair | InvalidRecord:
    file = files[0]
    try:
        source = decode_line(source_line)
        file = files[1]
        target = decode_line(target_line)
        return make_pair(source, target, line)
    except InvalidTextError as error:
        if error.reason in (EMPTY_SOURCE, BOTH_EMPTY):
            file = files[0]
        return InvalidRecord(file, line, error.reason, error.detail)


def report_missing_counterparts(short: str, long: str, line: int, extra: int) -> Iterator[InvalidRecord]:
    """Report each of the extra lines of the longer file."""
    detail = f"{short} has {line - 1:,} lines, {long} {line - 1 + extra:,}"
    for number in range(line, line + extra):
        yield InvalidRecord(long, number, NO_COUNTERPART, detail)


def report_after_break(
    error: UnreadableFileError,
    number: int,
    files: tuple[str, ...],
    streams: dict[str, Iterator[bytes | None]],
) -> Iterator[InvalidRecord]:
    """Report the break of a file, and every line that the other file still has."""
    yield InvalidRecord(error.file, number + 1, BROKEN_FILE, str(error))
    other = files[1] if error.file == files[0] else files[0]
    if error.file == files[1]:  # the source line was read already
        yield InvalidRecord(other, number + 1, NO_COUNTERPART, f"{error.file} breaks off")
        number += 1
    for line, _ in enumerate(streams[other], number + 1):
        yield InvalidRecord(other, line, NO_COUNTERPART, f"{error.file} breaks off")


# ---- one record per line


def read_records(
    input_config: InputConfig, progress: ByteProgress, parse: Callable[[str], tuple[str, str] | None]
) -> PairStream:
    """Read a record per line. `parse` returns source and target, or None for a header line."""
    (file,) = input_config.files
    number = 0
    try:
        with open_input(file, progress) as stream:
            for number, line in enumerate(read_lines(stream, file), 1):
                try:
                    if sides := parse(decode_line(line)):
                        yield make_pair(*sides, number)
                except InvalidTextError as error:
                    yield InvalidRecord(file, number, error.reason, error.detail)
    except UnreadableFileError as error:
        yield InvalidRecord(file, number + 1, BROKEN_FILE, str(error))


def read_tsv(input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress) -> PairStream:
    """Read columns by number from 1, or by their names in the first line."""
    select = ColumnSelector(input_config, corpus)
    return read_records(input_config, progress, lambda line: select(line.split("\t")))


def read_spreadsheet(input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress) -> PairStream:
    """Read the columns of a CSV or of the first sheet of an XLSX. Line feeds inside a cell become spaces."""
    from manyheads.text import spreadsheets

    (file,) = input_config.files
    select = ColumnSelector(input_config, corpus)
    line = 1
    try:
        if detect_format(input_config) == "xlsx":
            with require_formats(file, "XLSX"):
                for line, cells in spreadsheets.read_xlsx_rows(file):
                    yield from make_row_pair(file, line, cells, select)
            progress(Path(file).stat().st_size)
            return
        with open_input(file, progress) as stream:
            for line, cells in spreadsheets.read_csv_rows(stream, file):
                yield from make_row_pair(file, line, cells, select)
    except UnreadableFileError as error:
        yield InvalidRecord(file, error.line or line, BROKEN_FILE, str(error))


def make_row_pair(
    file: str, line: int, cells: list[str] | InvalidTextError, select: "ColumnSelector"
) -> PairStream:
    """Yield the pair of a row, or nothing for a header or an empty row."""
    try:
        if isinstance(cells, InvalidTextError):
            raise cells
        if any(cells) and (sides := select(cells)):
            yield make_pair(join_lines(sides[0]), join_lines(sides[1]), line)
    except InvalidTextError as error:
        yield InvalidRecord(file, line, error.reason, error.detail)


class ColumnSelector:
    """Selects source and target of rows, by columns from 1 or by the names in the first row.

    Unless fields are given, a first row that names both languages says which columns they are.
    """

    def __init__(self, input_config: InputConfig, corpus: CorpusConfig) -> None:
        self.file, self.fields = input_config.files[0], input_config.fields or ("1", "2")
        self.languages = None if input_config.fields else (corpus.source, corpus.target)
        is_numbered = all(field.isascii() and field.isdigit() and int(field) > 0 for field in self.fields)
        self.columns = [int(field) - 1 for field in self.fields] if is_numbered else []

    def __call__(self, cells: list[str]) -> tuple[str, str] | None:
        """Return source and target, or None for the row of names."""
        if not self.columns:
            self.columns = find_columns(cells, self.fields, self.file)
            return None
        languages, self.languages = self.languages, None
        if languages and {cell.strip().lower() for cell in cells} >= {code.lower() for code in languages}:
            names = [cell.strip().lower() for cell in cells]
            self.columns = [names.index(code.lower()) for code in languages]
            return None
        needed = max(self.columns) + 1
        if len(cells) < needed:
            raise InvalidTextError(WRONG_COLUMNS, f"{len(cells)}, but column {needed} is needed")
        return cells[self.columns[0]], cells[self.columns[1]]


def find_columns(header: list[str], fields: tuple[str, ...], file: str) -> list[int]:
    missing = [field for field in fields if field not in header]
    if missing:
        raise DataError(
            f"{file}:1: no column named {missing[0]!r}; the first line has {', '.join(header)[:200]!r}. "
            f"Give columns by these names, or by numbers from 1"
        )
    return [header.index(field) for field in fields]


def read_jsonl(input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress) -> PairStream:
    """Read a JSON object per line. Unless keys are given, the language codes are the keys."""
    source, target = input_config.fields or (corpus.source, corpus.target)

    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidTextError(WRONG_JSON, str(error)) from None
        return get_text(record, source), get_text(record, target)

    return read_records(input_config, progress, parse)


def get_text(record: Any, key: str) -> str:
    """Return the text at a key; `translation.en` is the key en inside of translation."""
    value = record
    for part in (key,) if isinstance(record, dict) and key in record else key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise InvalidTextError(WRONG_JSON, f"no key {key!r}")
        value = value[part]
    if not isinstance(value, str):
        raise InvalidTextError(WRONG_JSON, f"{key!r} is not a string")
    return join_lines(value)


# ---- translation formats


def read_container(input_config: InputConfig, corpus: CorpusConfig, progress: ByteProgress) -> PairStream:
    """Read TMX, PO or XLIFF."""
    from manyheads.text import containers

    (file,) = input_config.files
    file_format = detect_format(input_config)
    readers = {"tmx": containers.read_tmx, "po": containers.read_po, "xliff": containers.read_xliff}
    line = 1
    try:
        with (
            require_formats(file, "TMX, PO and XLIFF"),
            open_input(file, progress, is_xml=file_format != "po") as stream,
        ):
            for line, unit in readers[file_format](stream, file, corpus):
                yield make_container_pair(file, line, unit)
    except UnreadableFileError as error:
        yield InvalidRecord(file, error.line or line, BROKEN_FILE, str(error))


@contextmanager
def require_formats(file: str, names: str) -> Iterator[None]:
    """Say which extra is missing if a reader cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f"{file}: reading {names} needs the extra `formats` ({error.name} is missing): "
            f"{install_command('formats')}"
        ) from None


def make_container_pair(
    file: str, line: int, unit: tuple[str, str] | InvalidTextError
) -> SentencePair | InvalidRecord:
    try:
        if isinstance(unit, InvalidTextError):
            raise unit
        return make_pair(join_lines(unit[0]), join_lines(unit[1]), line)
    except InvalidTextError as error:
        return InvalidRecord(file, line, error.reason, error.detail)
