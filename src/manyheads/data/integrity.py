"""Damaged data folders: what is checked whenever one is opened, and what once for each content.

Always: the manifest, the sizes of files, and the offsets. Before training, evaluation and calibration also
the SHA-256 of every file, and that every token is in the vocabulary. That is remembered in the folder, with
what the file system says of each file, until one of them changes.
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import read_regular, write_text_atomically
from manyheads.errors import DataError

VERIFIED = ".verified.json"  # not in the manifest: it says something about this copy of the folder
MAX_VERIFIED_BYTES = 2**20
BLOCK = 2**22  # numbers that are looked at together
REMEDY = "prepare the data again"


# ---- the manifest


def check_splits(manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse a manifest whose languages or splits do not have what readers of the folder need."""
    if not all(isinstance(code, str) and code for code in manifest["languages"].values()):
        raise DataError(f"{path}: has no valid languages: {REMEDY}")
    for name, split in manifest["splits"].items():
        if not isinstance(split, dict):
            raise DataError(f"{path}: has no valid splits.{name}: {REMEDY}")
        wrong = [key for key, is_valid in SPLIT_KEYS.items() if not is_valid(split.get(key))]
        if wrong:
            raise DataError(f"{path}: has no valid splits.{name}.{wrong[0]}: {REMEDY}")


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_side(value: Any) -> bool:
    return isinstance(value, dict) and (
        value.get("supported_length") is None or is_count(value["supported_length"])
    )


def is_input_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and is_count(entry.get("read"))
        and is_count(entry.get("kept"))
        and isinstance(entry.get("files"), list)
        and isinstance(entry.get("invalid"), dict)
        and isinstance(entry.get("dropped"), dict)
        and type(entry.get("weight")) in (int, float)
        and 0 < entry["weight"] < math.inf
        for entry in value
    )


SPLIT_KEYS = {"pairs": is_count, "source": is_side, "target": is_side, "inputs": is_input_list}


# ---- arrays


def check_arrays(tokens: NDArray[Any], offsets: NDArray[Any], stem: str) -> None:
    """Refuse arrays of other types, and offsets that do not cut the tokens into sentences."""
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.uint32):
        raise DataError(f"{stem}.tokens.npy: not a token array ({describe(tokens)}): {REMEDY}")
    if offsets.ndim != 1 or offsets.dtype != np.int64 or not len(offsets):
        raise DataError(f"{stem}.offsets.npy: not an array of offsets ({describe(offsets)}): {REMEDY}")
    ends = int(offsets[0]), int(offsets[-1])
    if ends != (0, len(tokens)):
        raise DataError(
            f"{stem}.offsets.npy: damaged, it goes from {ends[0]:,} to {ends[1]:,}, but there are "
            f"{len(tokens):,} tokens: {REMEDY}"
        )
    for start in range(0, len(offsets) - 1, BLOCK):
        part = offsets[start : start + BLOCK + 1]
        wrong = np.flatnonzero(part[1:] <= part[:-1])  # every sentence has an end token
        if len(wrong):
            raise DataError(
                f"{stem}.offsets.npy: damaged, sentence {start + int(wrong[0]):,} ends before it begins: "
                f"{REMEDY}"
            )


def describe(array: NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"


def check_tokens(tokens: NDArray[Any], vocab_size: int, stem: str) -> None:
    """Refuse tokens that are not in the vocabulary."""
    for start in range(0, len(tokens), BLOCK):
        highest = int(tokens[start : start + BLOCK].max())
        if highest >= vocab_size:
            raise DataError(
                f"{stem}.tokens.npy: damaged, it has the token {highest:,}, but the vocabulary has "
                f"{vocab_size:,}: {REMEDY}"
            )


# ---- what has been verified


def is_verified(folder: Path, sha256: str, names: list[str]) -> bool:
    """Return whether the files of a folder were verified, and have not changed since."""
    with suppress(OSError, ValueError, RecursionError):
        stored = json.loads(read_regular(folder / VERIFIED, MAX_VERIFIED_BYTES))
        return bool(stored == describe_files(folder, sha256, names))
    return False


def remember_verified(folder: Path, sha256: str, names: list[str]) -> None:
    """Write down what the files of a folder are like. In a folder that is read-only, nothing is written."""
    path = folder / VERIFIED
    if path.exists() and not path.is_file():  # a FIFO, which nobody reads from, or a device
        return
    with suppress(OSError):
        write_text_atomically(path, json.dumps(describe_files(folder, sha256, names)))


def describe_files(folder: Path, sha256: str, names: list[str]) -> dict[str, Any]:
    """Return what changes with every change of a file, and with every copy."""
    files = {}
    for name in names:
        status = os.stat(folder / name)
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        files[name] = list(numbers)
    return {"sha256": sha256, "files": files}
