"""Translated documents that wait to be fetched: files in a private folder, for a while.

Their names are random, so that only who was given the address can fetch them. Front-end processes share the
folder.
"""

import re
import secrets
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from manyheads.atomic_io import write_bytes_atomically

KEPT_SECONDS = 600.0
MAX_STORED_BYTES = 2**28  # of all documents; the oldest go first
NAME = re.compile(r"[A-Za-z0-9_-]{24}\.[a-z]{2,8}")


class DocumentStore:
    def __init__(self, folder: str | None = None) -> None:
        """Use a folder that others share, or an own one, which is removed in the end."""
        self._own = None if folder is not None else tempfile.TemporaryDirectory(prefix="manyheads-")
        self.folder = Path(self._own.name if self._own is not None else folder or "")

    def close(self) -> None:
        if self._own is not None:
            self._own.cleanup()

    def save(self, data: bytes, suffix: str) -> str:
        """Store a document. Return its name."""
        self._remove_old(MAX_STORED_BYTES - len(data))
        name = secrets.token_urlsafe(18) + suffix
        write_bytes_atomically(self.folder / name, data)
        return name

    def read(self, name: str) -> bytes | None:
        """Return a document, if there is one of this name."""
        if not NAME.fullmatch(name):
            return None
        try:
            self._remove_old(MAX_STORED_BYTES)
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def _remove_old(self, max_bytes: int) -> None:
        entries = []
        for path in self.folder.iterdir():
            with suppress(OSError):  # another process has removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for modified, size, path in sorted(entries):
            if modified > time.time() - KEPT_SECONDS and total <= max_bytes:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
