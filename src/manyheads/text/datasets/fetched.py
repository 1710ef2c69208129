"""The folder of a fetched corpus: its files, and the manifest that is written last."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import clear_temporary_file
from manyheads.errors import DataError, RequestError
from manyheads.text.datasets.catalog import LanguagePair

MANIFEST = "source.json"  # written last: a folder that has it is complete


@dataclass(frozen=True)
class SplitFiles:
    """The two files of a split with their sizes, the number of pairs, and their downloads."""

    files: list[str]
    sizes: list[int]
    pairs: int
    downloads: list[dict[str, Any]]


@dataclass(frozen=True)
class FetchedCorpus:
    """A corpus in its folder. `is_new` is false if an earlier call had completed it."""

    corpus: str
    pair: str
    title: str
    license: str
    license_url: str
    date: str
    splits: dict[str, SplitFiles]
    folder: Path
    register: str = ""
    is_new: bool = True

    @property
    def files(self) -> list[Path]:
        return [self.folder / name for split in self.splits.values() for name in split.files]

    @property
    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each download, by its URL."""
        downloads = [download for split in self.splits.values() for download in split.downloads]
        return {download["url"]: download["sha256"] for download in downloads}

    @property
    def is_complete(self) -> bool:
        """Whether every file has the size that was written."""
        expected = [size for split in self.splits.values() for size in split.sizes]
        return expected == [path.stat().st_size if path.exists() else -1 for path in self.files]

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "folder": str(self.folder)}, ensure_ascii=False, indent=1)

    def to_text(self) -> str:
        state = "is in" if self.is_new else "is already complete, nothing done (--force downloads it again):"
        lines = [f"{self.corpus} {self.pair} {state} {self.folder}"]
        for name, split in self.splits.items():
            lines.append(f"{name}: {split.pairs:,} pairs, {' '.join(split.files)}")
        if not self.is_new:  # before a download, `get_corpus` shows the license
            lines.append(f"license: {self.license} ({self.license_url})")
        return "\n".join(lines)

    def write_manifest(self) -> None:
        row = asdict(self)
        del row["folder"], row["is_new"]
        part = clear_temporary_file(self.folder / f"{MANIFEST}.part")
        with part.open("w", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.folder / MANIFEST)


def read_manifest(folder: Path) -> FetchedCorpus:
    try:
        row = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        splits = {split: SplitFiles(**values) for split, values in row.pop("splits").items()}
        return FetchedCorpus(**row, splits=splits, folder=folder, is_new=False)
    except (ValueError, TypeError, KeyError, AttributeError):
        path = folder / MANIFEST
        raise DataError(f"{path} was not written by `get`; remove it, or choose another --out") from None


def find_complete(folder: Path, name: str, pair: LanguagePair, register: str = "") -> FetchedCorpus | None:
    """Return the corpus that an earlier call completed in the folder. Refuse a folder of another corpus."""
    try:
        fetched = read_manifest(folder)
    except FileNotFoundError:
        return None
    held = f"{fetched.corpus} {fetched.pair} {fetched.register}".strip()
    wanted = f"{name} {pair} {register}".strip()
    if held != wanted:
        raise RequestError(
            f"{folder} holds {held}, not {wanted}; give another --out, or replace it with --force"
        )
    return fetched if fetched.is_complete else None


def check_not_foreign(folder: Path, names: Iterable[str]) -> None:
    """Refuse to overwrite files that no earlier call wrote."""
    own = [path.name for path in read_manifest(folder).files] if (folder / MANIFEST).exists() else []
    for name in names:
        if (folder / name).exists() and name not in own:
            raise RequestError(f"{folder / name} exists and was not written by `get`; give another --out")


def remove_previous(folder: Path) -> None:
    """Remove the corpus that an earlier call completed, so that none of its splits stays."""
    if (folder / MANIFEST).exists():
        files = read_manifest(folder).files
        (folder / MANIFEST).unlink()
        for path in files:
            (folder / path.name).unlink(missing_ok=True)


def remove_partial_files(folder: Path, names: Iterable[str]) -> None:
    """Clean up after a failed call that would have written these files.

    Downloads are kept to be resumed; empty folders are removed.
    """
    for name in (*names, MANIFEST):
        (folder / f"{name}.part").unlink(missing_ok=True)
    for directory in (folder / "downloads", folder):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
