"""The SQLite file of corrections: who, when, undo, and spaces of users that never mix.

One row is one correction. Nothing is ever overwritten: a newer correction of the same source takes the place
of the older one, and when it is undone, the older one is in force again.

The journal is a rollback journal, not a write-ahead log: between transactions all data is in the one file, so
that copying it is a backup. A process that is killed in the middle of a write leaves its journal behind, and
the next one to open the file takes the incomplete transaction back. Each commit is synced to the disk.
"""

import getpass
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from manyheads.errors import DataError, RequestError, ResourceError

DEFAULT_SPACE = "default"
SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
FORMAT = 1
JOURNALS = ("-journal", "-wal", "-shm")  # what SQLite may read beside a file
APPLICATION_ID = 0x4D48434D  # "MHCM", which marks the file as ours
BUSY_SECONDS = 10.0  # for another process to finish its write
MAX_TEXT_CHARACTERS = 100_000  # of a side of a correction
SCHEMA = """
CREATE TABLE corrections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space TEXT NOT NULL,
    number INTEGER NOT NULL,  -- of the call that added it, which is undone as a whole
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    who TEXT NOT NULL,
    created REAL NOT NULL,  -- seconds since 1970, UTC
    undone REAL  -- NULL: in force
);
CREATE INDEX corrections_of_space ON corrections (space, id);
"""
STATEMENTS = frozenset(statement.strip() for statement in SCHEMA.split(";") if statement.strip())
# Types are a recommendation to SQLite: a file from elsewhere may hold anything.
VALID_ROW = " AND ".join(
    [
        *(f"typeof({name}) = 'text'" for name in ("space", "source", "target", "who")),
        "typeof(number) = 'integer'",
        "typeof(created) = 'real' AND created BETWEEN 0 AND 1e11",
        "(undone IS NULL OR typeof(undone) = 'real')",
    ]
)
COLUMNS = "number, source, target, who, created, undone"


class Correction(NamedTuple):
    """A row of the file."""

    number: int
    source: str
    target: str
    who: str
    created: float
    undone: float | None = None

    @property
    def when(self) -> str:
        """The time in UTC by ISO 8601."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.created))


def check_space(space: str) -> str:
    if not SPACE_NAME.fullmatch(space):
        raise RequestError(
            f"the space is {space[:80]!r}, but must be 1 to 64 letters, digits, dots, hyphens, underscores "
            f"or @, and begin with a letter or a digit"
        )
    return space


def get_user_name() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without an entry
        return "unknown"


class CorrectionDatabase:
    """The file, opened when it is first needed. Several threads and processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.connection: sqlite3.Connection | None = None
        self.identity: tuple[int, int] | None = None  # of the open file

    # ---- reading

    def get_version(self) -> tuple[int, ...] | None:
        """Return what changes when another process or thread writes; None without a file."""
        with self.lock, report_errors(self.path):
            connection = self._connect(create=False)
            if connection is None:
                return None
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            return (*self.identity, version, connection.total_changes)  # type: ignore[misc]

    def list_corrections(self, space: str, *, with_undone: bool = False) -> list[Correction]:
        """Return the corrections of a space, the oldest first."""
        condition = "" if with_undone else "AND undone IS NULL"
        return self._read(f"SELECT {COLUMNS} FROM corrections WHERE space = ? {condition} ORDER BY id", space)

    def list_spaces(self) -> list[str]:
        with self.lock, report_errors(self.path):
            connection = self._connect(create=False)
            if connection is None:
                return []
            rows = connection.execute("SELECT DISTINCT space FROM corrections ORDER BY space")
            return [space for (space,) in rows]

    def count_since(self, space: str, seconds: float) -> int:
        """Return how many corrections were added to a space in the last seconds, undone ones included."""
        with self.lock, report_errors(self.path):
            connection = self._connect(create=False)
            if connection is None:
                return 0
            query = "SELECT count(*) FROM corrections WHERE space = ? AND created > ?"
            (count,) = connection.execute(query, (space, time.time() - seconds)).fetchone()
            return int(count)

    def _read(self, query: str, *values: object) -> list[Correction]:
        with self.lock, report_errors(self.path):
            connection = self._connect(create=False)
            return (
                [] if connection is None else [Correction(*row) for row in connection.execute(query, values)]
            )

    def to_bytes(self) -> bytes:
        """Return the content of the file, complete even while others write to it; b"" without a file."""
        with self.lock, report_errors(self.path):
            connection = self._connect(create=False)
            return b"" if connection is None else connection.serialize()

    # ---- writing

    def add(self, space: str, pairs: Sequence[tuple[str, str]], who: str) -> int:
        """Add corrections, all or none of them. Return the number by which they can be undone."""
        check_space(space)
        for source, target in pairs:
            check_pair(source, target)
        with self._write() as connection:
            query = "SELECT coalesce(max(number), 0) + 1 FROM corrections WHERE space = ?"
            (number,) = connection.execute(query, (space,)).fetchone()
            now = time.time()
            connection.executemany(
                "INSERT INTO corrections (space, number, source, target, who, created) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(space, number, source, target, who, now) for source, target in pairs],
            )
            return int(number)

    def undo(self, space: str, number: int | None = None) -> list[Correction]:
        """Take back the corrections of a call, by default of the last one that is in force. Return them."""
        with self._write() as connection:
            if number is None:
                query = "SELECT max(number) FROM corrections WHERE space = ? AND undone IS NULL"
                (number,) = connection.execute(query, (space,)).fetchone()
            rows = connection.execute(
                f"UPDATE corrections SET undone = ? WHERE space = ? AND number = ? AND undone IS NULL "
                f"RETURNING {COLUMNS}",
                (time.time(), space, number),
            ).fetchall()
        return sorted(Correction(*row) for row in rows)

    def undo_source(self, space: str, source: str) -> bool:
        """Take back the newest correction of a source. Return whether there was one."""
        with self._write() as connection:
            rows = connection.execute(
                "UPDATE corrections SET undone = ? WHERE id = (SELECT max(id) FROM corrections "
                "WHERE space = ? AND source = ? AND undone IS NULL) RETURNING id",
                (time.time(), space, source),
            ).fetchall()
        return bool(rows)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that others see whole or not at all."""
        with self.lock, report_errors(self.path):
            connection = self._connect(create=True)
            assert connection is not None
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite itself takes it back if the disk is full
                    connection.execute("ROLLBACK")
                raise

    # ---- the file

    def close(self) -> None:
        with self.lock:
            if self.connection is not None:
                self.connection.close()
            self.connection = self.identity = None

    def _connect(self, create: bool) -> sqlite3.Connection | None:
        """Return the connection to the file, which may have been replaced; None if there is none."""
        identity = identify_file(self.path)
        if identity is None or identity != self.identity:
            self.close()
        if self.connection is None and (identity is not None or create):
            if identity is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = open_connection(self.path, create)
            self.identity = identify_file(self.path)
        return self.connection


def identify_file(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_connection(path: Path, create: bool) -> sqlite3.Connection:
    """Open the file, take back what a killed process left incomplete, and check that it is ours."""
    for suffix in JOURNALS:  # SQLite would wait for a FIFO without an end
        journal = path.with_name(f"{path.name}{suffix}")
        if os.path.lexists(journal) and not stat.S_ISREG(journal.lstat().st_mode):
            raise DataError(f"{journal}: is not a file, but a FIFO, a device, a link or a folder: remove it")
    mode = "rwc" if create else "rw" if os.access(path, os.W_OK) else "ro"
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA synchronous = EXTRA")  # a deleted journal stays deleted after power loss
        if not read_pragma(connection, "application_id"):
            create_schema(connection, path)
        check_format(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def create_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table in an empty file, unless another process has done so meanwhile."""
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN IMMEDIATE")
    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not num_tables:
        for statement in sorted(STATEMENTS, reverse=True):  # the table before its index
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    if read_pragma(connection, "application_id") != APPLICATION_ID:
        raise DataError(f"{path}: not a translation memory of manyheads: move it away")
    version = read_pragma(connection, "user_version")
    if version != FORMAT:
        raise DataError(f"{path}: format {version}, but this version reads format {FORMAT}: update manyheads")
    rows = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'"
    )
    if {
        sql for (sql,) in rows
    } != STATEMENTS:  # such as a trigger or a view, which would run with our queries
        raise DataError(f"{path}: has other tables than a translation memory: restore a backup")
    (num_wrong,) = connection.execute(f"SELECT count(*) FROM corrections WHERE NOT ({VALID_ROW})").fetchone()
    if num_wrong:
        raise DataError(f"{path}: {num_wrong} rows are not corrections: restore a backup")


def read_pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def check_pair(source: str, target: str) -> None:
    """Refuse a correction that is empty or too long."""
    for side, text in (("source", source), ("target", target)):
        if not text.strip():
            raise DataError(f"the {side} of a correction is empty")
        if len(text) > MAX_TEXT_CHARACTERS:
            raise DataError(
                f"the {side} of a correction has {len(text):,} characters, but at most "
                f"{MAX_TEXT_CHARACTERS:,} are stored: correct a part of it"
            )


@contextmanager
def report_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        message = str(error)
        if "full" in message:
            raise ResourceError(f"{path}: the disk is full; nothing was changed") from None
        if "locked" in message:
            raise ResourceError(
                f"{path}: another process has been writing for {BUSY_SECONDS:g} seconds: try again"
            ) from None
        raise RequestError(f"{path}: cannot be opened or written ({message})") from None
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path}: damaged, or not a translation memory ({error}): restore a backup") from None
    except PermissionError as error:
        raise RequestError(f"{path}: cannot be written ({error.strerror})") from None
