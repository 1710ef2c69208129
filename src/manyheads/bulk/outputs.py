"""The output of a bulk job: lines on stdout, or a folder with a shard for every shard of the input.

A shard in a folder is written aside and renamed, so it is complete or absent. The same job on the same folder
skips what is complete, so that a job that was stopped goes on.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from manyheads.atomic_io import (
    DISK_FULL_ERRNOS,
    acquire_lock,
    clear_temporary_file,
    fsync_path,
    write_text_atomically,
)
from manyheads.bulk.chunks import Block, RowChunk
from manyheads.bulk.jobs import COLUMN_TYPES, Columns
from manyheads.bulk.shards import Shard, import_parquet
from manyheads.errors import DataError, RequestError, ResourceError
from manyheads.text.plain_lines import STDIN
from manyheads.text.segmentation import LINE_BREAKS

JOB_FILE = "job.json"
FORMAT = 1
ROW_GROUP_ROWS = 64_000


def split_columns(chunk: RowChunk, columns: Columns) -> Iterator[tuple[Block, Columns]]:
    """Divide the results of a chunk among its blocks."""
    start = 0
    for block in chunk.blocks:
        end = start + len(block.rows)
        yield block, {name: values[start:end] for name, values in columns.items()}
        start = end


def format_lines(columns: Columns) -> Iterator[str]:
    """Return the lines of the only column. A text of several lines, as in Parquet, becomes one.

    None stands for a row without a line.
    """
    (values,) = columns.values()
    present = (value for value in values if value is not None)
    return (LINE_BREAKS.sub(" ", value) if "\n" in value else value for value in present)


def write_lines(results: Iterable[tuple[RowChunk, Columns]], stream: IO[str]) -> Iterator[int]:
    """Write all results as lines; yield the rows of each chunk."""
    for chunk, columns in results:
        stream.write("".join(f"{line}\n" for line in format_lines(columns)))
        stream.flush()
        yield len(chunk.rows)


# ---- a folder of shards


class ShardWriter(Protocol):
    """Writes one shard."""

    def write(self, block: Block, columns: Columns) -> None: ...

    def close(self) -> None: ...


class TextWriter:
    """Writes lines to a file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, block: Block, columns: Columns) -> None:
        self.file.writelines(f"{line}\n" for line in format_lines(columns))

    def close(self) -> None:
        self.file.close()


class ParquetWriter:
    """Writes the columns of the input and the results beside them."""

    def __init__(self, path: Path) -> None:
        self.path, self.parquet = path, import_parquet(path)
        self.writer: Any = None
        self.tables: list[Any] = []  # of blocks, until there are enough for a row group
        self.num_rows = 0

    def write(self, block: Block, columns: Columns) -> None:
        import pyarrow

        table = pyarrow.Table.from_batches([block.record]) if block.record is not None else pyarrow.table({})
        for name, values in columns.items():
            array = pyarrow.array(values, COLUMN_TYPES.get(name))
            table = table.append_column(choose_name(name, table.column_names), array)
        self.tables.append(table)
        self.num_rows += len(block.rows)
        if self.num_rows >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        import pyarrow

        table = pyarrow.concat_tables(self.tables)
        if self.writer is None:
            self.writer = self.parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)
        self.tables, self.num_rows = [], 0

    def close(self) -> None:
        if self.tables:
            self._write_row_group()
        if self.writer is not None:
            self.writer.close()


def choose_name(name: str, used: Sequence[str]) -> str:
    """Return the name of a new column. Where the input has one of this name, model_ is put before it."""
    if name not in used:
        return name
    if f"model_{name}" in used:
        raise DataError(f"the input has columns named {name} and model_{name} already: rename one of them")
    return f"model_{name}"


class OutputFolder:
    """A folder of shards that one job fills."""

    def __init__(self, folder: Path, shards: Sequence[Shard], description: dict[str, Any]) -> None:
        """`description` is what must be the same for a job that goes on."""
        self.folder, self.shards, self.description = folder, shards, description
        if any(shard.files[0] == STDIN for shard in shards):
            raise RequestError("--out writes a shard for every file of the input, but the input is stdin")
        name, count = Counter(shard.name for shard in shards).most_common(1)[0]
        if count > 1:
            raise RequestError(f"{count} inputs are named {name}, and --out would write one file for all")
        sources = {file.resolve() for shard in shards for file in shard.files}
        if overwritten := [shard for shard in shards if self.path(shard).resolve() in sources]:
            raise RequestError(f"{self.path(overwritten[0])}: is an input: give another folder with --out")
        self._writer: ShardWriter | None = None

    def path(self, shard: Shard) -> Path:
        return self.folder / shard.name

    @contextmanager
    def open(self) -> Iterator[list[Shard]]:
        """Lock the folder; return the shards that are not yet written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            acquire_lock(handle, self.folder)
            self._check_job()
            yield [shard for shard in self.shards if not self._is_complete(shard)]
        finally:
            os.close(handle)

    def _check_job(self) -> None:
        """Record the job in a new folder; refuse the folder of another job."""
        path = self.folder / JOB_FILE
        wanted = {"format": FORMAT, **self.description}
        if not path.exists():
            if foreign := [
                file.name for file in sorted(self.folder.iterdir()) if not file.name.startswith(".")
            ]:
                raise DataError(f"{self.folder}: holds {foreign[0]} and no {JOB_FILE}: give an empty folder")
            with report_full_disk(path):
                write_text_atomically(path, json.dumps(wanted, ensure_ascii=False, indent=1) + "\n")
            return
        try:
            recorded = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise DataError(f"{path}: not the description of a job: give another folder") from None
        for key in sorted({*wanted, *recorded}):
            if recorded.get(key) != wanted.get(key):
                raise DataError(
                    f"{self.folder}: holds the shards of another job ({key} was {recorded.get(key)!r}, "
                    f"and is {wanted.get(key)!r} now): give another folder"
                )

    def _is_complete(self, shard: Shard) -> bool:
        """Return whether a shard was written, and its input has not changed since."""
        path = self.path(shard)
        return path.exists() and all(file.stat().st_mtime <= path.stat().st_mtime for file in shard.files)

    def write(self, pending: Sequence[Shard], results: Iterable[tuple[RowChunk, Columns]]) -> Iterator[int]:
        """Write the results of pending shards; yield the rows of each chunk."""
        try:
            for chunk, columns in results:
                for block, own in split_columns(chunk, columns):
                    self._write_block(pending[block.shard], block, own)
                yield len(chunk.rows)
        finally:
            if self._writer is not None:  # in the middle of a shard
                with suppress(OSError):  # a full disk is reported already
                    self._writer.close()

    def _write_block(self, shard: Shard, block: Block, columns: Columns) -> None:
        path = self.path(shard)
        temporary = path.with_name(f".{path.name}.manyheads-part")
        with report_full_disk(temporary):
            if self._writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                clear_temporary_file(temporary)
                self._writer = (ParquetWriter if shard.format == "parquet" else TextWriter)(temporary)
            self._writer.write(block, columns)
            if block.is_last:
                self._writer.close()
                self._writer = None
                fsync_path(temporary)
                temporary.replace(path)
                fsync_path(path.parent)


@contextmanager
def report_full_disk(temporary: Path) -> Iterator[None]:
    """Remove an incomplete file that does not fit on the disk. Complete shards are kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        temporary.unlink(missing_ok=True)
        raise ResourceError(
            f"{temporary.parent}: the disk is full; complete shards are kept: free some space, and run the "
            f"same command again"
        ) from None
