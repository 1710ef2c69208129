"""Lines of plain text for translation: every line is kept, whatever it holds. Binary files are refused."""

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from manyheads.errors import DataError
from manyheads.text.input_files import COMPRESSION_SUFFIXES, describe_utf16, open_input
from manyheads.text.invalid import UnreadableFileError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_WARNINGS = 10  # about lines of a file that are not UTF-8
STDIN = Path("-")
CHECKED_BYTES = 8192  # at the start of a file
SIGNATURES = {
    b"\x89PNG\r\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF89a": "GIF", b"%PDF-": "PDF", b"PK\x03\x04": "ZIP",
    b"\x1f\x8b\x08": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x7fELF": "ELF",
    b"\xd0\xcf\x11\xe0": "an old Office file",
}  # fmt: skip
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
CONTROL_BYTES = bytes({*range(32)} - set(b"\a\b\t\n\v\f\r\x1b"))
MAX_CONTROL_BYTES, MAX_CONTROL_SHARE = 8, 0.02  # of text that has NUL too; random bytes have a share of 0.09


def read_plain_lines(path: Path) -> Iterator[str]:
    """Read the lines of a file or stdin, without line feeds. Invalid UTF-8 becomes U+FFFD, with a warning."""
    num_invalid = 0
    with open_plain(path) as stream:
        if isinstance(stream, io.BufferedReader):
            check_text(stream.peek(CHECKED_BYTES)[:CHECKED_BYTES], path)
        for number, line in enumerate(stream, 1):
            text = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).removesuffix(b"\n")
            try:
                yield text.decode("utf-8")
            except UnicodeDecodeError:
                num_invalid += 1
                if num_invalid <= MAX_WARNINGS:
                    more = "; further lines are not named" if num_invalid == MAX_WARNINGS else ""
                    warnings.warn(
                        f"{path}: line {number} is not UTF-8; invalid bytes are read as \ufffd{more}",
                        stacklevel=2,
                    )
                yield text.decode("utf-8", "replace")


def check_text(start: bytes, path: Path) -> None:
    """Refuse a binary file by its start. A few bytes that text does not have are no reason."""
    has_nul = b"\0" in start
    if has_nul and start.startswith(UTF16_MARKS):
        raise DataError(describe_utf16(path))
    file_type = None
    if has_nul or not start.isascii():
        file_type = next(
            (name for signature, name in SIGNATURES.items() if start.startswith(signature)), None
        )
    num_control = len(start) - len(start.translate(None, CONTROL_BYTES)) if has_nul else 0
    if file_type or num_control > max(MAX_CONTROL_BYTES, MAX_CONTROL_SHARE * len(start)):
        raise DataError(
            f"{path}: is binary, not text ({file_type or 'NUL bytes'}): give UTF-8 text, "
            f"or a document such as .docx"
        )


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed, or stdin."""
    if path == STDIN and sys.stdin is not sys.__stdin__:  # replaced by a caller
        yield sys.stdin.buffer
    elif path == STDIN:  # by a file of our own: a waiting thread would hold the lock of sys.stdin at exit
        with open(0, "rb", closefd=False) as stream:
            yield stream
    elif path.suffix in COMPRESSION_SUFFIXES:
        try:
            with open_input(str(path), lambda size: None) as lines:
                yield lines
        except UnreadableFileError as error:
            raise DataError(f"{path}: breaks off ({error})") from None
    else:
        with path.open("rb") as file:
            yield file
