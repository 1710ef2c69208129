"""The file of corrections: what is added and undone, spaces, and a process that is killed while it writes."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyheads.errors import DataError, RequestError, ResourceError
from manyheads.memory.database import MAX_TEXT_CHARACTERS, CorrectionDatabase
from manyheads.memory.location import find_memory_path
from manyheads.memory.translation_memory import TranslationMemory

BATCH = 400  # corrections of each call of the process that is killed
WRITER = f"""
import sys
from pathlib import Path
from manyheads.memory.database import CorrectionDatabase
database = CorrectionDatabase(Path(sys.argv[1]))
while True:
    number = database.add("s", [(f"source {{n}}", "target " * 40) for n in range({BATCH})], "writer")
    print(number, flush=True)
"""


@pytest.fixture
def database(tmp_path: Path) -> CorrectionDatabase:
    return CorrectionDatabase(tmp_path / "memory" / "corrections.sqlite")


def read(database: CorrectionDatabase, space: str = "a") -> list[tuple[int, str, str, str]]:
    rows = database.list_corrections(space)
    return [(row.number, row.source, row.target, row.who) for row in rows]


def test_reading_creates_no_file(database: CorrectionDatabase) -> None:
    assert (database.get_version(), read(database), database.list_spaces()) == (None, [], [])
    assert not database.path.parent.exists()


def test_undo_takes_back_a_call_as_a_whole_and_then_the_one_before(database: CorrectionDatabase) -> None:
    database.add("a", [("I go.", "가."), ("We go.", "가자.")], "mina")
    database.add("a", [("I go.", "나는 간다.")], "jun")
    assert [row.target for row in database.undo("a")] == ["나는 간다."]
    assert read(database) == [(1, "I go.", "가.", "mina"), (1, "We go.", "가자.", "mina")]
    assert len(database.undo("a")) == 2
    assert (read(database), database.undo("a")) == ([], [])
    undone = database.list_corrections("a", with_undone=True)
    assert [row.who for row in undone] == ["mina", "mina", "jun"], "nothing is deleted"
    assert undone[0].when.startswith("20")
    assert undone[0].when.endswith("Z")


def test_a_call_is_undone_by_its_number_and_a_correction_by_its_source(database: CorrectionDatabase) -> None:
    for target in ("one", "two", "three"):
        database.add("a", [("x", target)], "me")
    assert [row.target for row in database.undo("a", 2)] == ["two"]
    assert database.undo_source("a", "x")
    assert [row[2] for row in read(database)] == ["one"]
    assert database.undo_source("a", "x")
    assert not database.undo_source("a", "x")


def test_spaces_never_mix(database: CorrectionDatabase) -> None:
    database.add("a", [("x", "of a")], "a")
    database.add("b", [("x", "of b")], "b")
    assert (read(database, "a"), read(database, "b")) == ([(1, "x", "of a", "a")], [(1, "x", "of b", "b")])
    assert not database.undo_source("c", "x")
    database.undo("b")
    assert read(database, "a") == [(1, "x", "of a", "a")]
    assert (database.count_since("a", 60), database.count_since("c", 60)) == (1, 0)
    assert database.list_spaces() == ["a", "b"]


@pytest.mark.parametrize("space", ["", "../x", "a b", "x" * 65])
def test_a_space_has_a_plain_name(database: CorrectionDatabase, space: str) -> None:
    with pytest.raises(RequestError, match="the space is"):
        database.add(space, [("x", "y")], "me")


def test_a_wrong_correction_changes_nothing(database: CorrectionDatabase) -> None:
    for wrong in ((" ", "y"), ("x", ""), ("x", "y" * (MAX_TEXT_CHARACTERS + 1))):
        with pytest.raises(DataError, match="of a correction"):
            database.add("a", [("good", "gut"), wrong], "me")
    assert read(database) == []


def test_a_file_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but a text of some length" * 40)
    for path in (foreign, text):
        content = path.read_bytes()
        with pytest.raises(DataError, match=r"(?s)not a translation memory"):
            CorrectionDatabase(path).add("a", [("x", "y")], "me")
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON corrections BEGIN DELETE FROM corrections; END",
        "ALTER TABLE corrections RENAME TO c; CREATE VIEW corrections AS SELECT * FROM c",
        "CREATE TABLE other (x)",
        "DROP TABLE corrections",
        "UPDATE corrections SET source = x'ff00'",
        "UPDATE corrections SET target = 5.0, who = x'00'",
        "UPDATE corrections SET created = 9e999",
        "UPDATE corrections SET created = 'yesterday'",
    ],
)
def test_a_hostile_file_is_refused_before_its_rows_are_used(
    database: CorrectionDatabase, statement: str
) -> None:
    database.add("a", [("x", "y")], "me")
    database.close()
    with sqlite3.connect(database.path) as connection:
        connection.executescript(statement)
    connection.close()
    with pytest.raises(DataError, match="restore a backup"):
        database.list_corrections("a")
    with pytest.raises(DataError, match="restore a backup"):
        database.add("a", [("x", "y")], "me")


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_fifo_or_a_link_in_place_of_a_journal_is_refused(database: CorrectionDatabase, suffix: str) -> None:
    """SQLite would wait for a FIFO, which this one, opened for writing, does not make it do here."""
    database.add("a", [("x", "y")], "me")
    database.close()
    journal = database.path.with_name(f"{database.path.name}{suffix}")
    os.mkfifo(journal)
    writer = os.open(journal, os.O_RDWR)
    try:
        with pytest.raises(DataError, match="remove it"):
            database.list_corrections("a")
    finally:
        os.close(writer)
    journal.unlink()
    journal.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="remove it"):
        database.list_corrections("a")
    journal.unlink()
    assert len(database.list_corrections("a")) == 1


def test_an_error_is_reported_where_sqlite_has_taken_the_transaction_back(
    database: CorrectionDatabase,
) -> None:
    """As it does if the disk is full."""

    def fail() -> None:
        with database._write() as connection:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(ResourceError, match="the disk is full; nothing was changed"):
        fail()
    database.add("a", [("x", "y")], "me")


def test_one_copied_file_is_a_backup(database: CorrectionDatabase, tmp_path: Path) -> None:
    database.add("a", [("x", "y")], "me")
    copy = tmp_path / "backup.sqlite"
    shutil.copy(database.path, copy)
    assert read(CorrectionDatabase(copy)) == read(database)
    assert [path.name for path in database.path.parent.iterdir()] == ["corrections.sqlite"]


def test_a_write_of_another_process_is_seen_and_so_is_a_replaced_file(
    database: CorrectionDatabase, tmp_path: Path
) -> None:
    memory = TranslationMemory(database.path, ("en", "ko"))
    assert memory.get_index("a") is None
    database.add("a", [("x", "y")], "me")
    first = memory.get_index("a")
    assert first is not None
    assert memory.get_index("a") is first, "it is not read again without a change"
    other = CorrectionDatabase(tmp_path / "other.sqlite")
    other.add("a", [("x", "z")], "me")
    other.close()
    (tmp_path / "other.sqlite").replace(database.path)
    second = memory.get_index("a")
    assert second is not None
    assert [entry.target for entry in second.entries.values()] == ["z"]


def test_a_process_that_is_killed_in_the_middle_of_a_write_loses_that_write_only(tmp_path: Path) -> None:
    """It is killed until once its journal is left behind: the file has a part of the transaction."""
    path, rng = tmp_path / "corrections.sqlite", random.Random(0)
    acknowledged, journal = 0, tmp_path / "corrections.sqlite-journal"
    for _ in range(60):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            printed = process.stdout.readline()
            time.sleep(rng.random() * 0.05)
            os.kill(process.pid, signal.SIGKILL)
            printed += process.stdout.read()
        was_writing = journal.exists() and journal.stat().st_size > 0
        acknowledged = max([acknowledged, *map(int, printed.split())])
        database = CorrectionDatabase(path)
        numbers = [row.number for row in database.list_corrections("s")]
        assert max(numbers) in (acknowledged, acknowledged + 1), "what was acknowledged is there"
        assert all(numbers.count(number) == BATCH for number in set(numbers)), "a call is there as a whole"
        database.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if was_writing:
            return
    pytest.fail("no kill met a write")


def test_the_file_is_in_the_model_folder_or_else_in_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "model"
    folder.mkdir()
    assert find_memory_path(folder) == folder / "memory" / "corrections.sqlite"
    monkeypatch.setattr("os.access", lambda *_: False)
    own = find_memory_path(folder)
    assert own.parent == tmp_path / "data" / "manyheads" / "memory"
    assert own != find_memory_path(tmp_path), "another folder has another file"
    monkeypatch.setattr("manyheads.memory.location.BOX", tmp_path)
    assert find_memory_path(folder) == own.with_name("model.sqlite")
