"""Folders that are complete or absent, and their manifests.

A folder is written under a temporary name, synced and renamed. Its manifest is a JSON file with a format
number, the SHA-256 of every other file, and a checksum of itself.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import IO, Any

from manyheads.errors import CheckpointError, DataError, ManyheadsError, RequestError, ResourceError

DEVICES = Path("/dev")  # where /dev/stdout may lead to a file
MAX_MANIFEST_BYTES = 2**24
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LockedError(DataError):
    """Another process is writing a folder."""


# ---- writing


@contextmanager
def atomic_directory(
    folder: Path, manifest_name: str, replace: bool = False, unlisted: Collection[str] = ()
) -> Iterator[Path]:
    """Yield a temporary folder that takes the name `folder` on success, and is deleted on failure.

    An existing folder is replaced only if it holds a manifest of this name and no file that the manifest
    does not list, except those named as `unlisted`.
    """
    folder = Path(os.path.realpath(folder))
    check_replaceable(folder, manifest_name, replace, unlisted)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.manyheads-part")
    with lock_directory(temporary) as handle:
        try:
            # Another process may have finished meanwhile.
            check_replaceable(folder, manifest_name, replace, unlisted)
            yield temporary
            if not is_same_directory(handle, temporary):
                raise DataError(f"{temporary}: was moved or deleted while it was written; run it again")
            for path in (*sorted(temporary.iterdir()), temporary):
                fsync_path(path)
            replace_directory(temporary, folder)
        except BaseException:
            if is_same_directory(handle, temporary):  # otherwise it may be that of another process
                shutil.rmtree(temporary, ignore_errors=True)
            raise


def check_replaceable(
    folder: Path, manifest_name: str, replace: bool, unlisted: Collection[str] = ()
) -> None:
    if not folder.exists():
        return
    if not replace:
        raise RequestError(f"{folder}: exists already; choose another folder, or replace it with --force")
    try:
        listed = json.loads(read_regular(folder / manifest_name, MAX_MANIFEST_BYTES).decode())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise RequestError(
            f"{folder}: was not written by manyheads (no valid {manifest_name}), and will not be replaced"
        ) from None
    foreign = sorted({path.name for path in folder.iterdir()} - {manifest_name, *listed, *unlisted})
    if foreign:
        raise RequestError(
            f"{folder}: holds {foreign[0]}, which is not ours to delete; choose another folder"
        )


@contextmanager
def lock_directory(temporary: Path) -> Iterator[int]:
    """Create an empty folder that no other process writes, and yield its descriptor.

    What a killed process left in it is cleared.
    """
    with open_locked(temporary) as handle:
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):  # such as the adapters of a model
                    shutil.rmtree(entry.name, dir_fd=handle)
                else:
                    os.unlink(entry.name, dir_fd=handle)
        yield handle


@contextmanager
def open_locked(folder: Path) -> Iterator[int]:
    """Create a folder if it does not exist, lock it, and yield its descriptor.

    A link is refused: what it points to is not ours to lock or to clear.
    """
    while True:
        if folder.is_symlink():
            raise RequestError(f"{folder}: is a link, but must be a folder; remove it, or choose another")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise RequestError(
                f"{folder}: is a file, but must be a folder; remove it, or choose another"
            ) from None
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            acquire_lock(handle, folder)
            if is_same_directory(handle, folder):  # it may have been removed or renamed meanwhile
                yield handle
                return
        finally:
            os.close(handle)


def acquire_lock(handle: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise LockedError(
                f"{path}: another process is writing it; wait for it, or choose another"
            ) from None
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


def is_same_directory(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def fsync_path(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore_interrupted_replacements(parent: Path) -> None:
    """Restore folders that were being replaced when the process died."""
    for old in parent.glob(".*.manyheads-old"):
        folder = old.with_name(old.name.removeprefix(".").removesuffix(".manyheads-old"))
        if not folder.exists() and not old.is_symlink():
            old.rename(folder)


@contextmanager
def report_disk_full(
    path: Path, needed: int | None, kept: str = "Earlier checkpoints are kept"
) -> Iterator[None]:
    """Raise a ResourceError with the needed bytes, if known, and the free ones if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        free = shutil.disk_usage(path.parent).free
        amount = "" if needed is None else f"about {needed:,} bytes are needed and "
        raise ResourceError(
            f"{path}: the disk is full; {amount}{free:,} are free. {kept}: free some space, and run the same "
            f"command again"
        ) from None


def replace_directory(temporary: Path, folder: Path) -> None:
    """Rename the new folder to its name. Delete the old one only then, and restore it on failure."""
    old = folder.with_name(f".{folder.name}.manyheads-old")
    if old.is_symlink():  # what it points to is not ours
        old.unlink()
    shutil.rmtree(old, ignore_errors=True)
    exists = folder.exists()
    if exists:
        folder.rename(old)
    try:
        temporary.rename(folder)
    except BaseException:
        if exists:
            old.rename(folder)
        raise
    fsync_path(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def clear_temporary_file(path: Path) -> Path:
    """Remove what is in place of a temporary file, so that writing it creates a new one. Return the path.

    It may be what a killed process left, or a link, whose target is not ours to overwrite.
    """
    path.unlink(missing_ok=True)
    return path


def write_text_atomically(path: Path, text: str) -> None:
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write a file through a temporary one, so that it is either complete or unchanged.

    If the disk is full, nothing of it stays. A device or a FIFO, such as /dev/null, is written to and never
    replaced.
    """
    if (path.exists() and not path.is_file()) or path.parent == DEVICES:
        with path.open("wb") as device:  # of a folder this is an error
            device.write(data)
        return
    temporary = clear_temporary_file(path.with_name(f".{path.name}.part"))
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


# ---- reading


def open_regular(path: Path) -> IO[bytes]:
    """Open a file to read. A FIFO or device in its place, which could block or never end, is an OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a file, but a FIFO, a device or a folder", os.fspath(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the content of a file; too large a one is an OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if max_bytes is not None and size > max_bytes:
            raise OSError(errno.EFBIG, f"has {size:,} bytes, but at most {max_bytes:,} are read", str(path))
        return file.read()


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file, which may be a pipe. A longer one, as of a device, is an OSError."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes, the maximum", str(path))
    return content


# ---- manifests


@dataclass(frozen=True)
class ManifestSchema:
    """The manifest of one type of folder."""

    file_name: str
    format: int
    folder_type: str  # such as "a model folder"
    keys: Mapping[str, type | UnionType | tuple[str, ...]]  # their types; a tuple: a table with these keys
    remedy: str  # how to make such a folder again
    required_files: tuple[str, ...] = ()
    error: type[ManyheadsError] = CheckpointError


def write_manifest(folder: Path, schema: ManifestSchema, values: Mapping[str, Any]) -> None:
    """Write the manifest of a folder that is complete otherwise."""
    manifest = {"format": schema.format, **values, "files": hash_files(folder)}
    manifest["sha256"] = compute_checksum(manifest)
    text = json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"
    (folder / schema.file_name).write_bytes(text.encode("utf-8", "backslashreplace"))  # odd file names


def read_manifest(folder: Path, schema: ManifestSchema, hint: str = "") -> dict[str, Any]:
    """Read and check the manifest of a folder. `hint` is added to the message if there is none."""
    path = folder / schema.file_name
    try:
        manifest = json.loads(read_regular(path, MAX_MANIFEST_BYTES).decode())
        number = manifest["format"]
    except OSError as error:
        raise schema.error(
            f"{folder}: not {schema.folder_type} ({schema.file_name}: {error.strerror}){hint}"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise schema.error(f"{path}: not the manifest of {schema.folder_type}") from None
    check_format(folder, number, schema)
    required = {**schema.keys, "files": schema.required_files}
    invalid = [key for key, wanted in required.items() if not is_valid(manifest, key, wanted)]
    if "files" not in invalid and not all(map(is_file_hash, manifest["files"].values())):
        invalid.append("files")
    if invalid:
        raise schema.error(f"{path}: has no valid {', '.join(invalid)}: {schema.remedy}")
    if manifest.get("sha256") != compute_checksum(manifest):
        raise schema.error(f"{path}: damaged or edited, its SHA-256 does not match: {schema.remedy}")
    return dict(manifest)


def check_format(folder: Path, number: Any, schema: ManifestSchema) -> None:
    if type(number) is int and number < schema.format:
        raise schema.error(
            f"{folder}: format {number} of an older development version, but this version reads "
            f"format {schema.format}: {schema.remedy}"
        )
    if number != schema.format or type(number) is not int:
        raise schema.error(
            f"{folder}: format {str(number)[:20]}, but this version reads format {schema.format}: update "
            f"manyheads"
        )


def is_valid(manifest: dict[str, Any], key: str, wanted: type | UnionType | tuple[str, ...]) -> bool:
    if key not in manifest:
        return False
    value = manifest[key]
    if isinstance(wanted, tuple):
        return isinstance(value, dict) and all(name in value for name in wanted)
    return isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool)


def is_file_hash(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("bytes")) is int and type(value.get("sha256")) is str


def verify_files(folder: Path, manifest: Mapping[str, Any], schema: ManifestSchema) -> None:
    """Check that every listed file exists, in the folder itself, with its SHA-256."""
    for name in manifest["files"]:
        verify_file(folder, name, manifest, schema)


def verify_file(folder: Path, name: str, manifest: Mapping[str, Any], schema: ManifestSchema) -> None:
    check_listed_file(folder, name, schema)
    check_hash(folder / name, hash_file(folder / name), manifest, schema)


def read_verified(folder: Path, name: str, manifest: Mapping[str, Any], schema: ManifestSchema) -> bytes:
    """Return the content of a listed file that has its SHA-256. What is returned is what was hashed.

    It is read and hashed in one call each: between calls a thread may have to wait for Python's lock.
    """
    check_size(folder, name, manifest, schema)
    content = read_regular(folder / name)
    file_hash = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    check_hash(folder / name, file_hash, manifest, schema)
    return content


def check_listed_file(folder: Path, name: str, schema: ManifestSchema) -> None:
    if Path(name).name != name:
        raise schema.error(f"{folder / schema.file_name}: lists {name!r}, which is not in the folder")
    if not (folder / name).is_file():
        problem = "is not a file" if (folder / name).exists() else "is missing"
        raise schema.error(f"{folder / name}: {problem}, but {schema.file_name} lists it")


def check_size(folder: Path, name: str, manifest: Mapping[str, Any], schema: ManifestSchema) -> None:
    """Refuse a listed file of another size, before so much memory is allocated."""
    check_listed_file(folder, name, schema)
    if (folder / name).stat().st_size != manifest["files"][name]["bytes"]:
        raise schema.error(f"{folder / name}: damaged, its size is not that of {schema.file_name}")


def check_hash(path: Path, file_hash: Any, manifest: Mapping[str, Any], schema: ManifestSchema) -> None:
    if file_hash != manifest["files"][path.name]:
        raise schema.error(f"{path}: damaged, its SHA-256 is not that of {schema.file_name}")


def compute_checksum(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything in a manifest but its own checksum."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def hash_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Hash every file in a folder, by name."""
    return {path.name: hash_file(path) for path in sorted(folder.iterdir())}


def hash_file(path: Path, report_bytes: Callable[[int], None] = lambda size: None) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
            report_bytes(len(block))
    return {"bytes": size, "sha256": digest.hexdigest()}
