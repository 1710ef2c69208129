"""Chunks: the rows that a worker takes at once, which may come from several shards."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from manyheads.bulk.jobs import Row

FIRST_CHUNK_ROWS = 1000  # small, so that every worker has something to do early and short inputs are divided
MAX_CHUNK_ROWS = {"cpu": 5000, "cuda": 20_000}  # large enough to keep an engine busy


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a shard."""

    shard: int
    name: str  # of the shard, for messages
    first_row: int  # from 1
    rows: list[Row]
    record: Any = None  # the record batch of a Parquet shard, which the output repeats
    is_last: bool = False  # of its shard


@dataclass
class RowChunk:
    """Blocks that one worker takes at once."""

    index: int
    blocks: list[Block]
    attempts: int = 0  # workers that died with it
    rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [row for block in self.blocks for row in block.rows]

    def describe(self) -> str:
        """Return where its rows come from."""
        full = [block for block in self.blocks if block.rows] or self.blocks
        first, last = full[0], full[-1]
        last_row = last.first_row + len(last.rows) - 1
        if first.shard == last.shard:
            return f"{first.name}, lines {first.first_row:,} to {last_row:,}"
        return f"{first.name}, line {first.first_row:,}, to {last.name}, line {last_row:,}"


def group_into_chunks(blocks: Iterable[Block], max_rows: int, num_workers: int) -> Iterator[RowChunk]:
    """Group blocks, which have at most FIRST_CHUNK_ROWS rows each, into chunks that grow up to a limit."""
    index, waiting, num_rows = 0, list[Block](), 0
    for block in blocks:
        limit = min(max_rows, FIRST_CHUNK_ROWS << min(index // num_workers, 10))
        if waiting and num_rows + len(block.rows) > limit:
            yield RowChunk(index, waiting)
            index, waiting, num_rows = index + 1, [], 0
        waiting.append(block)
        num_rows += len(block.rows)
    if waiting:
        yield RowChunk(index, waiting)
