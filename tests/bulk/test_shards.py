"""Shards of text and Parquet in, shards out: complete or absent."""

import errno
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from manyheads.bulk import outputs
from manyheads.bulk.chunks import Block, RowChunk, group_into_chunks
from manyheads.bulk.jobs import Columns
from manyheads.bulk.outputs import OutputFolder
from manyheads.bulk.shards import Shard, list_shards, pair_shards, read_blocks
from manyheads.errors import DataError, RequestError, ResourceError

DESCRIPTION = {"task": "translate", "options": {"beam": 4}}


def read_rows(shards: Sequence[Shard], columns: Sequence[str | None] = (None,)) -> list[list]:
    """Return the rows of each shard."""
    rows: list[list] = [[] for _ in shards]
    for block in read_blocks(shards, columns, ("en", "ko")[: len(columns)]):
        assert block.first_row == len(rows[block.shard]) + 1
        rows[block.shard] += block.rows
    return rows


def write_parquet(path: Path, **columns: list) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def compute(shards: Sequence[Shard]) -> Iterator[tuple[RowChunk, Columns]]:
    for chunk in group_into_chunks(read_blocks(shards, [None], ["en"]), 3000, num_workers=1):
        yield chunk, {"translation": [row.upper() for row in chunk.rows]}


def fill(folder: OutputFolder) -> list[str]:
    """Write the pending shards, and return their names."""
    with folder.open() as pending:
        list(folder.write(pending, compute(pending)))
        return [shard.name for shard in pending]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.en").write_bytes(b"third\nfourth\r\n\nlast")
    (folder / "a.en.gz").write_bytes(gzip.compress(b"\xef\xbb\xbffirst\nsecond\n"))
    (folder / "deep" / "c.en").write_bytes(b"")
    (folder / "_SUCCESS").touch()
    (folder / ".hidden").touch()
    return folder


def test_shards_of_a_folder_are_read_in_the_order_of_their_names(texts: Path) -> None:
    shards = list_shards([texts])
    assert [shard.name for shard in shards] == ["a.en", "b.en", "deep/c.en"]
    assert read_rows(shards) == [["first", "second"], ["third", "fourth\r", "", "last"], []]


def test_parallel_files_are_read_as_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "a.ko").write_text("하나\n둘\n", encoding="utf-8")
    (tmp_path / "b.ko").write_text("하나\n", encoding="utf-8")
    source, target, short = (list_shards([tmp_path / name]) for name in ("a.en", "a.ko", "b.ko"))
    assert read_rows(pair_shards(source, target), [None, None]) == [[["one", "하나"], ["two", "둘"]]]
    with pytest.raises(DataError, match=r"b.ko has 1 lines, but .*a.en has more"):
        read_rows(pair_shards(source, short), [None, None])


@pytest.mark.parametrize(
    ("columns", "name", "expected"),
    [
        ({"text": ["a", None], "id": [1, 2]}, None, ["a", ""]),
        ({"en": ["a"], "ko": ["b"]}, None, ["a"]),
        ({"translation": [{"en": "a", "ko": "b"}]}, None, ["a"]),
        ({"translation": [{"en": "a", "ko": "b"}]}, "translation.ko", ["b"]),
        ({"a.b": ["c"]}, "a.b", ["c"]),
        ({"text": ["a"], "other": ["two\nlines"]}, "other", ["two\nlines"]),
        ({"text": pa.array(["a", "a"]).dictionary_encode()}, None, ["a", "a"]),
    ],
)
def test_columns_of_parquet_are_found(
    tmp_path: Path, columns: dict, name: str | None, expected: list[str]
) -> None:
    shards = list_shards([write_parquet(tmp_path / "a.parquet", **columns)])
    assert read_rows(shards, [name]) == [expected]


@pytest.mark.parametrize(
    ("columns", "name", "message"),
    [
        ({"de": ["a"]}, None, "none of the columns text, en, translation.en, but de: name it with --column"),
        ({"de": ["a"]}, "fr", "no column fr, but de"),
        ({"text": [1]}, None, "the column text holds int64, but must hold strings"),
        ({"text": [["a"]]}, None, "the column text holds list"),
    ],
)
def test_a_column_that_is_not_there_is_named(
    tmp_path: Path, columns: dict, name: str | None, message: str
) -> None:
    shards = list_shards([write_parquet(tmp_path / "a.parquet", **columns)])
    with pytest.raises(DataError, match=message):
        read_rows(shards, [name])


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"a.parquet: not a valid Parquet file"):
        read_rows(list_shards([tmp_path / "a.parquet"]))


def test_every_text_shard_gets_a_shard(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert fill(OutputFolder(out, list_shards([texts]), DESCRIPTION)) == ["a.en", "b.en", "deep/c.en"]
    assert (out / "a.en").read_bytes() == b"FIRST\nSECOND\n"
    assert (out / "b.en").read_bytes() == b"THIRD\nFOURTH\r\n\nLAST\n"
    assert (out / "deep" / "c.en").read_bytes() == b""
    assert sorted(path.name for path in out.iterdir()) == ["a.en", "b.en", "deep", "job.json"]


def test_parquet_keeps_its_columns_and_gets_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "ROW_GROUP_ROWS", 2000)
    rows = [f"line {n}" for n in range(4500)]
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in" / "a.parquet", id=list(range(4500)), text=rows)
    write_parquet(tmp_path / "in" / "empty.parquet", text=pa.array([], pa.string()))
    fill(OutputFolder(tmp_path / "out", list_shards([tmp_path / "in"]), DESCRIPTION))
    table = pq.read_table(tmp_path / "out" / "a.parquet")
    assert table.column_names == ["id", "text", "translation"]
    assert table["translation"].to_pylist() == [row.upper() for row in rows]
    assert table["id"].to_pylist() == list(range(4500))
    assert pq.ParquetFile(tmp_path / "out" / "a.parquet").num_row_groups == 3
    empty = pq.read_table(tmp_path / "out" / "empty.parquet")
    assert (empty.num_rows, empty.schema.field("translation").type) == (0, pa.string())


def test_a_column_of_the_same_name_is_kept(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", translation=[{"en": "a", "ko": "b"}])
    fill(OutputFolder(tmp_path / "out", list_shards([file]), DESCRIPTION))
    assert pq.read_table(tmp_path / "out" / "a.parquet").to_pylist() == [
        {"translation": {"en": "a", "ko": "b"}, "model_translation": "A"}
    ]


def test_complete_shards_are_skipped_unless_their_input_changes(texts: Path, tmp_path: Path) -> None:
    def create() -> OutputFolder:
        return OutputFolder(tmp_path / "out", list_shards([texts]), DESCRIPTION)

    def stop_in_second(pending: Sequence[Shard]) -> Iterator[tuple[RowChunk, Columns]]:
        for shard in range(2):
            block = next(block for block in read_blocks(pending, [None], ["en"]) if block.shard == shard)
            if shard == 1:
                block = Block(1, block.name, 1, block.rows[:2])
            yield RowChunk(shard, [block]), {"translation": [row.upper() for row in block.rows]}
        raise KeyboardInterrupt

    folder = create()
    with pytest.raises(KeyboardInterrupt), folder.open() as pending:
        list(folder.write(pending, stop_in_second(pending)))
    assert (tmp_path / "out" / "a.en").exists()
    assert not (tmp_path / "out" / "b.en").exists()
    assert fill(create()) == ["b.en", "deep/c.en"]
    assert (tmp_path / "out" / "b.en").read_bytes() == b"THIRD\nFOURTH\r\n\nLAST\n"
    assert fill(create()) == []
    later = (tmp_path / "out" / "b.en").stat().st_mtime + 10
    os.utime(texts / "b.en", (later, later))
    assert fill(create()) == ["b.en"]


def test_the_folder_of_another_job_is_refused(texts: Path, tmp_path: Path) -> None:
    shards = list_shards([texts])
    fill(OutputFolder(tmp_path / "out", shards, DESCRIPTION))
    message = r"holds the shards of another job \(options was {'beam': 4}, and is {'beam': 1} now\)"
    with pytest.raises(DataError, match=message):
        fill(OutputFolder(tmp_path / "out", shards, {**DESCRIPTION, "options": {"beam": 1}}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(DataError, match=r"holds letter.txt and no job.json"):
        fill(OutputFolder(tmp_path / "mine", shards, DESCRIPTION))
    (tmp_path / "out" / "job.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match=r"not the description of a job|another job"):
        fill(OutputFolder(tmp_path / "out", shards, DESCRIPTION))


def test_two_jobs_cannot_write_one_folder(texts: Path, tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "out", list_shards([texts]), DESCRIPTION)
    with folder.open(), pytest.raises(DataError, match="another process is writing it"), folder.open():
        pass


def test_outputs_that_would_replace_files_are_refused(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is an input"):
        OutputFolder(texts, list_shards([texts]), DESCRIPTION)
    with pytest.raises(RequestError, match=r"2 inputs are named b.en"):
        OutputFolder(tmp_path / "out", list_shards([texts / "b.en", texts / "b.en"]), DESCRIPTION)
    with pytest.raises(RequestError, match="the input is stdin"):
        OutputFolder(tmp_path / "out", list_shards([]), DESCRIPTION)


def test_a_full_disk_leaves_complete_shards_only(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: outputs.TextWriter, block: Block, columns: Columns) -> None:
        if block.shard == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.file.writelines(columns["translation"])

    monkeypatch.setattr(outputs.TextWriter, "write", write)
    with pytest.raises(ResourceError, match="the disk is full; complete shards are kept"):
        fill(OutputFolder(tmp_path / "out", list_shards([texts]), DESCRIPTION))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.en", "job.json"]


def test_the_description_is_plain_json(texts: Path, tmp_path: Path) -> None:
    fill(OutputFolder(tmp_path / "out", list_shards([texts]), DESCRIPTION))
    recorded = json.loads((tmp_path / "out" / "job.json").read_text(encoding="utf-8"))
    assert recorded == {"format": 1, **DESCRIPTION}
