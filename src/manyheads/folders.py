"""Folders that are complete or absent: written aside, synced, renamed. And the sums that tell damage."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.errors import DataError


@contextmanager
def written_aside(folder: Path, marker: str, replace: bool = False) -> Iterator[Path]:
    """A folder to write into, which takes the name asked for when all is done, synced; or leaves nothing.

    Only a folder of ours, which holds the file `marker`, is replaced.
    """
    if folder.exists() and not replace:
        raise DataError(f"{folder}: exists already; choose another folder, or replace it with --force")
    if folder.exists() and not (folder / marker).exists():
        raise DataError(f"{folder}: is no folder of ours (no {marker} in it), and will not be replaced")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f"{folder.name}.part")
    with locked(aside):
        try:
            yield aside
            for path in (*sorted(aside.iterdir()), aside):
                sync(path)
            put_in_place(aside, folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


@contextmanager
def locked(aside: Path) -> Iterator[None]:
    """What a killed run left behind is cleared away; what a running one writes is left alone."""
    import fcntl

    lock = aside.with_name(f"{aside.name}.lock")
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            if fault.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise DataError(
                f"{aside}: another process is writing it; wait for it, or choose another"
            ) from None
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """A file or a folder, out of the machine's memory and onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_in_place(aside: Path, folder: Path) -> None:
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    sync(folder.absolute().parent)


def fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Of every file in a folder, by name."""
    return {path.name: fingerprint(path) for path in sorted(folder.iterdir())}


def fingerprint(path: Path, progress: Callable[[int], None] = lambda size: None) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
            progress(len(block))
    return {"bytes": size, "sha256": digest.hexdigest()}
