"""The manifest of a model folder, and its subwords: what can be read without torch."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import (
    ManifestSchema,
    atomic_directory,
    read_manifest,
    report_disk_full,
    verify_files,
    write_manifest,
)
from manyheads.checkpoint.quantization import INT8
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.text.subwords import SubwordPair

MANIFEST, WEIGHTS, OPTIMIZER = "manyheads.json", "weights.safetensors", "optimizer.safetensors"
CONFIDENCE = "confidence.safetensors"  # of a model that is calibrated
# Not in the manifest: it is written when the model can be loaded, and may be edited.
MODEL_CARD = "model_card.md"

MODEL_SCHEMA = ManifestSchema(
    file_name=MANIFEST,
    format=2,
    folder_type="a model folder",
    keys={"step": int, "languages": ("source", "target"), "training": dict, "config": dict},
    remedy="train the model again",
    required_files=(WEIGHTS,),
)


@dataclass(frozen=True)
class CheckpointInfo:
    """What the manifest of a model folder says."""

    config: Config
    step: int
    languages: dict[str, str]  # source and target
    training: dict[str, Any]  # the progress of a run; empty if it is over
    folder: Path
    supported_length: int | None = None  # of sources, in tokens: what training saw often; None: not measured
    quantization: str | None = None  # int8, or None: weights are floats

    @property
    def max_length(self) -> int:
        """Tokens of a source that the model was trained for, the end counted."""
        return min(self.config.data.max_length, self.supported_length or self.config.data.max_length)


def get_versions() -> dict[str, str]:
    from importlib.metadata import version

    from manyheads import __version__

    return {"manyheads": __version__, "torch": version("torch")}


def read_info(folder: str | os.PathLike[str]) -> CheckpointInfo:
    """Read the manifest of a model folder, and check every file against its SHA-256."""
    path = Path(folder)
    manifest = read_model_manifest(path)
    verify_files(path, manifest, MODEL_SCHEMA)
    return parse_info(path, manifest)


def parse_info(folder: Path, manifest: Mapping[str, Any]) -> CheckpointInfo:
    try:
        config = Config.from_mapping(manifest["config"])
    except ConfigError as error:
        raise CheckpointError(f"{folder / MANIFEST}: {error}") from None
    quantization = manifest.get("quantization")
    if quantization not in (None, INT8):
        raise CheckpointError(
            f"{folder / MANIFEST}: the quantization is {quantization!r}, but this version reads {INT8!r}: "
            f"update manyheads"
        )
    return CheckpointInfo(
        config,
        manifest["step"],
        manifest["languages"],
        manifest["training"],
        folder,
        manifest.get("supported_length"),
        quantization,
    )


def write_confidence(folder: str | os.PathLike[str], calibration: bytes) -> None:
    """Add a calibration to a model folder, or replace it. The other files stay as they are."""
    info = read_info(folder)
    path = Path(os.path.realpath(info.folder))
    rewrite_folder(path, path, {CONFIDENCE: calibration})


def rewrite_folder(
    folder: Path, out: Path, changed_files: Mapping[str, bytes], **changed_values: Any
) -> None:
    """Write a model folder with other contents of some files and other values of its manifest.

    The rest stays as it is, the model card included. `out` is the folder itself, or does not exist yet; a new
    folder has no state of an optimizer.
    """
    manifest = read_model_manifest(folder)
    is_same = out == folder
    transfer = link_or_copy if is_same else shutil.copyfile
    kept = manifest["files"].keys() - changed_files.keys() - (set() if is_same else {OPTIMIZER})
    with (
        report_disk_full(out, sum(map(len, changed_files.values()))),
        atomic_directory(out, MANIFEST, replace=is_same, unlisted=(MODEL_CARD,)) as temporary,
    ):
        for name in kept:
            transfer(folder / name, temporary / name)
        for name, content in changed_files.items():
            (temporary / name).write_bytes(content)
        values = {key: value for key, value in manifest.items() if key not in ("format", "files", "sha256")}
        write_manifest(temporary, MODEL_SCHEMA, values | changed_values)
        if (folder / MODEL_CARD).exists():
            transfer(folder / MODEL_CARD, temporary / MODEL_CARD)


def link_or_copy(path: Path, out: Path) -> None:
    """Give a file another name; where the file system has no links, copy it."""
    try:
        os.link(path, out)
    except OSError:
        shutil.copy2(path, out)


def read_model_manifest(folder: Path) -> dict[str, Any]:
    inside = folder / "model"
    hint = f"; did you mean {inside}?" if (inside / MANIFEST).exists() else ""
    return read_manifest(folder, MODEL_SCHEMA, hint)


def read_subwords(folder: Path) -> SubwordPair:
    try:
        return SubwordPair.load(folder)
    except DataError as error:
        raise CheckpointError(str(error)) from None
