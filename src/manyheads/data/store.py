"""The data folder: token arrays that are written as a stream and opened in milliseconds at any size.

A data folder holds `corpus.json` (languages, counts, what was dropped and why, the SHA-256 of every other
file), the subwords, and for each split and side two memory-mapped arrays in NumPy's format:

    train.source.tokens.npy    all sentences with their end tokens       uint16; uint32 above 65,536 pieces
    train.source.offsets.npy   the start of each, and the end of the last   int64 [pairs + 1]

Valid and test are also stored as plain lines: `valid.en`, `valid.ko`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import ManifestSchema, hash_file, read_manifest
from manyheads.data.integrity import check_arrays, check_splits, check_tokens, is_verified, remember_verified
from manyheads.data.subword_regularization import concat_ranges
from manyheads.errors import DataError
from manyheads.text.subwords import SubwordPair, TokenSequences

MANIFEST, DROPPED = "corpus.json", "dropped.tsv"
SIDES = ("source", "target")
MIN_LONGER_SENTENCES = 20  # which a model has seen that supports a length

DATA_SCHEMA = ManifestSchema(
    file_name=MANIFEST,
    format=2,
    folder_type="a data folder",
    keys={"languages": SIDES, "splits": ("train",), "subwords": ("joint",)},
    remedy="prepare the data again",
    required_files=(DROPPED,),
    error=DataError,
)


# ---- writing


class ArrayWriter:
    """Writes a one-dimensional NumPy file piece by piece. The header has space for any length."""

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
    """Writes the tokens and offsets of one side of a split."""

    def __init__(self, folder: Path, split: str, side: str, vocab_size: int) -> None:
        dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
        self.tokens = ArrayWriter(folder / f"{split}.{side}.tokens.npy", dtype)
        self.offsets = ArrayWriter(folder / f"{split}.{side}.offsets.npy", np.int64)
        self.offsets.write(np.zeros(1, np.int64))

    def write(self, sequences: TokenSequences) -> None:
        self.offsets.write(sequences.offsets[1:] + self.tokens.length)
        self.tokens.write(sequences.ids)

    def close(self) -> None:
        self.tokens.close()
        self.offsets.close()


# ---- reading


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a split: sentences as slices of one long array."""

    tokens: NDArray[Any]  # [tokens] uint16 or uint32, mapped
    offsets: NDArray[np.int64]  # [pairs + 1], mapped

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        """Return the ids of a sentence, with the end token."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each sentence, with the end token."""
        return np.diff(self.offsets).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Split:
    """Pairs of token sequences. `parts` are the inputs, in order: name, weight, number of pairs."""

    source: Side
    target: Side
    parts: tuple[tuple[str, float, int], ...]

    def __len__(self) -> int:
        return len(self.source)


def gather_sentences(side: Side, pairs: NDArray[np.int64]) -> TokenSequences:
    """Concatenate the sentences of some pairs."""
    starts = np.asarray(side.offsets[pairs])
    sizes = np.asarray(side.offsets[pairs + 1]) - starts
    return TokenSequences(
        side.tokens[concat_ranges(starts, sizes)].astype(np.int64), np.concatenate([[0], np.cumsum(sizes)])
    )


class Store:
    """A data folder."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.source_language: str = manifest["languages"]["source"]
        self.target_language: str = manifest["languages"]["target"]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a data folder. Only file sizes are compared; `verify` compares contents."""
        here = Path(folder)
        manifest = read_manifest(here, DATA_SCHEMA, hint="; `prepare` makes one")
        check_splits(manifest, here / MANIFEST)
        store = cls(here, manifest)
        for name, expected in store.manifest["files"].items():
            path = here / name
            if Path(name).name != name:
                raise DataError(f"{here / MANIFEST}: lists {name!r}, which is not in the folder")
            size = path.stat().st_size if path.is_file() else None
            if size != expected["bytes"]:
                state = "is missing, or not a file" if size is None else f"has {size:,} bytes"
                raise DataError(
                    f"{path}: {state}, but {MANIFEST} says {expected['bytes']:,}: prepare the data again"
                )
        return store

    def verify(self, progress: Callable[[int], None] = lambda size: None) -> None:
        """Compare the SHA-256 of every file with the manifest."""
        for name, expected in self.manifest["files"].items():
            path = self.folder / name
            if hash_file(path, progress) != expected:
                raise DataError(f"{path}: damaged, {MANIFEST} has another SHA-256: prepare the data again")

    def verify_once(self, progress: Callable[[int], None] = lambda size: None) -> None:
        """Verify the folder, unless that was done and no file has changed since."""
        names = list(self.manifest["files"])
        if is_verified(self.folder, self.manifest["sha256"], names):
            return
        self.verify(progress)
        for split in self.splits:
            for side, subwords in zip(SIDES, (self.subwords.source, self.subwords.target), strict=True):
                stem = self._get_stem(split, side)
                check_tokens(self._load_side(split, side).tokens, len(subwords), stem)
        remember_verified(self.folder, self.manifest["sha256"], names)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the manifest, which holds those of all files."""
        return str(hash_file(self.folder / MANIFEST)["sha256"])

    @property
    def total_bytes(self) -> int:
        return sum(file["bytes"] for file in self.manifest["files"].values())

    @cached_property
    def subwords(self) -> SubwordPair:
        return SubwordPair.load(self.folder)

    @cached_property
    def supported_length(self) -> int:
        """The length of sources, in tokens, that training sees often enough; computed if not stored."""
        stored = self.manifest["splits"]["train"]["source"].get("supported_length")
        return int(stored or measure_supported_length(self._load_side("train", "source").offsets))

    @property
    def splits(self) -> list[str]:
        return list(self.manifest["splits"])

    def load_split(self, name: str) -> Split:
        if name not in self.manifest["splits"]:
            raise DataError(f"{self.folder}: no split {name!r}; it has {', '.join(self.splits)}")
        source, target = (self._load_side(name, side) for side in SIDES)
        described = self.manifest["splits"][name]
        parts = tuple((part["name"], part["weight"], part["kept"]) for part in described["inputs"])
        if not len(source) == len(target) == described["pairs"] == sum(kept for _, _, kept in parts):
            raise DataError(
                f"{self.folder}: {name} has {len(source):,} sources, {len(target):,} targets and "
                f"{described['pairs']:,} pairs in {MANIFEST}: prepare the data again"
            )
        return Split(source, target, parts)

    def _load_side(self, split: str, side: str) -> Side:
        stem = self._get_stem(split, side)
        arrays = load_mapped_array(f"{stem}.tokens.npy"), load_mapped_array(f"{stem}.offsets.npy")
        check_arrays(*arrays, stem)
        return Side(*arrays)

    def _get_stem(self, split: str, side: str) -> str:
        return f"{self.folder}/{split}.{side}"

    def read_text(self, split: str) -> tuple[list[str], list[str]]:
        """Return the source and target lines of valid or test."""
        source, target = (
            self._read_lines(split, code) for code in (self.source_language, self.target_language)
        )
        num_pairs = self.manifest["splits"][split]["pairs"]
        if not len(source) == len(target) == num_pairs:
            raise DataError(
                f"{self.folder}: {split} has {len(source):,} source lines, {len(target):,} target lines and "
                f"{num_pairs:,} pairs in {MANIFEST}: prepare the data again"
            )
        return source, target

    def read_test_set(self) -> tuple[str, list[str], list[str]]:
        """Return the split to report scores of, test or else valid, and its source and target lines."""
        split = "test" if "test" in self.splits else "valid"
        sources, targets = self.read_text(split)
        if not sources:
            raise DataError(f"{self.folder}: {split} has no pairs: prepare the data again")
        return split, sources, targets

    def _read_lines(self, split: str, language: str) -> list[str]:
        path = self.folder / f"{split}.{language}"
        try:
            return path.read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: damaged ({error}): prepare the data again") from None


def measure_supported_length(offsets: NDArray[np.integer[Any]]) -> int:
    """Return a length that about 0.1 % of the sentences exceed, at least 20 of them, but at most 2 %."""
    lengths = np.diff(offsets)
    if not len(lengths):
        return 0
    num_longer = min(max(MIN_LONGER_SENTENCES, len(lengths) // 1000), len(lengths) // 50)
    return int(np.partition(lengths, len(lengths) - 1 - num_longer)[len(lengths) - 1 - num_longer])


def load_mapped_array(path: str) -> NDArray[Any]:
    try:
        with np.errstate(all="ignore"):  # of a shape that overflows, which is an error below
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (
        OSError,
        ValueError,
        EOFError,
        SyntaxError,
        TypeError,
        ArithmeticError,
        RecursionError,
        MemoryError,
    ) as error:
        raise DataError(f"{path}: not a token array ({error}): prepare the data again") from None
    return array
