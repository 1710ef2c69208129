"""A model converted to CTranslate2, as its folder's manifest describes it. export/ctranslate2.py writes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import hash_file
from manyheads.checkpoint import CheckpointInfo
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError

FORMAT = 2  # raised when the same model would be converted differently
CONVERSION_MANIFEST = "conversion.json"


@dataclass(frozen=True)
class Conversion:
    """What the manifest of a converted model says."""

    model: str  # the identity of the model folder that was converted
    format: int
    max_positions: int  # of a source or target


def read_conversion(folder: Path) -> Conversion:
    """Read a conversion's manifest and compare every file with its checksum."""
    manifest = read_conversion_manifest(folder)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder}: format {manifest.get('format')}, but this version reads {FORMAT}: convert the model "
            f"again (manyheads export MODEL {folder} --to ctranslate2)"
        )
    try:
        conversion = Conversion(manifest["model"], manifest["format"], int(manifest["max_positions"]))
        damaged = [name for name, stated in manifest["files"].items() if hash_file(folder / name) != stated]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{folder}: no valid conversion to CTranslate2") from None
    if damaged:
        raise CheckpointError(
            f"{folder / damaged[0]}: damaged, its SHA-256 is not that of {CONVERSION_MANIFEST}"
        )
    return conversion


def read_conversion_info(folder: Path) -> CheckpointInfo:
    """Read what a conversion says of the model that was converted."""
    manifest = read_conversion_manifest(folder)
    try:
        config = Config.from_mapping(manifest["config"])
        return CheckpointInfo(config, manifest["step"], manifest["languages"], {}, folder)
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CheckpointError(
            f"{folder / CONVERSION_MANIFEST}: does not describe a model ({error})"
        ) from None


def read_conversion_manifest(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / CONVERSION_MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        raise CheckpointError(
            f"{folder}: no conversion to CTranslate2 (no valid {CONVERSION_MANIFEST})"
        ) from None


def read_pieces(folder: Path, side: str) -> list[str]:
    shared = folder / "shared_vocabulary.json"
    path = shared if shared.exists() else folder / f"{side}_vocabulary.json"
    return list(json.loads(path.read_text(encoding="utf-8")))
