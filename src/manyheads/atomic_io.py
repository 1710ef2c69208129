"""Folders that are complete or absent: written aside, synced, renamed. And the sums that tell damage."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.errors import CheckpointError, DataError, ResourceError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # how a system says that a disk is full


@contextmanager
def atomic_directory(folder: Path, manifest_name: str, replace: bool = False) -> Iterator[Path]:
    """A folder to write into, which takes the name asked for when all is done, synced; or leaves nothing.

    Only a folder of ours is replaced: one that holds the file `marker` and nothing that it does not name.
    """
    folder = Path(os.path.realpath(folder))
    check_replaceable(folder, manifest_name, replace)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.manyheads-part")
    with lock_directory(aside):
        try:
            check_replaceable(folder, manifest_name, replace)  # another process may have finished meanwhile
            yield aside
            for path in (*sorted(aside.iterdir()), aside):
                fsync_path(path)
            replace_directory(aside, folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def check_replaceable(folder: Path, marker: str, replace: bool) -> None:
    if not folder.exists():
        return
    if not replace:
        raise DataError(f"{folder}: exists already; choose another folder, or replace it with --force")
    try:
        named = json.loads((folder / marker).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"{folder}: is no folder of ours (no sound {marker}), and will not be replaced"
        ) from None
    foreign = sorted({path.name for path in folder.iterdir()} - {marker, *named})
    if foreign:
        raise DataError(f"{folder}: holds {foreign[0]}, which is not ours to delete; choose another folder")


@contextmanager
def lock_directory(aside: Path) -> Iterator[None]:
    """An empty folder that no other process writes. What a killed one left in it is cleared away."""
    while True:
        aside.mkdir(exist_ok=True)
        handle = os.open(aside, os.O_RDONLY)
        try:
            acquire_lock(handle, aside)
            if is_same_directory(handle, aside):  # and not one that was renamed while we waited
                for path in aside.iterdir():
                    path.unlink()
                yield
                return
        finally:
            os.close(handle)


def acquire_lock(handle: int, aside: Path) -> None:
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno in (errno.EAGAIN, errno.EACCES):
            raise DataError(
                f"{aside}: another process is writing it; wait for it, or choose another"
            ) from None
        if fault.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


def is_same_directory(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def fsync_path(path: Path) -> None:
    """A file or a folder, out of the machine's memory and onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore_interrupted_replacements(parent: Path) -> None:
    """A folder that was being replaced when the process died, and whose successor never came."""
    for old in parent.glob(".*.manyheads-old"):
        folder = old.with_name(old.name.removeprefix(".").removesuffix(".manyheads-old"))
        if not folder.exists():
            old.rename(folder)


@contextmanager
def report_disk_full(path: Path, needed: int) -> Iterator[None]:
    """A full disk, said with the bytes that are missing. What was there before stays."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in DISK_FULL_ERRNOS:
            raise
        free = shutil.disk_usage(path.parent).free
        raise ResourceError(
            f"{path}: no room; about {needed:,} bytes are needed and {free:,} are free. "
            f"Earlier checkpoints are kept: make room, and the same command goes on"
        ) from None


def replace_directory(aside: Path, folder: Path) -> None:
    """The new folder under its name; the old one goes only then, and comes back if that fails."""
    old = folder.with_name(f".{folder.name}.manyheads-old")
    shutil.rmtree(old, ignore_errors=True)
    there = folder.exists()
    if there:
        folder.rename(old)
    try:
        aside.rename(folder)
    except BaseException:
        if there:
            old.rename(folder)
        raise
    fsync_path(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def read_description(folder: Path, marker: str, newest: int, absent: str, kind: str) -> dict[str, Any]:
    """What a folder's marker says of it, in a format that this version reads.

    `absent` says what the folder then is not, `kind` what the marker ought to describe.
    """
    path = folder / marker
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        number = told["format"]
    except OSError as fault:
        raise CheckpointError(f"{folder}: {absent.format(why=f'{marker}: {fault.strerror}')}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{path}: not the description of {kind}") from None
    if type(number) is not int or number > newest:
        raise CheckpointError(
            f"{folder}: format {number}, but this version reads up to {newest}: update manyheads"
        )
    return dict(told)


def verify_files(folder: Path, stated: dict[str, Any], needed: tuple[str, ...], marker: str) -> None:
    """Every file that the marker names is there, in the folder itself, and as it was written."""
    for name in needed:
        if name not in stated:
            raise CheckpointError(f"{folder / marker}: names no {name}")
    for name, sums in stated.items():
        if Path(name).name != name:
            raise CheckpointError(f"{folder / marker}: names {name!r}, which is not in the folder")
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name}: is missing, and {marker} names it")
        if hash_file(folder / name) != sums:
            raise CheckpointError(f"{folder / name}: damaged, its SHA-256 is not that of {marker}")


def hash_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Of every file in a folder, by name."""
    return {path.name: hash_file(path) for path in sorted(folder.iterdir())}


def hash_file(path: Path, report_bytes: Callable[[int], None] = lambda size: None) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
            report_bytes(len(block))
    return {"bytes": size, "sha256": digest.hexdigest()}
