"""The corrections of a model: looked up by translations, added and undone by users."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from manyheads.memory.database import DEFAULT_SPACE, Correction, CorrectionDatabase
from manyheads.memory.index import MemoryIndex
from manyheads.memory.location import find_memory_path
from manyheads.text.segmentation import has_line_breaks, replace_line_breaks


class TranslationMemory:
    """The memory of one model. A correction is used by the next translation, in all processes."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        self.database, self.languages = CorrectionDatabase(path), languages
        self.indices: dict[str, tuple[tuple[int, ...], MemoryIndex]] = {}  # by space, with the version
        self.lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path, languages: tuple[str, str]) -> "TranslationMemory":
        """Return the memory of a model folder. Its file is created by the first correction."""
        return cls(find_memory_path(folder), languages)

    def get_index(self, space: str = DEFAULT_SPACE) -> MemoryIndex | None:
        """Return the corrections of a space as they are now; None if it has none."""
        version = self.database.get_version()
        if version is None:
            return None
        with self.lock:
            known = self.indices.get(space)
            if known is None or known[0] != version:
                corrections = self.database.list_corrections(space)
                known = self.indices[space] = version, MemoryIndex(corrections, self.languages)
            return known[1] if known[1].entries else None

    def add(self, pairs: Sequence[tuple[str, str]], who: str, space: str = DEFAULT_SPACE) -> int:
        """Add corrections, all or none. Return the number by which they can be undone."""
        return self.database.add(space, [clean_pair(*pair) for pair in pairs], who)

    def undo(self, number: int | None = None, space: str = DEFAULT_SPACE) -> list[Correction]:
        """Take back the corrections of a call of `add`, by default of the last one. Return them."""
        return self.database.undo(space, number)


class MemorySpace(NamedTuple):
    """The corrections that a translation may use."""

    memory: TranslationMemory
    name: str

    def get_index(self) -> MemoryIndex | None:
        return self.memory.get_index(self.name)


def clean_pair(source: str, target: str) -> tuple[str, str]:
    """Return a correction without white space around it. The translation of a line is a line."""
    source, target = source.strip(), target.strip()
    return source, target if has_line_breaks(source) else replace_line_breaks(target)
