"""Token arrays on disk: written as a stream, complete or absent, opened in milliseconds at any size.

A data folder holds `corpus.json` (languages, counts, what was dropped and why, the SHA-256 of every other
file), the subwords, and for each split and side two arrays in NumPy's own format, mapped into memory:

    train.source.tokens.npy    every sentence and its end, in one row    uint16; uint32 above 65,536 pieces
    train.source.offsets.npy   where each begins, and the last ends      int64 [pairs + 1]

With valid and test lie their texts, `valid.en` and `valid.ko`, as plain lines.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import hash_file, hash_files
from manyheads.errors import DataError
from manyheads.text.subwords import SubwordPair, TokenSequences

FORMAT = 1
MANIFEST, DROPPED = "corpus.json", "dropped.tsv"
SIDES = ("source", "target")


# ---- writing


class ArrayWriter:
    """A NumPy file of one row that grows as it is written. Its header keeps room for any length."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self.dtype, self.length = np.dtype(dtype), 0
        self.file: IO[bytes] = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def write(self, values: NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.close()


class SideWriter:
    """The tokens and offsets of one side of a split."""

    def __init__(self, folder: Path, split: str, side: str, vocab_size: int) -> None:
        narrow = vocab_size <= 1 << 16
        self.tokens = ArrayWriter(folder / f"{split}.{side}.tokens.npy", np.uint16 if narrow else np.uint32)
        self.offsets = ArrayWriter(folder / f"{split}.{side}.offsets.npy", np.int64)
        self.offsets.write(np.zeros(1, np.int64))

    def write(self, pieces: TokenSequences) -> None:
        self.offsets.write(pieces.offsets[1:] + self.tokens.length)
        self.tokens.write(pieces.ids)

    def close(self) -> None:
        self.tokens.close()
        self.offsets.close()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Last of all: the description, with the size and SHA-256 of every file."""
    text = json.dumps(
        {"format": FORMAT, **manifest, "files": hash_files(folder)}, ensure_ascii=False, indent=1
    )
    (folder / MANIFEST).write_bytes((text + "\n").encode("utf-8", "backslashreplace"))  # odd file names


# ---- reading


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a split: sentences as slices of one long array."""

    tokens: NDArray[Any]  # [tokens] uint16 or uint32, mapped
    offsets: NDArray[np.int64]  # [pairs + 1], mapped

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, pair: int) -> NDArray[Any]:
        """A sentence's ids with the end."""
        return self.tokens[self.offsets[pair] : self.offsets[pair + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence, end included."""
        return np.diff(self.offsets).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Split:
    """Pairs of token sequences, in the order of the inputs that they came from: name, weight, pairs."""

    source: Side
    target: Side
    parts: tuple[tuple[str, float, int], ...]

    def __len__(self) -> int:
        return len(self.source)


class Store:
    """A data folder."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.source_language: str = manifest["languages"]["source"]
        self.target_language: str = manifest["languages"]["target"]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """In milliseconds: sizes are compared, contents are not (`verify` does)."""
        here = Path(folder)
        store = cls(here, read_manifest(here))
        for name, stated in store.manifest["files"].items():
            size = (here / name).stat().st_size if (here / name).exists() else None
            if size != stated["bytes"]:
                found = "is missing" if size is None else f"has {size:,} bytes"
                raise DataError(
                    f"{here / name}: {found}, but {MANIFEST} says {stated['bytes']:,}: prepare the data again"
                )
        return store

    def verify(self, progress: Callable[[int], None] = lambda size: None) -> None:
        """Every byte against its checksum."""
        for name, stated in self.manifest["files"].items():
            if hash_file(self.folder / name, progress) != stated:
                path = self.folder / name
                raise DataError(f"{path}: damaged, {MANIFEST} has another SHA-256: prepare the data again")

    @property
    def sha256(self) -> str:
        """Of the description, and through it of everything."""
        return str(hash_file(self.folder / MANIFEST)["sha256"])

    @property
    def total_bytes(self) -> int:
        return sum(stated["bytes"] for stated in self.manifest["files"].values())

    @cached_property
    def subwords(self) -> SubwordPair:
        return SubwordPair.load(self.folder)

    @property
    def splits(self) -> list[str]:
        return list(self.manifest["splits"])

    def load_split(self, name: str) -> Split:
        if name not in self.manifest["splits"]:
            raise DataError(f"{self.folder}: no split {name!r}; it has {', '.join(self.splits)}")
        source, target = (self._load_side(name, side) for side in SIDES)
        stated = self.manifest["splits"][name]
        parts = tuple((part["name"], part["weight"], part["kept"]) for part in stated["inputs"])
        if not len(source) == len(target) == stated["pairs"] == sum(kept for _, _, kept in parts):
            raise DataError(
                f"{self.folder}: {name} has {len(source):,} sources, {len(target):,} targets and "
                f"{stated['pairs']:,} pairs in {MANIFEST}: prepare the data again"
            )
        return Split(source, target, parts)

    def _load_side(self, split: str, side: str) -> Side:
        stem = f"{self.folder}/{split}.{side}"
        return Side(load_mapped_array(f"{stem}.tokens.npy"), load_mapped_array(f"{stem}.offsets.npy"))

    def read_text(self, split: str) -> tuple[list[str], list[str]]:
        """The lines of valid or test as they were before they became subwords."""
        source, target = (
            self._read_lines(split, code) for code in (self.source_language, self.target_language)
        )
        return source, target

    def _read_lines(self, split: str, language: str) -> list[str]:
        return (self.folder / f"{split}.{language}").read_text(encoding="utf-8").split("\n")[:-1]


def load_mapped_array(path: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as fault:
        raise DataError(f"{path}: not an array of ours ({fault}): prepare the data again") from None
    return array


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        number = manifest["format"]
    except OSError as fault:
        raise DataError(
            f"{folder}: no data folder ({MANIFEST}: {fault.strerror}); `prepare` makes one"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{folder / MANIFEST}: not the description of a data folder") from None
    if not isinstance(number, int) or number > FORMAT:
        raise DataError(
            f"{folder}: written in format {number}, but this version reads up to {FORMAT}: update manyheads"
        )
    sound = {
        "languages": has_keys(manifest.get("languages"), "source", "target"),
        "splits": has_keys(manifest.get("splits"), "train"),
        "subwords": has_keys(manifest.get("subwords"), "joint"),
        "files": has_keys(manifest.get("files"), DROPPED)
        and all(map(is_fingerprint, manifest["files"].values())),
    }
    wrong = [name for name, good in sound.items() if not good]
    if wrong:
        raise DataError(f"{folder / MANIFEST}: has no sound {', '.join(wrong)}: prepare the data again")
    return dict(manifest)


def has_keys(found: Any, *keys: str) -> bool:
    return isinstance(found, dict) and all(key in found for key in keys)


def is_fingerprint(found: Any) -> bool:
    return has_keys(found, "bytes", "sha256") and isinstance(found["bytes"], int)
