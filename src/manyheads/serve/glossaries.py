"""Glossaries of requests: terms in the request itself, or a file of the server's folder by its name.

A stored glossary is a file of `--glossaries`: NAME.tsv, NAME.csv or NAME.tbx. Files may be added and replaced
while the server runs, by every means that replaces them at once; each process reads a file again when its
time or size has changed.
"""

import re
import threading
from contextlib import suppress
from pathlib import Path

from manyheads.errors import ConfigError, DataError, RequestError
from manyheads.serve.limits import ServerLimits
from manyheads.text.term_files import MAX_TERM_LENGTH, SUFFIXES, read_terms
from manyheads.text.term_matching import Glossary

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MAX_CACHED = 32  # glossaries for a pair of languages, of which the oldest is forgotten

Version = tuple[Path, int, int]


class GlossaryStore:
    """The stored glossaries. Several threads may use it at once."""

    def __init__(self, folder: Path | None, limits: ServerLimits) -> None:
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{folder}: not a folder of glossaries (--glossaries)")
        self.folder, self.limits = folder, limits
        self.cache: dict[tuple[str, str, str], tuple[Version, Glossary]] = {}
        self.lock = threading.Lock()

    def list_names(self) -> list[str]:
        """Return the names that requests may use; none while the folder cannot be read."""
        if self.folder is None:
            return []
        try:
            paths = [path for path in self.folder.iterdir() if path.suffix.lower() in SUFFIXES]
            files = [path for path in paths if path.is_file()]
        except OSError:
            return []
        return sorted({path.stem for path in files if NAME.fullmatch(path.stem)})

    def get(self, glossary: str | dict[str, str], source: str, target: str) -> Glossary:
        """Return the glossary of a request. A stored one takes time to read when it is new."""
        if isinstance(glossary, str):
            return self._find(glossary, source, target)
        max_terms = self.limits.max_glossary_terms
        if len(glossary) > max_terms:
            raise RequestError(
                f"the glossary has {len(glossary)} terms, but the maximum is {max_terms}: send fewer, or "
                f"have it stored on the server"
            )
        length = max(map(len, [*glossary, *glossary.values()]), default=0)
        if length > MAX_TERM_LENGTH:
            raise RequestError(
                f"the glossary has a term of {length} characters, but the maximum is {MAX_TERM_LENGTH}"
            )
        return Glossary(glossary)

    def _find(self, name: str, source: str, target: str) -> Glossary:
        version = self._find_version(name)
        key = name, source, target
        with self.lock:
            cached = self.cache.get(key)
            if cached is not None and cached[0] == version:
                return cached[1]
            try:
                glossary = Glossary(read_terms(version[0], source, target))
            except DataError as error:
                reason = str(error).replace(str(version[0]), name)
                raise RequestError(f"the glossary {name!r} cannot be used: {reason}") from None
            self.cache.pop(key, None)
            self.cache[key] = version, glossary
            while len(self.cache) > MAX_CACHED:
                del self.cache[next(iter(self.cache))]
            return glossary

    def _find_version(self, name: str) -> Version:
        """Return the file of a name, with its time and size."""
        if self.folder is not None and NAME.fullmatch(name):
            for suffix in SUFFIXES:
                path = self.folder / f"{name}{suffix}"
                with suppress(OSError):  # it is removed or replaced at this moment
                    if path.is_file():
                        status = path.stat()
                        return path, status.st_mtime_ns, status.st_size
        known = ", ".join(self.list_names()) or "none"
        raise RequestError(f"no glossary {name[:100]!r} is stored; stored: {known}")
