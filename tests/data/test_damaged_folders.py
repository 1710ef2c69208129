"""A damaged data folder is refused with our own error: nothing is used silently, nothing hangs."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manyheads as mh
from manyheads import atomic_io
from manyheads.config import Recipe
from manyheads.data import store as store_module
from manyheads.data.integrity import BLOCK, VERIFIED, check_arrays
from manyheads.data.prepare import prepare
from manyheads.data.store import MANIFEST, Store
from support.small_run import make_config, prepare_data


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "data")


def read_all(folder: Path) -> None:
    """Do what a training run does at its start."""
    store = Store.open(folder)
    store.verify_once()
    for split in store.splits:
        store.load_split(split)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
    """Change the manifest, and make all checksums right again."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"] = {name: atomic_io.hash_file(folder / name) for name in manifest["files"]}
    change(manifest)
    manifest["sha256"] = atomic_io.compute_checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_every_flipped_bit_is_noticed_before_training(data: Path) -> None:
    generator = random.Random(0)
    read_all(data)
    for path in sorted(path for path in data.iterdir() if path.name != VERIFIED):
        content = path.read_bytes()
        positions = [0, len(content) - 1, *(generator.randrange(len(content)) for _ in range(6))]
        for position in positions:
            flipped = bytearray(content)
            flipped[position] ^= 1 << generator.randrange(8)
            path.write_bytes(flipped)
            with pytest.raises(mh.DataError):
                read_all(data)
        path.write_bytes(content)
    read_all(data)


def test_training_refuses_a_flipped_bit(data: Path, tmp_path: Path) -> None:
    from manyheads.train.run import train

    path = data / "train.target.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(mh.DataError, match=r"train\.target\.tokens\.npy: damaged"):
        train(make_config(data), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_checksums_are_computed_once_for_each_content(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def record(path: Path, *arguments: Any) -> Any:
        names.append(path.name)
        return atomic_io.hash_file(path, *arguments)

    monkeypatch.setattr(store_module, "hash_file", record)
    Store.open(data).verify_once()
    assert "train.source.tokens.npy" in names
    names.clear()
    Store.open(data).verify_once()
    assert names == []
    path = data / "valid.source.tokens.npy"
    status = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    Store.open(data).verify_once()
    assert path.name in names, "even if its time was set back"


@pytest.mark.parametrize("content", ["{", "[]", '{"sha256": 5}', "9" * 5000])
def test_a_wrong_record_of_the_verification_is_ignored(data: Path, content: str) -> None:
    (data / VERIFIED).write_text(content)
    path = data / "valid.source.tokens.npy"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(mh.DataError, match="damaged"):
        Store.open(data).verify_once()


def test_a_link_in_place_of_the_record_that_is_being_written_is_not_followed(
    data: Path, tmp_path: Path
) -> None:
    """A folder from elsewhere cannot make us overwrite other files."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (data / f".{VERIFIED}.part").symlink_to(victim)
    read_all(data)
    assert victim.read_text() == "precious"
    assert json.loads((data / VERIFIED).read_text())


def test_a_folder_with_such_a_record_can_be_replaced(data: Path) -> None:
    read_all(data)
    assert (data / VERIFIED).exists()
    recipe = Recipe.from_mapping(json.loads((data / MANIFEST).read_text())["recipe"])
    prepare(recipe, data, force=True)
    assert not (data / VERIFIED).exists()


OFFSETS = [
    ([0, 5, 3, 9], "sentence 1 ends before it begins"),
    ([0, 3, 3, 9], "sentence 1 ends before it begins"),
    ([1, 3, 5, 9], "goes from 1 to 9"),
    ([0, 3, 5, 8], "goes from 0 to 8"),
    ([0, 3, 5, 2**60], "but there are 9 tokens"),
    ([0, -7, 5, 9], "sentence 0 ends before it begins"),
    ([], "not an array of offsets"),
]


@pytest.mark.parametrize(("offsets", "message"), OFFSETS)
def test_offsets_that_do_not_cut_the_tokens_are_refused(offsets: list[int], message: str) -> None:
    with pytest.raises(mh.DataError, match=message):
        check_arrays(np.zeros(9, np.uint16), np.array(offsets, np.int64), "a")


def test_offsets_are_checked_across_blocks() -> None:
    offsets = np.arange(BLOCK + 3)
    offsets[BLOCK] -= 1
    with pytest.raises(mh.DataError, match=f"sentence {BLOCK - 1:,} ends before"):
        check_arrays(np.zeros(BLOCK + 2, np.uint16), offsets, "a")


def test_arrays_of_other_types_are_refused(data: Path) -> None:
    for name, array in (
        ("train.source.offsets.npy", np.arange(9, dtype=np.float64)),
        ("train.source.offsets.npy", np.zeros((3, 3), np.int64)),
        ("train.source.tokens.npy", np.zeros((3, 3), np.uint16)),
        ("train.source.tokens.npy", np.zeros(9, np.int64)),
    ):
        np.save(data / name, array)
        edit_manifest(data)
        with pytest.raises(mh.DataError, match=r"not an array of offsets|not a token array"):
            Store.open(data).load_split("train")


def test_tokens_that_are_not_in_the_vocabulary_are_refused(data: Path) -> None:
    tokens = np.load(data / "train.source.tokens.npy", mmap_mode="r+")
    tokens[3] = 65_000
    tokens.flush()
    edit_manifest(data)
    with pytest.raises(mh.DataError, match=r"has the token 65,000, but the vocabulary has 330"):
        read_all(data)


MANIFESTS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda manifest: manifest["languages"].clear(), "has no valid languages"),
    (lambda manifest: manifest["languages"].update(source=5), "has no valid languages"),
    (lambda manifest: manifest["splits"]["train"].pop("inputs"), r"no valid splits\.train\.inputs"),
    (lambda manifest: manifest["splits"]["train"].pop("pairs"), r"no valid splits\.train\.pairs"),
    (lambda manifest: manifest["splits"]["train"].pop("source"), r"no valid splits\.train\.source"),
    (lambda manifest: manifest["splits"].update(train=[]), r"no valid splits\.train"),
    (lambda manifest: manifest["splits"]["valid"].update(inputs=[{}]), r"no valid splits\.valid\.inputs"),
    (
        lambda manifest: manifest["splits"]["train"]["inputs"][0].update(weight=float("inf")),
        r"no valid splits\.train\.inputs",
    ),
    (lambda manifest: manifest["splits"]["train"].update(pairs=True), r"no valid splits\.train\.pairs"),
    (
        lambda manifest: manifest["files"].update({"../a.en": {"bytes": 1, "sha256": ""}}),
        "which is not in the folder",
    ),
]


@pytest.mark.parametrize(("change", "message"), MANIFESTS)
def test_odd_manifests_are_refused(data: Path, change: Any, message: str) -> None:
    edit_manifest(data, change)
    with pytest.raises(mh.DataError, match=message):
        read_all(data)


def test_a_fifo_in_place_of_an_array_is_refused(data: Path) -> None:
    for name in (MANIFEST, "train.source.tokens.npy"):
        content = (data / name).read_bytes()
        (data / name).unlink()
        os.mkfifo(data / name)
        with pytest.raises(mh.DataError, match="not a file"):
            read_all(data)
        (data / name).unlink()
        (data / name).write_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04" + bytes(200),
        *(
            b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
            for header in (
                b"{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }\n" % length
                for length in (2**62, 2**65)
            )
        ),
    ],
    ids=["zip", "2**62", "2**65"],
)
def test_an_array_with_an_impossible_header_is_refused(data: Path, content: bytes) -> None:
    (data / "train.source.tokens.npy").write_bytes(content)
    edit_manifest(data)
    with pytest.raises(mh.DataError, match="not a token array"):
        read_all(data)


@pytest.mark.parametrize("name", ["valid.en", "valid.ko"])
@pytest.mark.parametrize("text", ["", "a\n", "a\n" * 500])
def test_texts_with_other_lines_than_pairs_are_refused(data: Path, name: str, text: str) -> None:
    (data / name).write_text(text)
    edit_manifest(data)
    with pytest.raises(mh.DataError, match=r"valid has .* lines and 7 pairs"):
        Store.open(data).read_text("valid")


def test_a_fifo_in_place_of_the_record_of_the_verification_is_left_alone(data: Path) -> None:
    os.mkfifo(data / VERIFIED)
    reader = os.open(data / VERIFIED, os.O_RDONLY | os.O_NONBLOCK)  # else the code before would wait
    try:
        read_all(data)
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)
    assert (data / VERIFIED).is_fifo()
