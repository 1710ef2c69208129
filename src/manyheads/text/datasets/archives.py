"""Read files of .zip, .tar, .tgz and .gz as streams. Nothing is unpacked to a path that an archive names."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from manyheads.errors import ConfigError, DataError

CHUNK_BYTES = 1 << 18
MIN_UNPACKED_BYTES, MAX_UNPACKED_RATIO = 1 << 26, 100
DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
)

MemberOpener = Callable[[], IO[bytes]]
Members = Generator[tuple[str, MemberOpener], None, None]


@contextmanager
def removing_damaged(*files: Path) -> Iterator[None]:
    """Raise DataError for damaged archives, and remove them, so that the next call downloads them again."""
    try:
        yield
    except (*DAMAGE_ERRORS, FileNotFoundError) as error:
        for file in files:
            file.unlink(missing_ok=True)
        names = ", ".join(file.name for file in files)
        raise DataError(f"{names} is damaged ({error}) and was removed: run again to download it") from error


class UnpackLimit:
    """Bounds what an archive may unpack to, by its own size. Text is compressed to a tenth or so."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.num_bytes = archive, 0
        self.max_bytes = MIN_UNPACKED_BYTES + MAX_UNPACKED_RATIO * archive.stat().st_size

    def add(self, count: int) -> None:
        """Count bytes that were unpacked."""
        self.num_bytes += count
        if self.num_bytes > self.max_bytes:
            raise DataError(
                f"{self.archive}: unpacks to more than {self.max_bytes:,} bytes, {MAX_UNPACKED_RATIO} times "
                f"its size: this is not a corpus"
            )


def decompress(name: str, stream: IO[bytes]) -> IO[bytes]:
    """Return the decompressed stream of a file of this name."""
    return gzip.GzipFile(fileobj=stream) if name.endswith((".gz", ".tgz")) else stream  # type: ignore[return-value]


def iterate_members(archive: Path) -> Members:
    """Yield the name of each regular file, and a function that opens it before the next is requested."""
    if archive.name.endswith(".zip"):
        return iterate_zip(archive)
    if archive.name.endswith((".tar", ".tgz", ".tar.gz")):
        return iterate_tar(archive)
    raise ConfigError(f"{archive.name} must be a .zip, .tar, .tgz or .tar.gz to have members")


def iterate_zip(archive: Path) -> Members:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if not info.is_dir():
                yield info.filename, lambda info=info: zipped.open(info)  # type: ignore[misc]


def iterate_tar(archive: Path) -> Members:
    """Read in one pass to the very end, where gzip has its checksum. Links and devices are skipped."""
    with archive.open("rb") as raw:
        stream = decompress(archive.name, raw)
        limit = UnpackLimit(archive)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for info in tar:
                limit.add(info.size)
                if info.isfile():
                    yield info.name.removeprefix("./"), lambda info=info: tar.extractfile(info)  # type: ignore[misc]
        while chunk := stream.read(CHUNK_BYTES):
            limit.add(len(chunk))


def copy_lines(stream: IO[bytes], side: IO[bytes], limit: UnpackLimit | None = None) -> int:
    """Copy bytes unchanged, end the last line, and return the number of lines."""
    lines, last = 0, b"\n"
    while chunk := stream.read(CHUNK_BYTES):
        if limit is not None:
            limit.add(len(chunk))
        side.write(chunk)
        lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    if last != b"\n":
        side.write(b"\n")
    return lines + (last != b"\n")
