"""Lines of text in and out of commands."""

import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.atomic_io import DISK_FULL_ERRNOS
from manyheads.errors import DataError, RequestError
from manyheads.text.input_files import COMPRESSION_SUFFIXES
from manyheads.text.plain_lines import STDIN, read_plain_lines

COUNTED_BYTES = 1 << 20  # at a time


def read_lines(files: list[Path]) -> Iterator[str]:
    """Read the lines of files, or of stdin, without line feeds."""
    for path in files or [STDIN]:
        yield from read_plain_lines(path)


class LineCounter:
    """Counts the lines of files in a thread. Of stdin and of compressed files the number is not known."""

    total: int | None = None  # once they are counted

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        if files and all(path.is_file() and path.suffix not in COMPRESSION_SUFFIXES for path in files):
            threading.Thread(target=self._count, name="manyheads line counter", daemon=True).start()

    def _count(self) -> None:
        total = 0
        for path in self.files:
            last = b"\n"
            with path.open("rb", buffering=0) as stream:
                while block := stream.read(COUNTED_BYTES):
                    total, last = total + block.count(b"\n"), block[-1:]
            total += last != b"\n"
        self.total = total


def read_parallel_lines(source: Path, others: list[Path]) -> tuple[list[str], list[list[str]]]:
    """Read files that must have the same number of lines."""
    sources, texts = list(read_lines([source])), [list(read_lines([path])) for path in others]
    for path, lines in zip(others, texts, strict=True):
        if len(lines) != len(sources):
            raise DataError(f"{source} has {len(sources)} lines, but {path} has {len(lines)}")
    return sources, texts


def configure_output() -> None:
    """Write UTF-8 to stdout, and warnings as single lines to stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"manyheads: {message}", file=sys.stderr)

    warnings.showwarning = show
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextmanager
def report_write_errors(option: str, path: Path) -> Iterator[Path]:
    """Name the option that gives another path if this one cannot be written. Report a folder made for it."""
    is_new = not path.parent.exists()
    try:
        yield path
        if is_new and path.parent.exists():
            print(f"manyheads: {path.parent}: folder created", file=sys.stderr)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise
        raise RequestError(
            f"{path}: cannot be written ({error.strerror or error}): give another path with {option}"
        ) from None
