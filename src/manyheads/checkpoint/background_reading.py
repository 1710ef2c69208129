"""Reading the files of a model folder in a thread, while torch is imported: neither needs Python's lock."""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import check_size, read_verified, verify_file
from manyheads.checkpoint.header import TensorHeader, check_layers, read_weight_header
from manyheads.checkpoint.manifest import (
    MODEL_SCHEMA,
    WEIGHTS,
    CheckpointInfo,
    check_vocabulary,
    parse_info,
    read_model_manifest,
    read_subwords,
)
from manyheads.text.subwords import SubwordPair


@dataclass(frozen=True)
class VerifiedFiles:
    """The files of a model folder, each with the SHA-256 of its manifest."""

    weights: bytes  # as they are on disk: safetensors
    subwords: SubwordPair


@dataclass(frozen=True)
class OpenModel:
    """A model folder whose manifest is read, and whose files are being read and verified."""

    info: CheckpointInfo
    header: Mapping[str, TensorHeader]  # of the weights
    _files: "Future[VerifiedFiles]"

    def wait_for_files(self) -> VerifiedFiles:
        """Return the files, or raise what is wrong with them."""
        return self._files.result()


def open_model(folder: str | os.PathLike[str]) -> OpenModel:
    """Read the manifest of a model folder, and start to read its other files. Torch is not imported."""
    path = Path(folder)
    manifest = read_model_manifest(path)
    info = parse_info(path, manifest)
    check_size(path, WEIGHTS, manifest, MODEL_SCHEMA)
    header = read_weight_header(path / WEIGHTS)
    check_layers(header, info.config.model, path / WEIGHTS)
    executor = ThreadPoolExecutor(1, thread_name_prefix="manyheads model reader")
    files = executor.submit(read_files, info, manifest)
    executor.shutdown(wait=False)  # the thread ends with its task
    return OpenModel(info, header, files)


def read_files(info: CheckpointInfo, manifest: Mapping[str, Any]) -> VerifiedFiles:
    folder = info.folder
    for name in manifest["files"].keys() - {WEIGHTS}:
        verify_file(folder, name, manifest, MODEL_SCHEMA)
    weights = read_verified(folder, WEIGHTS, manifest, MODEL_SCHEMA)
    subwords = read_subwords(folder)
    check_vocabulary(info, subwords)
    return VerifiedFiles(weights, subwords)
