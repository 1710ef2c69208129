"""The files of a model folder, as bytes: to recognize a model, and to send it to another machine."""

import hashlib
import json
from pathlib import Path

from manyheads.errors import CheckpointError
from manyheads.named_models.resolution import MANIFESTS


def hash_model(folder: Path) -> str:
    """Return the SHA-256 of a model's manifest, which has those of its files; "" if there is none."""
    for name in MANIFESTS:
        if (folder / name).is_file():
            return hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return ""


def read_languages(folder: Path) -> tuple[str, str]:
    """Return the source and target language that a manifest states."""
    for name in MANIFESTS:
        if (folder / name).is_file():
            try:
                languages = json.loads((folder / name).read_text(encoding="utf-8"))["languages"]
                return str(languages["source"]), str(languages["target"])
            except (ValueError, KeyError, TypeError):
                raise CheckpointError(f"{folder / name}: not the manifest of a model folder") from None
    raise CheckpointError(f"{folder}: not a model folder")


def read_model_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def write_model_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / Path(name).name).write_bytes(content)
