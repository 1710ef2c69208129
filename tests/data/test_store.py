"""A data folder is complete or absent, says when it is damaged, and opens at once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import manyheads as mh
from manyheads import atomic_io
from manyheads.atomic_io import (
    atomic_directory,
    compute_checksum,
    restore_interrupted_replacements,
    write_bytes_atomically,
)
from manyheads.checkpoint.adapters import Adapter, write_adapter
from manyheads.config import Config, Recipe
from manyheads.data.prepare import prepare
from manyheads.data.store import MANIFEST, ArrayWriter, SideWriter, Store, measure_supported_length
from manyheads.look.html import write_html
from manyheads.text.subwords import TokenSequences
from manyheads.train.log import truncate_log

SENTENCES = [(f"word{i % 7} and {i}", f"말{i % 7} 그리고 {i}") for i in range(60)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for side, code in enumerate(("en", "ko")):
        (tmp_path / f"a.{code}").write_text(
            "".join(f"{pair[side]}\n" for pair in SENTENCES), encoding="utf-8"
        )
    recipe = Recipe.from_mapping(
        {
            "train": [{"files": [f"{tmp_path}/a.en", f"{tmp_path}/a.ko"]}],
            "subwords": {"vocab_size": 320},
            "corpus": {"hold_out": 2},
        }
    )
    prepare(recipe, tmp_path / "data")
    return tmp_path / "data"


def test_an_array_written_in_parts_is_the_array_that_numpy_reads(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a.npy", np.uint16)
    parts = [np.arange(5), np.zeros(0, int), np.arange(60_000, 65_536)]
    for part in parts:
        writer.write(part)
    writer.close()
    read = np.load(tmp_path / "a.npy")
    assert read.dtype == np.uint16
    assert read.tolist() == np.concatenate(parts).tolist()


@pytest.mark.parametrize(("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_tokens_take_two_bytes_if_the_vocabulary_fits(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    writer = SideWriter(tmp_path, "train", "source", vocabulary)
    for start in (0, 3):
        writer.write(TokenSequences(np.array([vocabulary - 1, start, 2]), np.array([0, 1, 3])))
    writer.close()
    tokens = np.load(tmp_path / "train.source.tokens.npy")
    assert (tokens.dtype, tokens.tolist()) == (dtype, [vocabulary - 1, 0, 2, vocabulary - 1, 3, 2])
    assert np.load(tmp_path / "train.source.offsets.npy").tolist() == [0, 1, 3, 4, 6]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10] * 165_063 + [300], 10),  # as Tatoeba: one is longer than all others
        ([10] * 100_000 + [40] * 200 + [50] * 10, 40),  # 0.1 % may be longer
        ([10] * 5000 + [60] * 21, 60),
        ([10] * 5000 + [60] * 20, 10),  # seen too seldom
        ([5, 6, 7], 7),
        ([], 0),
    ],
)
def test_the_supported_length_is_what_training_sees_often(lengths: list[int], expected: int) -> None:
    assert measure_supported_length(np.cumsum([0, *lengths])) == expected


def test_the_supported_length_is_stored_and_else_computed(data: Path) -> None:
    store = Store.open(data)
    stored = store.manifest["splits"]["train"]["source"].pop("supported_length")
    assert stored == store.supported_length > 0


def test_stored_text_is_read_back(data: Path) -> None:
    store = Store.open(data)
    store.verify()
    train = store.load_split("train")
    assert len(train) == 56
    texts = [
        (store.subwords.source.decode(train.source[i]), store.subwords.target.decode(train.target[i]))
        for i in range(len(train))
    ]
    held_out = list(zip(*store.read_text("valid"), strict=True)) + list(
        zip(*store.read_text("test"), strict=True)
    )
    assert len(held_out) == 4
    assert sorted(texts + held_out) == sorted(SENTENCES)
    assert store.manifest["languages"] == {"source": "en", "target": "ko"}


def test_the_same_files_give_the_same_folder_byte_for_byte(data: Path, tmp_path: Path) -> None:
    recipe = Recipe.from_mapping(json.loads((data / "corpus.json").read_text())["recipe"])
    prepare(recipe, tmp_path / "again")
    for path in data.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_every_damage_is_detected(data: Path) -> None:
    for path in sorted(data.iterdir()):
        content = path.read_bytes()
        if path.name == "corpus.json":
            continue
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(mh.DataError, match=f"{path.name}: damaged"):
            Store.open(data).verify()
        path.write_bytes(content[:-1])
        with pytest.raises(mh.DataError, match=f"{path.name}: has {len(content) - 1:,} bytes"):
            Store.open(data)
        path.unlink()
        with pytest.raises(mh.DataError, match=f"{path.name}: is missing"):
            Store.open(data)
        path.write_bytes(content)
    Store.open(data).verify()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the manifest of a data folder"),
        ("[]", "not the manifest of a data folder"),
        ('{"format": 99}', "format 99, but this version reads format 2: update manyheads"),
        (
            '{"format": 1}',
            "format 1 of an older development version, but this version reads format 2: prepare the data "
            "again",
        ),
        ('{"format": 2}', "has no valid languages, splits, subwords, files"),
    ],
)
def test_a_foreign_manifest_is_refused(data: Path, text: str, message: str) -> None:
    (data / "corpus.json").write_text(text)
    with pytest.raises(mh.DataError, match=message):
        Store.open(data)


def test_a_folder_without_manifest_is_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(mh.DataError, match=r"not a data folder \(corpus\.json: No such file"):
        Store.open(tmp_path)
    with pytest.raises(mh.DataError, match="no split 'dev'; it has train, valid, test"):
        Store.open(data).load_split("dev")


def test_a_pickle_is_not_read(data: Path) -> None:
    array = np.array([{"a": 1}], dtype=object)
    np.save(data / "train.source.tokens.npy", array, allow_pickle=True)
    manifest = json.loads((data / "corpus.json").read_text())
    manifest["files"]["train.source.tokens.npy"]["bytes"] = (data / "train.source.tokens.npy").stat().st_size
    manifest["sha256"] = compute_checksum(manifest)
    (data / "corpus.json").write_text(json.dumps(manifest))
    with pytest.raises(mh.DataError, match="not a token array"):
        Store.open(data).load_split("train")


def test_a_store_of_any_size_opens_without_reading_it(data: Path) -> None:
    """A sparse file of a terabyte in place of the tokens: only its size is looked at."""
    path = data / "train.source.tokens.npy"
    with path.open("r+b") as file:
        file.seek(0)
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<u2", "fortran_order": False, "shape": (500_000_000_000,)}
        )
        file.truncate(128 + 1_000_000_000_000)
    offsets = np.load(data / "train.source.offsets.npy", mmap_mode="r+")
    offsets[-1] = 500_000_000_000
    offsets.flush()
    manifest = json.loads((data / "corpus.json").read_text())
    manifest["files"][path.name]["bytes"] = 128 + 1_000_000_000_000
    manifest["sha256"] = compute_checksum(manifest)
    (data / "corpus.json").write_text(json.dumps(manifest))
    assert len(Store.open(data).load_split("train").source.tokens) == 500_000_000_000


# ---- complete or absent


def test_an_existing_folder_is_not_overwritten_without_force(tmp_path: Path, data: Path) -> None:
    with pytest.raises(mh.RequestError, match="data: exists already"), atomic_directory(data, MANIFEST):
        pass
    before = (data / "corpus.json").read_bytes()
    with pytest.raises(RuntimeError, match="midway"), atomic_directory(data, MANIFEST, replace=True):
        raise RuntimeError("midway")
    assert (data / "corpus.json").read_bytes() == before
    with atomic_directory(data, MANIFEST, replace=True) as aside:
        (aside / "corpus.json").write_text('{"files": {}}')
    assert [path.name for path in data.iterdir()] == ["corpus.json"]
    (data / "thesis.txt").write_text("mine")
    with pytest.raises(mh.RequestError, match=r"holds thesis\.txt, which is not ours to delete"):
        with_replacing(data)
    (tmp_path / "photos").mkdir()
    with (
        pytest.raises(mh.RequestError, match="was not written by manyheads"),
        atomic_directory(tmp_path / "photos", MANIFEST, replace=True),
    ):
        pass


def with_replacing(folder: Path) -> None:
    with atomic_directory(folder, MANIFEST, replace=True):
        pass


def test_neighbors_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("data.old", "data.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine")
    for replace in (False, True):
        with atomic_directory(tmp_path / "data", MANIFEST, replace=replace) as aside:
            (aside / MANIFEST).write_text('{"files": {}}')
    assert sorted(os.listdir(tmp_path)) == ["data", "data.old", "data.part"]
    assert (tmp_path / "data.old" / "precious").read_text() == "mine"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_directory(tmp_path / "data", MANIFEST) as aside:
        (aside / "half").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_replaced_while_it_is_locked_is_locked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = tmp_path / "run", atomic_io.acquire_lock
    calls: list[Path] = []

    def replace_and_lock(handle: int, path: Path) -> None:
        if not calls:  # another process, which held the lock, removes it and a third creates it
            path.rmdir()
            path.mkdir()
        calls.append(path)
        lock(handle, path)

    monkeypatch.setattr(atomic_io, "acquire_lock", replace_and_lock)
    with atomic_io.open_locked(folder) as handle:
        assert os.fstat(handle).st_ino == folder.stat().st_ino
    assert len(calls) == 2


def test_a_link_in_place_of_a_temporary_folder_is_refused(tmp_path: Path) -> None:
    """Its target would be emptied."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").write_text("mine")
    (tmp_path / ".data.manyheads-part").symlink_to("victim")
    with pytest.raises(mh.RequestError, match="manyheads-part: is a link"):
        write_empty(tmp_path / "data")
    assert (tmp_path / "victim" / "thesis.txt").read_text() == "mine"


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("make", [make_dangling_link, Path.touch, os.mkfifo])
def test_what_is_no_folder_in_place_of_a_temporary_one_is_our_own_error(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".model.manyheads-part")
    with (
        pytest.raises(
            mh.RequestError, match=r"\.model\.manyheads-part: is .*but must be a folder; remove it"
        ),
        atomic_directory(tmp_path / "model", "manifest.json"),
    ):
        pass
    assert os.listdir(tmp_path) == [".model.manyheads-part"]


def test_a_link_in_place_of_the_folder_that_is_replaced_is_removed_and_not_followed(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with atomic_directory(tmp_path / "model", "manifest.json", replace=True) as temporary:
            (temporary / "manifest.json").write_text(json.dumps({"files": {}, "text": text}))
            (tmp_path / "victim").mkdir(exist_ok=True)
            (tmp_path / "victim" / "file").touch()
            if text == "new":
                (tmp_path / ".model.manyheads-old").symlink_to(tmp_path / "victim")
    assert "new" in (tmp_path / "model" / "manifest.json").read_text()
    assert (tmp_path / "victim" / "file").exists()
    assert sorted(os.listdir(tmp_path)) == ["model", "victim"]


def test_what_a_killed_process_left_is_cleared_folders_included_and_links_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").write_text("mine")
    (tmp_path / ".data.manyheads-part" / "adapters").mkdir(parents=True)
    (tmp_path / ".data.manyheads-part" / "adapters" / "half").write_text("")
    (tmp_path / ".data.manyheads-part" / "link").symlink_to("../victim")
    write_empty(tmp_path / "data")
    assert not (tmp_path / "data" / "adapters").exists()
    assert (tmp_path / "victim" / "thesis.txt").read_text() == "mine"


def test_a_link_in_place_of_a_replaced_folder_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / ".data.manyheads-old").symlink_to("victim")
    restore_interrupted_replacements(tmp_path)
    assert not (tmp_path / "data").exists()


def write_empty(folder: Path) -> None:
    with atomic_directory(folder, MANIFEST) as aside:
        (aside / MANIFEST).write_text('{"files": {}}')


def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "data", MANIFEST) as aside:
        (aside / "corpus.json").write_text("{}")
        with (
            pytest.raises(mh.DataError, match="another process is writing it"),
            atomic_directory(tmp_path / "data", MANIFEST),
        ):
            pass
    assert (tmp_path / "data" / "corpus.json").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_temporary_folder_that_became_that_of_another_process_is_neither_taken_nor_removed(
    tmp_path: Path, fails: bool
) -> None:
    part = tmp_path / ".data.manyheads-part"

    def replace_part() -> None:
        part.rename(tmp_path / "moved")
        part.mkdir()
        (part / "theirs").touch()
        if fails:
            raise ZeroDivisionError

    expected = ZeroDivisionError if fails else mh.DataError
    with pytest.raises(expected), atomic_directory(tmp_path / "data", MANIFEST):
        replace_part()
    assert (part / "theirs").exists()
    assert not (tmp_path / "data").exists()


def test_a_killed_process_leaves_no_data_folder_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from manyheads.atomic_io import atomic_directory\n"
        f"with atomic_directory(Path({str(tmp_path / 'data')!r}), 'corpus.json') as aside:\n"
        "    (aside / 'half').write_text('half'); print('there', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        child.send_signal(signal.SIGKILL)
    assert not (tmp_path / "data").exists()
    with atomic_directory(tmp_path / "data", MANIFEST) as aside:
        assert list(aside.iterdir()) == []
        (aside / "corpus.json").write_text("{}")
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_files_and_folder_are_synced_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("sync"), fsync(handle)))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (events.append(f"rename {to.name}"), rename(path, to))[1]
    )
    with atomic_directory(tmp_path / "data", MANIFEST) as aside:
        (aside / "one").write_text("1")
        (aside / "two").write_text("2")
    assert events == ["sync", "sync", "sync", "rename data", "sync"]


def test_a_file_that_cannot_be_written_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_bytes_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_bytes_atomically(path, b"new")
    assert [(own.name, own.read_bytes()) for own in tmp_path.iterdir()] == [("a", b"old")]


def rewrite_log(path: Path) -> None:
    path.write_text("")
    truncate_log(path, 3)


@pytest.mark.parametrize(
    ("part", "write"),
    [
        (".a.part", lambda path: write_bytes_atomically(path, b"x")),
        (".a.part", lambda path: write_html("<p>", path)),
        (".a.manyheads-part", lambda path: write_html("<p>", path)),
        ("a.part", Config().save),
        ("a.part", rewrite_log),
        (".a.part", lambda path: write_adapter(path, Adapter("a", {}, "0" * 64, {}, b"\0"))),
    ],
)
def test_a_link_in_place_of_a_temporary_file_is_not_followed(
    tmp_path: Path, part: str, write: Callable[[Path], object]
) -> None:
    """Another user of a shared folder could have put it there."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / part).symlink_to(tmp_path / "victim")
    write(tmp_path / "a")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "a").is_symlink()


def test_a_fifo_or_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes_atomically(path, b"text")
    assert path.is_fifo()
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    with pytest.raises(IsADirectoryError):
        write_bytes_atomically(tmp_path, b"text")


def test_scores_are_of_the_test_set_or_else_of_the_validation_set(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(data)
    assert store.read_test_set() == ("test", *store.read_text("test"))
    monkeypatch.delitem(store.manifest["splits"], "test")
    assert store.read_test_set() == ("valid", *store.read_text("valid"))
    monkeypatch.setattr(Store, "read_text", lambda store, split: ([], []))
    with pytest.raises(mh.DataError, match="valid has no pairs"):
        store.read_test_set()
