"""Readers: whatever parallel text people have becomes a stream of pairs.

Nothing is lost silently: what cannot be a pair comes out as a `Bad`, with its file, line and reason. Files
are read as streams, so that memory does not grow with them, and are cut into lines at "\\n" alone.
"""

import gzip
import io
import json
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from manyheads.config import CorpusConfig, InputConfig
from manyheads.errors import ConfigError, DataError

MAX_LINE_BYTES = 1_000_000  # bytes; nobody's sentence, and a bound on memory
COMPRESSION_SUFFIXES = (".gz", ".xz", ".zst")
FORMAT_BY_SUFFIX = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".tmx": "tmx",
    ".po": "po",
    ".pot": "po",
    ".xlf": "xliff",
    ".xliff": "xliff",
}

# Reasons, as reports count them.
NO_COUNTERPART = "line without counterpart"
BROKEN_FILE = "broken file"
STRUCTURAL = {NO_COUNTERPART, BROKEN_FILE}  # after these the pairs that were read may be wrong too
INVALID_UTF8 = "invalid UTF-8"
TOO_LONG = "line of a megabyte or more"
EMPTY_SOURCE, EMPTY_TARGET, BOTH_EMPTY = "empty source", "empty target", "both sides empty"
WRONG_COLUMNS, WRONG_JSON = "too few columns", "not the JSON that was asked for"
UNFINISHED = "fuzzy or obsolete translation"
NO_LANGUAGE = "unit without the language"

FORBIDDEN_CHARACTER = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffd\ufffe\uffff]")
MAX_COMBINING_MARKS = (
    500  # in a row: no writing has them, and Unicode's normal forms take their square in time
)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
CHARACTER_NAMES = {
    "\x00": "NUL",
    "\r": "carriage return inside a line",
    "\x85": "line separator inside a line",
    "\u2028": "line separator inside a line",
    "\u2029": "line separator inside a line",
    "\ufeff": "byte order mark inside a line",
    "\ufffd": "replacement character",
}


class SentencePair(NamedTuple):
    """A sentence, its translation, and where they stand."""

    source: str
    target: str
    line: int


class InvalidRecord(NamedTuple):
    """What cannot be a pair, and why."""

    file: str
    line: int
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


PairStream = Iterator[SentencePair | InvalidRecord]


def read_pairs(
    input_config: InputConfig, corpus: CorpusConfig, progress: Callable[[int], None] | None = None
) -> PairStream:
    """The pairs of an input, and what is bad in it. `progress` is told of bytes as they leave the disk."""
    kind = detect_format(input_config)
    readers: dict[str, Callable[..., PairStream]] = {
        "plain": read_plain,
        "tsv": read_tsv,
        "jsonl": read_jsonl,
        "tmx": read_container,
        "po": read_container,
        "xliff": read_container,
    }
    if (kind == "plain") != (len(input_config.files) == 2):
        wanted = "two files, source and target" if kind == "plain" else "one file that holds both sides"
        raise ConfigError(
            f"{', '.join(input_config.files)}: read as {kind}, which must be {wanted}; "
            f"plain files come in pairs, and format tells what a name does not"
        )
    return readers[kind](input_config, corpus, progress or (lambda count: None))


def detect_format(given: InputConfig) -> str:
    """As it is given, or as the name says: train.ko and train.txt.xz are plain, memory.tmx.gz is TMX."""
    if given.format != "auto":
        return given.format
    return (
        "plain"
        if len(given.files) == 2
        else FORMAT_BY_SUFFIX.get(strip_compression_suffix(given.files[0]).suffix.lower(), "plain")
    )


def strip_compression_suffix(file: str) -> Path:
    """The name without its compression."""
    path = Path(file)
    return path.with_suffix("") if path.suffix.lower() in COMPRESSION_SUFFIXES else path


# ---- files and lines


class CountingReader(io.RawIOBase):
    """A file on disk that tells how much of it was read: a compressed stream cannot say how far it is."""

    def __init__(self, file: str, progress: Callable[[int], None]) -> None:
        self.file, self.progress = io.FileIO(file), progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self.file.readinto(buffer) or 0
        self.progress(size)
        return size

    def close(self) -> None:
        self.file.close()
        super().close()


class ChunkedReader(io.RawIOBase):
    """A compressed stream read a piece at a time, so that a break loses no more than the piece it is in."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.read_piece = getattr(stream, "read1", stream.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.read_piece(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.stream.close()
        super().close()


class UnreadableFileError(Exception):
    """A file that breaks in the middle: what was read before it stands, the rest is lost."""

    def __init__(self, file: str, fault: Exception, line: int | None = None) -> None:
        super().__init__(str(fault) or type(fault).__name__)
        self.file, self.line = file, line


@contextmanager
def translate_decompression_errors(file: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as fault:
        raise UnreadableFileError(file, fault) from None
    except OSError as fault:
        if fault.errno is not None:
            raise
        raise UnreadableFileError(file, fault) from None  # pyarrow's word for a damaged .zst


@contextmanager
def open_input(file: str, progress: Callable[[int], None], is_xml: bool = False) -> Iterator[IO[bytes]]:
    """The bytes of a file, uncompressed, after the byte order mark if there is one. XML reads its own."""
    try:
        disk = io.BufferedReader(CountingReader(file, progress), 1 << 20)
    except OSError as fault:
        raise DataError(f"{file}: {fault.strerror}") from None
    with disk, translate_decompression_errors(file):
        stream = decompress(disk, Path(file).suffix.lower())
        with disk if stream is disk else io.BufferedReader(ChunkedReader(stream), 1 << 16) as lines:
            if not is_xml:
                skip_byte_order_mark(lines, file)
            yield lines


def decompress(disk: Any, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=disk)
    if suffix == ".xz":
        return lzma.LZMAFile(disk)
    if suffix == ".zst":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(disk, mode="r"), "zstd")
    return disk


def skip_byte_order_mark(lines: io.BufferedReader, file: str) -> None:
    start = lines.peek(3)[:3]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            f"{file}: begins with the mark of UTF-16, but must be UTF-8: iconv -f UTF-16 -t UTF-8 converts it"
        )
    if start == b"\xef\xbb\xbf":
        lines.read(3)


def read_lines(stream: IO[bytes], file: str) -> Iterator[bytes | None]:
    """Each line without its end ("\\n", or "\\r\\n"); None for one too long, its rest skipped."""
    with translate_decompression_errors(file):
        while line := stream.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):
                yield line[:-2] if line.endswith(b"\r\n") else line[:-1]
            elif len(line) < MAX_LINE_BYTES:
                yield line.removesuffix(b"\r")  # the last one
            else:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE_BYTES)
                yield None


class InvalidTextError(Exception):
    """Why a line cannot be used: a reason that reports count, and a detail."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def decode_line(line: bytes | None) -> str:
    if line is None:
        raise InvalidTextError(TOO_LONG)
    try:
        return check_text(line.decode())
    except UnicodeDecodeError as fault:
        raise InvalidTextError(INVALID_UTF8, f"byte {fault.start + 1} is 0x{line[fault.start]:02x}") from None


def check_text(text: str) -> str:
    """The text, unless it holds what no line of text holds."""
    if len(text) > MAX_COMBINING_MARKS and not text.isascii() and has_combining_mark_run(text):
        raise InvalidTextError("run of combining marks", f"more than {MAX_COMBINING_MARKS} in a row")
    if found := FORBIDDEN_CHARACTER.search(text):
        character = found.group()
        detail = f"U+{ord(character):04X} at character {found.start() + 1}"
        raise InvalidTextError(CHARACTER_NAMES.get(character, "control character"), detail)
    return text


def has_combining_mark_run(text: str) -> bool:
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MAX_COMBINING_MARKS:
            return True
    return False


def make_pair(source: str, target: str, line: int) -> SentencePair:
    """A pair both sides of which say something."""
    if source and not source.isspace() and target and not target.isspace():
        return SentencePair(source, target, line)
    if target and not target.isspace():
        raise InvalidTextError(EMPTY_SOURCE)
    raise InvalidTextError(EMPTY_TARGET if source and not source.isspace() else BOTH_EMPTY)


# ---- two aligned plain files


def read_plain(given: InputConfig, corpus: CorpusConfig, progress: Callable[[int], None]) -> PairStream:
    source, target = given.files
    number = 0
    try:
        with open_input(source, progress) as left, open_input(target, progress) as right:
            streams = {source: read_lines(left, source), target: read_lines(right, target)}
            sides = zip_longest(streams[source], streams[target], fillvalue=NO_COUNTERPART)
            try:
                for number, (one, other) in enumerate(sides, 1):
                    if isinstance(one, str) or isinstance(other, str):
                        yield from report_missing_counterparts(
                            given.files, number, 1 + sum(1 for _ in sides), one
                        )
                        return
                    yield make_plain_pair(given.files, one, other, number)
            except UnreadableFileError as fault:
                yield from report_after_break(fault, number, given.files, streams)
    except UnreadableFileError as fault:  # in both files, or at the very start
        yield InvalidRecord(fault.file, number + 1, BROKEN_FILE, str(fault))


def report_after_break(
    fault: UnreadableFileError,
    number: int,
    files: tuple[str, ...],
    streams: dict[str, Iterator[bytes | None]],
) -> Iterator[InvalidRecord]:
    """Where a file breaks off, every line that its counterpart still has is named."""
    yield InvalidRecord(fault.file, number + 1, BROKEN_FILE, str(fault))
    other = files[1] if fault.file == files[0] else files[0]
    if fault.file == files[1]:  # the source's line had been read already
        yield InvalidRecord(other, number + 1, NO_COUNTERPART, f"{fault.file} breaks off")
        number += 1
    for line, _ in enumerate(streams[other], number + 1):
        yield InvalidRecord(other, line, NO_COUNTERPART, f"{fault.file} breaks off")


def make_plain_pair(
    files: tuple[str, ...], one: bytes | None, other: bytes | None, line: int
) -> SentencePair | InvalidRecord:
    file = files[0]
    try:
        source = decode_line(one)
        file = files[1]
        target = decode_line(other)
        return make_pair(source, target, line)
    except InvalidTextError as fault:
        at = files[0] if fault.reason in (EMPTY_SOURCE, BOTH_EMPTY) else file
        return InvalidRecord(at, line, fault.reason, fault.detail)


def report_missing_counterparts(
    files: tuple[str, ...], line: int, extra: int, one: bytes | str | None
) -> Iterator[InvalidRecord]:
    short, long = files if isinstance(one, str) else files[::-1]
    detail = f"{short} has {line - 1:,} lines, {long} {line - 1 + extra:,}"
    for number in range(line, line + extra):
        yield InvalidRecord(long, number, NO_COUNTERPART, detail)


# ---- one record a line


def read_records(
    given: InputConfig, progress: Callable[[int], None], parse: Callable[[str], tuple[str, str] | None]
) -> PairStream:
    """`parse` makes source and target of a line, or nothing where it is no record (a heading)."""
    (file,) = given.files
    number = 0
    try:
        with open_input(file, progress) as stream:
            for number, line in enumerate(read_lines(stream, file), 1):
                try:
                    if found := parse(decode_line(line)):
                        yield make_pair(*found, number)
                except InvalidTextError as fault:
                    yield InvalidRecord(file, number, fault.reason, fault.detail)
    except UnreadableFileError as fault:
        yield InvalidRecord(file, number + 1, BROKEN_FILE, str(fault))


def read_tsv(given: InputConfig, corpus: CorpusConfig, progress: Callable[[int], None]) -> PairStream:
    """Columns by number from 1, or by the names in the first line."""
    fields = given.fields or ("1", "2")
    numbered = all(field.isascii() and field.isdigit() and int(field) > 0 for field in fields)
    columns = [int(field) - 1 for field in fields] if numbered else []

    def parse(line: str) -> tuple[str, str] | None:
        cells = line.split("\t")
        if not columns:
            columns.extend(find_columns(cells, fields, given.files[0]))
            return None
        if len(cells) <= max(columns):
            raise InvalidTextError(WRONG_COLUMNS, f"{len(cells)}, but column {max(columns) + 1} is asked for")
        return cells[columns[0]], cells[columns[1]]

    return read_records(given, progress, parse)


def find_columns(heading: list[str], fields: tuple[str, ...], file: str) -> list[int]:
    missing = [field for field in fields if field not in heading]
    if missing:
        raise DataError(
            f"{file}:1: no column named {missing[0]!r}; the first line has {', '.join(heading)[:200]!r}. "
            f"Columns are named as there, or numbered from 1"
        )
    return [heading.index(field) for field in fields]


def read_jsonl(given: InputConfig, corpus: CorpusConfig, progress: Callable[[int], None]) -> PairStream:
    """An object a line. Without keys, the languages are the keys."""
    source, target = given.fields or (corpus.source, corpus.target)

    def parse(line: str) -> tuple[str, str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as fault:
            raise InvalidTextError(WRONG_JSON, str(fault)) from None
        return get_text(record, source), get_text(record, target)

    return read_records(given, progress, parse)


def get_text(record: Any, key: str) -> str:
    """The text under a key; `translation.en` is the key en inside of translation."""
    found = record
    for part in (key,) if isinstance(record, dict) and key in record else key.split("."):
        if not isinstance(found, dict) or part not in found:
            raise InvalidTextError(WRONG_JSON, f"no key {key!r}")
        found = found[part]
    if not isinstance(found, str):
        raise InvalidTextError(WRONG_JSON, f"{key!r} is not a text")
    return join_lines(found)


def join_lines(text: str) -> str:
    """Inside of a record, line ends are layout."""
    if len(text) >= MAX_LINE_BYTES:
        raise InvalidTextError(TOO_LONG)
    if LONE_SURROGATE.search(text):  # JSON can spell one
        raise InvalidTextError(INVALID_UTF8, "half of a surrogate pair")
    return check_text(text.replace("\r\n", " ").replace("\n", " ").replace("\r", " "))


# ---- translators' containers, through translate-toolkit


def read_container(given: InputConfig, corpus: CorpusConfig, progress: Callable[[int], None]) -> PairStream:
    from manyheads.text import containers

    (file,) = given.files
    reader = {"tmx": containers.tmx, "po": containers.po, "xliff": containers.xliff}[detect_format(given)]
    line = 1
    try:
        with open_input(file, progress, is_xml=detect_format(given) != "po") as stream:
            for line, found in reader(stream, file, corpus):
                yield make_container_pair(file, line, found)
    except UnreadableFileError as fault:
        yield InvalidRecord(file, fault.line or line, BROKEN_FILE, str(fault))
    except ImportError as fault:
        raise DataError(
            f"{file}: TMX, PO and XLIFF are read by translate-toolkit, which is not installed here "
            f"({fault.name}): pip install translate-toolkit"
        ) from None


def make_container_pair(
    file: str, line: int, found: "tuple[str, str] | InvalidTextError"
) -> SentencePair | InvalidRecord:
    try:
        if isinstance(found, InvalidTextError):
            raise found
        return make_pair(join_lines(found[0]), join_lines(found[1]), line)
    except InvalidTextError as fault:
        return InvalidRecord(file, line, fault.reason, fault.detail)
