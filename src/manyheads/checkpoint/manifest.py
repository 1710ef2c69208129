"""The manifest of a model folder, and its subwords: what can be read without torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import ManifestSchema, read_manifest, verify_files
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError, DataError
from manyheads.text.subwords import SubwordPair

MANIFEST, WEIGHTS, OPTIMIZER = "manyheads.json", "weights.safetensors", "optimizer.safetensors"
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
    return CheckpointInfo(config, manifest["step"], manifest["languages"], manifest["training"], folder)


def read_model_manifest(folder: Path) -> dict[str, Any]:
    inside = folder / "model"
    hint = f"; did you mean {inside}?" if (inside / MANIFEST).exists() else ""
    return read_manifest(folder, MODEL_SCHEMA, hint)


def read_subwords(folder: Path) -> SubwordPair:
    try:
        return SubwordPair.load(folder)
    except DataError as error:
        raise CheckpointError(str(error)) from None
