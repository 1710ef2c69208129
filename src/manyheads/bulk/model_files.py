"""The files of a model folder, as bytes: to recognize a model, and to send it to another machine."""

import hashlib
import json
from pathlib import Path

from manyheads.errors import CheckpointError
from manyheads.memory.database import CorrectionDatabase
from manyheads.memory.location import MEMORY_FILE, find_memory_path
from manyheads.named_models.resolution import MANIFESTS

ADAPTERS, MEMORY = "adapters", "memory"  # folders within a model folder


def hash_model(folder: Path) -> str:
    """Return the SHA-256 of a model's manifest, which has those of its files; "" if there is none."""
    for name in MANIFESTS:
        if (folder / name).is_file():
            return hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return ""


def hash_adapter(folder: Path, name: str) -> str:
    """Return the name of an adapter and the SHA-256 of its file."""
    path = folder / ADAPTERS / f"{name}.safetensors"
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return f"{name} {digest}"


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
    """Return the files of a model folder, its adapters and its corrections."""
    paths = [*sorted(folder.iterdir()), *sorted((folder / ADAPTERS).glob("*.safetensors"))]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    corrections = CorrectionDatabase(find_memory_path(folder)).to_bytes()
    return files | ({f"{MEMORY}/{MEMORY_FILE}": corrections} if corrections else {})


def write_model_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        subfolder = Path(name).parts[0]
        path = folder / (subfolder if subfolder in (ADAPTERS, MEMORY) else "") / Path(name).name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
