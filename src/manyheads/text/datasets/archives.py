"""Files out of .zip, .tar, .tgz and .gz, as streams. Nothing is unpacked under the archive's own names."""

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
DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
)

Opener = Callable[[], IO[bytes]]
Members = Generator[tuple[str, Opener], None, None]


@contextmanager
def removing_damaged(*files: Path) -> Iterator[None]:
    """Damage found in reading is an error of ours; the file goes, so that the next call fetches it anew."""
    try:
        yield
    except (*DAMAGE_ERRORS, FileNotFoundError) as fault:
        for file in files:
            file.unlink(missing_ok=True)
        names = ", ".join(file.name for file in files)
        raise DataError(f"{names} is damaged ({fault}); removed: run again to fetch it anew") from fault


def decompress(name: str, stream: IO[bytes]) -> IO[bytes]:
    """The stream of a file of this name, without its compression."""
    return gzip.GzipFile(fileobj=stream) if name.endswith((".gz", ".tgz")) else stream  # type: ignore[return-value]


def iterate_members(archive: Path) -> Members:
    """Names of the plain files in it, and how to read each before asking for the next."""
    if archive.name.endswith(".zip"):
        return iterate_zip(archive)
    if archive.name.endswith((".tar", ".tgz", ".tar.gz")):
        return iterate_tar(archive)
    raise ConfigError(f"{archive.name} is no .zip, .tar, .tgz or .tar.gz, so no member can be read from it")


def iterate_zip(archive: Path) -> Members:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if not info.is_dir():
                yield info.filename, lambda info=info: zipped.open(info)  # type: ignore[misc]


def iterate_tar(archive: Path) -> Members:
    """In one pass, to the very end, where gzip keeps its sum. Links and devices are not files."""
    with archive.open("rb") as raw:
        stream = decompress(archive.name, raw)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for info in tar:
                if info.isfile():
                    yield info.name.removeprefix("./"), lambda info=info: tar.extractfile(info)  # type: ignore[misc]
        while stream.read(CHUNK_BYTES):
            pass


def copy_lines(stream: IO[bytes], side: IO[bytes]) -> int:
    """Bytes as they are, and how many lines they were; a last line without its end is given one."""
    lines, last = 0, b"\n"
    while chunk := stream.read(CHUNK_BYTES):
        side.write(chunk)
        lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    if last != b"\n":
        side.write(b"\n")
    return lines + (last != b"\n")
