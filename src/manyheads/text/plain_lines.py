"""Lines of plain text for translation: every line is kept, whatever it holds."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from manyheads.errors import DataError
from manyheads.text.input_files import COMPRESSION_SUFFIXES, open_input
from manyheads.text.invalid import UnreadableFileError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_WARNINGS = 10  # about lines of a file that are not UTF-8
STDIN = Path("-")


def read_plain_lines(path: Path) -> Iterator[str]:
    """Read the lines of a file or stdin, without line feeds. Invalid UTF-8 becomes U+FFFD, with a warning."""
    num_invalid = 0
    with open_plain(path) as stream:
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
