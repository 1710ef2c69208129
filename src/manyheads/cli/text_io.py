"""Lines of text in and out of commands."""

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.atomic_io import DISK_FULL_ERRNOS
from manyheads.errors import DataError, RequestError
from manyheads.text.plain_lines import STDIN, read_plain_lines


def read_lines(files: list[Path]) -> Iterator[str]:
    """Read the lines of files, or of stdin, without line feeds."""
    for path in files or [STDIN]:
        yield from read_plain_lines(path)


def read_glossary(path: Path) -> dict[str, str]:
    """Read terms and their translations, separated by a tab, one pair per line."""
    terms = {}
    for number, line in enumerate(read_lines([path]), 1):
        if not line.strip():
            continue
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(f"{path}: line {number} is not a term, a tab and its translation")
        terms[source.strip()] = target.strip()
    return terms


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
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"manyheads: {message}", file=sys.stderr)

    warnings.showwarning = show
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextmanager
def report_write_errors(option: str, path: Path) -> Iterator[Path]:
    """Name the option that gives another path if this one cannot be written."""
    try:
        yield path
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise
        raise RequestError(
            f"{path}: cannot be written ({error.strerror or error}): give another path with {option}"
        ) from None
