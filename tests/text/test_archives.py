"""Archives that unpack to far more than they hold are refused before they fill the disk."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manyheads.errors import DataError
from manyheads.text.datasets import archives
from manyheads.text.datasets.archives import UnpackLimit, copy_lines, decompress, iterate_members
from manyheads.text.datasets.sources import write_members

ZEROS = b"\n" * 10_000_000


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.en", ZEROS)
        archive.writestr("a.ko", b"one\n")


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("a.en", ZEROS), ("a.ko", b"one\n")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(("name", "write"), [("a.zip", write_zip), ("a.tar.gz", write_tar)])
def test_an_archive_may_not_unpack_to_a_hundred_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    pair = SimpleNamespace(languages=("en", "ko"))
    context: Any = SimpleNamespace(pair=pair, fill=lambda pattern, language: f"a.{language}")
    sides: Any = [io.BytesIO(), io.BytesIO()]
    assert write_members(context, tmp_path / name, "", sides) == (len(ZEROS), 1)
    monkeypatch.setattr(archives, "MIN_UNPACKED_BYTES", 1000)
    sides = [io.BytesIO(), io.BytesIO()]
    with pytest.raises(DataError, match=rf"{name}: unpacks to more than [\d,]+ bytes, 100 times its size"):
        write_members(context, tmp_path / name, "", sides)
    assert len(sides[0].getvalue()) < 2_000_000
    assert (tmp_path / name).exists()


def test_a_tar_is_limited_even_if_its_members_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tar(tmp_path / "a.tgz")
    monkeypatch.setattr(archives, "MIN_UNPACKED_BYTES", 1000)
    with pytest.raises(DataError, match="unpacks to more than"):
        list(iterate_members(tmp_path / "a.tgz"))


def test_a_single_file_is_limited_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MIN_UNPACKED_BYTES", 1000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(ZEROS))
    with path.open("rb") as stream, pytest.raises(DataError, match="unpacks to more than"):
        copy_lines(decompress(path.name, stream), io.BytesIO(), UnpackLimit(path))
