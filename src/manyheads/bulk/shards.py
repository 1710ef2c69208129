"""The input of a bulk job: shards of text or Parquet, read block by block."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal

from manyheads.bulk.chunks import FIRST_CHUNK_ROWS, Block
from manyheads.bulk.jobs import Row
from manyheads.errors import DataError, RequestError, install_command
from manyheads.text.input_files import strip_compression_suffix
from manyheads.text.plain_lines import STDIN, read_plain_lines

PARQUET_SUFFIXES = (".parquet", ".pq")
PAIR_SUFFIX = ".tsv"  # of synthetic pairs
HIDDEN_PREFIXES = (".", "_")  # of files in a folder that are not data, such as _SUCCESS

RowBlock = tuple[list[Row], Any]  # rows, and the record batch that they come from


@dataclass(frozen=True)
class Shard:
    """A file of rows, or two parallel files of text."""

    name: str  # of its output in a folder: the path below the folder that was given
    files: tuple[Path, ...]
    format: Literal["text", "parquet"]

    def __str__(self) -> str:
        return str(self.files[0])


# ---- finding shards


def list_shards(paths: Sequence[Path]) -> list[Shard]:
    """Return the shards in files and folders, or stdin; those of a folder in the order of their names."""
    shards = []
    for path in paths or [STDIN]:
        if path.is_dir():
            shards += [create_shard(name, path / name) for name in list_folder(path)]
        elif path != STDIN and not path.exists():
            raise DataError(f"{path}: No such file or directory")
        else:
            shards.append(create_shard(path.name, path))
    return shards


def list_folder(folder: Path) -> list[str]:
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [
        file.as_posix() for file in files if not any(part.startswith(HIDDEN_PREFIXES) for part in file.parts)
    ]
    if not names:
        raise DataError(f"{folder}: holds no files")
    return names


def create_shard(name: str, file: Path) -> Shard:
    plain_name = strip_compression_suffix(name)
    if plain_name.suffix in PARQUET_SUFFIXES:
        if plain_name != Path(name):
            raise DataError(f"{file}: Parquet is compressed inside; decompress the file")
        return Shard(name, (file,), "parquet")
    return Shard(plain_name.as_posix(), (file,), "text")


def pair_shards(sources: Sequence[Shard], targets: Sequence[Shard]) -> list[Shard]:
    """Join the shards of sources and of their translations, in the same order."""
    if len(sources) != len(targets):
        raise DataError(f"{len(sources)} shards of sources, but {len(targets)} of translations")
    for shard in (*sources, *targets):
        if shard.format == "parquet":
            raise RequestError(
                f"{shard}: a Parquet file holds both sides: give one file, --source-column and "
                f"--target-column"
            )
    return [
        Shard(source.name, (*source.files, *target.files), "text")
        for source, target in zip(sources, targets, strict=True)
    ]


def rename_to_pairs(shards: Sequence[Shard]) -> list[Shard]:
    """Return shards of text with the names of their pairs: mono.de becomes mono.de.tsv."""
    for shard in shards:
        if shard.format != "text":
            raise RequestError(f"{shard}: back-translation reads plain text, one sentence a line")
    return [replace(shard, name=f"{shard.name}{PAIR_SUFFIX}") for shard in shards]


# ---- reading shards


def read_blocks(
    shards: Iterable[Shard], columns: Sequence[str | None], languages: Sequence[str]
) -> Iterator[Block]:
    """Read the blocks of all shards in order.

    columns    of Parquet: the text, or a source and its translation; None: as `find_column` finds it
    languages  of the columns
    """
    for index, shard in enumerate(shards):
        batches = read_parquet(shard, columns, languages) if shard.format == "parquet" else read_text(shard)
        first_row, block = 1, next(batches, None)
        if block is None:
            yield Block(index, str(shard), first_row, [], is_last=True)
        while block is not None:
            (rows, record), block = block, next(batches, None)
            yield Block(index, str(shard), first_row, rows, record, is_last=block is None)
            first_row += len(rows)


def read_text(shard: Shard) -> Iterator[RowBlock]:
    rows: Iterator[Row] = read_plain_lines(shard.files[0])
    if len(shard.files) == 2:
        rows = read_parallel(*shard.files)
    while batch := list(islice(rows, FIRST_CHUNK_ROWS)):
        yield batch, None


def read_parallel(source: Path, target: Path) -> Iterator[Row]:
    pairs = zip_longest(read_plain_lines(source), read_plain_lines(target))
    for number, (source_line, target_line) in enumerate(pairs, 1):
        if source_line is None or target_line is None:
            short, long = (source, target) if source_line is None else (target, source)
            raise DataError(f"{short} has {number - 1} lines, but {long} has more")
        yield [source_line, target_line]


# ---- Parquet


def import_parquet(file: object) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(f"{file}: Parquet needs the package pyarrow: {install_command('parquet')}") from None
    return parquet


def read_parquet(shard: Shard, columns: Sequence[str | None], languages: Sequence[str]) -> Iterator[RowBlock]:
    """Read the text of columns. What is null is read as empty."""
    parquet = import_parquet(shard)
    (file,) = shard.files
    try:
        reader = parquet.ParquetFile(file)
        sides = ("text",) if len(columns) == 1 else ("source", "target")
        paths = [
            find_column(shard, reader.schema_arrow, name, (side, language, f"translation.{language}"))
            for name, side, language in zip(columns, sides, languages, strict=True)
        ]
        for record in reader.iter_batches(batch_size=FIRST_CHUNK_ROWS):
            texts = [[value or "" for value in get_values(record, path)] for path in paths]
            rows: list[Row] = [*texts[0]] if len(texts) == 1 else [[*row] for row in zip(*texts, strict=True)]
            yield rows, record
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        if isinstance(error, OSError) and error.errno:
            raise
        raise DataError(f"{file}: not a valid Parquet file ({str(error).splitlines()[0]})") from None


def find_column(shard: Shard, schema: Any, name: str | None, candidates: Sequence[str]) -> list[str]:
    """Return the path of a column of text: by its name, or else the first candidate that there is.

    `translation.en` is the field en of the column translation.
    """
    for candidate in [name] if name else candidates:
        for path in ([candidate], candidate.split(".")):
            if (field := find_field(schema, path)) is not None:
                if not is_text(str(field.type)):
                    raise DataError(
                        f"{shard}: the column {candidate} holds {field.type}, but must hold strings"
                    )
                return path
    listed = ", ".join(schema.names)[:200]
    wanted = f"no column {name}" if name else f"none of the columns {', '.join(candidates)}"
    raise DataError(f"{shard}: has {wanted}, but {listed}: name it with --column")


def find_field(fields: Iterable[Any], path: Sequence[str]) -> Any:
    """Return the field of a schema or of a struct, or None."""
    for field in fields:
        if field.name == path[0]:
            if not path[1:]:
                return field
            return find_field(field.type, path[1:]) if str(field.type).startswith("struct") else None
    return None


def is_text(data_type: str) -> bool:
    return "string" in data_type and not data_type.startswith(("list", "large_list", "struct", "map"))


def get_values(record: Any, path: Sequence[str]) -> list[str | None]:
    import pyarrow.compute

    column = record.column(path[0])
    if path[1:]:
        column = pyarrow.compute.struct_field(column, list(path[1:]))
    values: list[str | None] = column.to_pylist()
    return values
