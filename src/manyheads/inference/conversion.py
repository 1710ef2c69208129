"""A model converted to CTranslate2, as its manifest describes it. export/ctranslate2.py writes it."""

import json
from pathlib import Path
from typing import Any

from manyheads.atomic_io import ManifestSchema, read_manifest, verify_files
from manyheads.checkpoint import CheckpointInfo
from manyheads.config import Config
from manyheads.errors import CheckpointError, ConfigError

CONVERSION_MANIFEST = "conversion.json"
VOCABULARY_MAP = "vmap.txt"  # the shortlist, by the name that CTranslate2 expects
CONVERSION_SCHEMA = ManifestSchema(
    file_name=CONVERSION_MANIFEST,
    format=3,  # raised when the same model would be converted differently
    folder_type="a conversion to CTranslate2",
    keys={
        "model": str,  # the identity of the model folder that was converted
        "max_positions": int,  # of a source or target
        "step": int,
        "languages": ("source", "target"),
        "config": dict,
    },
    remedy="convert the model again (manyheads export MODEL --to ctranslate2 --out FOLDER)",
)


def read_conversion(folder: Path) -> dict[str, Any]:
    """Read a conversion's manifest and compare every file with its checksum."""
    manifest = read_manifest(folder, CONVERSION_SCHEMA)
    verify_files(folder, manifest, CONVERSION_SCHEMA)
    return manifest


def read_conversion_info(folder: Path) -> CheckpointInfo:
    """Read what a conversion says of the model that was converted."""
    manifest = read_manifest(folder, CONVERSION_SCHEMA)
    try:
        config = Config.from_mapping(manifest["config"])
    except ConfigError as error:
        raise CheckpointError(
            f"{folder / CONVERSION_MANIFEST}: does not describe a model ({error})"
        ) from None
    return CheckpointInfo(
        config,
        manifest["step"],
        manifest["languages"],
        {},
        folder,
        manifest.get("supported_length"),
        manifest.get("quantization"),
    )


def read_pieces(folder: Path, side: str) -> list[str]:
    shared = folder / "shared_vocabulary.json"
    path = shared if shared.exists() else folder / f"{side}_vocabulary.json"
    return list(json.loads(path.read_text(encoding="utf-8")))
