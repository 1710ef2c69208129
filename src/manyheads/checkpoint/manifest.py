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
ADAPTERS = "adapters"  # a folder of adapters, which name the weights that they belong to
MEMORY = "memory"  # a folder with the corrections of translations
UNLISTED = (MODEL_CARD, ADAPTERS, MEMORY)

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
    supported_length = manifest.get("supported_length")
    if supported_length is not None and (type(supported_length) is not int or supported_length < 1):
        raise CheckpointError(f"{folder / MANIFEST}: has no valid supported_length: {MODEL_SCHEMA.remedy}")
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
        supported_length,
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
        atomic_directory(out, MANIFEST, replace=is_same, unlisted=UNLISTED) as temporary,
    ):
        for name in kept:
            transfer(folder / name, temporary / name)
        for name, content in changed_files.items():
            (temporary / name).write_bytes(content)
        values = {key: value for key, value in manifest.items() if key not in ("format", "files", "sha256")}
        write_manifest(temporary, MODEL_SCHEMA, values | changed_values)
        if (folder / MODEL_CARD).exists():
            transfer(folder / MODEL_CARD, temporary / MODEL_CARD)
        if is_same:  # other weights in a new folder have no adapters yet
            link_own_files(folder, temporary)


def link_own_files(folder: Path, out: Path) -> None:
    """Give what users added to a folder that is being replaced to the new one, whose manifest is written.

    These are adapters and corrections.
    """
    for name, pattern in ((ADAPTERS, "*.safetensors"), (MEMORY, "*.sqlite")):
        if (folder / name).is_dir():
            (out / name).mkdir()
            for path in sorted((folder / name).glob(pattern)):
                link_or_copy(path, out / name / path.name)


def link_or_copy(path: Path, out: Path) -> None:
    """Give a file another name; where the file system has no links, copy it."""
    try:
        os.link(path, out)
    except OSError:
        shutil.copy2(path, out)


def read_model_manifest(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder, MODEL_SCHEMA, find_model_hint(folder))
    if not all(isinstance(language, str) for language in manifest["languages"].values()):
        raise CheckpointError(f"{folder / MANIFEST}: has no valid languages: {MODEL_SCHEMA.remedy}")
    return manifest


def count_model_bytes(folder: Path) -> int:
    """Return the size of a model folder: its manifest and the files that it lists, but no optimizer state."""
    files = read_model_manifest(folder)["files"].items()
    listed: int = sum(file["bytes"] for name, file in files if name != OPTIMIZER)
    return listed + (folder / MANIFEST).stat().st_size


def find_model_hint(folder: Path) -> str:
    """Return what may be meant by a folder without a model: the model of its run, or a checkpoint."""
    inside = folder / "model"
    if (inside / MANIFEST).exists():
        return f"; did you mean {inside}?"
    beside = folder.parent / "model"
    if not folder.exists() and (beside / MANIFEST).exists():
        return f"; did you mean {beside}?"
    for run in (folder, folder.parent):
        checkpoints = sorted(run.glob(f"checkpoints/step-????????/{MANIFEST}"))
        if checkpoints:
            return f"; the run has not finished, its newest checkpoint is {checkpoints[-1].parent}"
        if (run / "checkpoints").is_dir():
            return f"; the run has not finished, and has no checkpoint in {run / 'checkpoints'} yet"
    return ""


def check_vocabulary(info: CheckpointInfo, subwords: SubwordPair) -> None:
    """Refuse subwords of another size than the vocabulary of the model."""
    model = info.config.model
    for side, own, size in (
        ("source", subwords.source, model.input_vocab_size),
        ("target", subwords.target, model.output_vocab_size),
    ):
        if len(own) != size:
            raise CheckpointError(
                f"{info.folder}: the {side} subwords have {len(own):,} pieces, but the vocabulary of the "
                f"model has {size:,}: these are the subwords of another model"
            )


def read_subwords(folder: Path) -> SubwordPair:
    try:
        return SubwordPair.load(folder)
    except DataError as error:
        raise CheckpointError(str(error)) from None
