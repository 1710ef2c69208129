"""Input files as streams of lines: decompressed, counted for progress, split at line feeds alone."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from manyheads.errors import DataError, install_command
from manyheads.text.invalid import MAX_LINE_BYTES, UnreadableFileError

COMPRESSION_SUFFIXES = (".gz", ".xz", ".zst")
DISK_BUFFER_BYTES, TEXT_BUFFER_BYTES = 1 << 20, 1 << 16


def strip_compression_suffix(file: str) -> Path:
    path = Path(file)
    return path.with_suffix("") if path.suffix.lower() in COMPRESSION_SUFFIXES else path


class CountingReader(io.RawIOBase):
    """A file on disk that reports the bytes read. A compressed stream cannot tell how far it is."""

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
    """A compressed stream read chunk by chunk, so that damage loses no more than the chunk it is in."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self.stream.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self.stream.close()
        super().close()


@contextmanager
def open_input(file: str, progress: Callable[[int], None], is_xml: bool = False) -> Iterator[IO[bytes]]:
    """Open the decompressed bytes of a file, after its byte order mark unless it is XML."""
    try:
        disk = io.BufferedReader(CountingReader(file, progress), DISK_BUFFER_BYTES)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None
    with disk, translate_decompression_errors(file):
        stream = decompress(disk, file)
        with disk if stream is disk else io.BufferedReader(ChunkedReader(stream), TEXT_BUFFER_BYTES) as lines:
            if not is_xml:
                skip_byte_order_mark(lines, file)
            yield lines


def decompress(disk: Any, file: str) -> Any:
    suffix = Path(file).suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=disk)
    if suffix == ".xz":
        return lzma.LZMAFile(disk)
    if suffix == ".zst":
        return open_zstd(disk, file)
    return disk


def open_zstd(disk: Any, file: str) -> Any:
    try:
        from backports.zstd import ZstdFile
    except ImportError:
        raise DataError(
            f"{file}: reading .zst needs the extra `formats`: {install_command('formats')}"
        ) from None
    return ZstdFile(disk)


@contextmanager
def translate_decompression_errors(file: str) -> Iterator[None]:
    """Raise UnreadableFileError in place of whatever a decompressor raises for damaged data."""
    try:
        yield
    except get_damage_errors() as error:
        raise UnreadableFileError(file, error) from None


def get_damage_errors() -> tuple[type[Exception], ...]:
    errors = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
    try:
        from backports.zstd import ZstdError
    except ImportError:
        return errors
    return (*errors, ZstdError)


def describe_utf16(file: object) -> str:
    return (
        f"{file}: starts with the byte order mark of UTF-16, but must be UTF-8: "
        f"iconv -f UTF-16 -t UTF-8 converts it"
    )


def skip_byte_order_mark(lines: io.BufferedReader, file: str) -> None:
    start = lines.peek(3)[:3]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(describe_utf16(file))
    if start == b"\xef\xbb\xbf":
        lines.read(3)


def read_lines(stream: IO[bytes], file: str) -> Iterator[bytes | None]:
    """Yield each line without its end ("\\n" or "\\r\\n"), and None for a line that is too long."""
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
