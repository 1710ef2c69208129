"""Model folders: weights, configuration and subwords together, complete or absent, nothing pickled.

manyheads.json         the manifest: configuration, step, languages, versions, SHA-256 of the other files
weights.safetensors    every parameter once, by its name in the model; in an int8 folder (quantization.py)
                       matrices are int8, with their scales beside them
subwords.model         or subwords.source.model and subwords.target.model
confidence.safetensors the calibration of its confidence, if it is calibrated
optimizer.safetensors  in a checkpoint of a run only
adapters/              low-rank adapters (adapters.py), if there are any; not in the manifest
memory/                corrections of its translations (memory/), if there are any; not in the manifest
model_card.md          in the model of a finished run; not in the manifest, as people edit it
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from manyheads.atomic_io import atomic_directory, report_disk_full, write_manifest
from manyheads.checkpoint.background_reading import OpenModel, open_model
from manyheads.checkpoint.header import read_weight_header
from manyheads.checkpoint.manifest import (
    MANIFEST,
    MODEL_SCHEMA,
    OPTIMIZER,
    UNLISTED,
    WEIGHTS,
    CheckpointInfo,
    get_versions,
    link_own_files,
)
from manyheads.checkpoint.quantization import INT8, quantize_arrays
from manyheads.checkpoint.tensors import (
    assign_weights,
    check_shapes,
    collect_weights,
    copy_weights,
    dequantize_tensors,
    parse_tensors,
    read_weights,
    write_tensors,
)
from manyheads.config import Config
from manyheads.model import build_model
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.text.subwords import SubwordPair

OVERHEAD_BYTES = 1 << 16  # an upper bound of the manifest, and of what the blocks of a disk waste


def save(
    folder: Path,
    weights: Mapping[str, Tensor],
    subwords: SubwordPair,
    config: Config,
    *,
    step: int,
    languages: dict[str, str],
    training: dict[str, Any] | None = None,
    optimizer: Mapping[str, Tensor] | None = None,
    supported_length: int | None = None,
    as_int8: bool = False,
) -> None:
    """Write a model folder atomically; one that it replaces gives it its adapters and corrections."""
    if as_int8:
        weights = quantize_tensors(weights)
    tensors = (tensor.nbytes for group in (weights, optimizer or {}) for tensor in group.values())
    needed = sum(tensors) + sum(len(part.model) for part in subwords.files.values()) + OVERHEAD_BYTES
    with (
        report_disk_full(folder, needed),
        atomic_directory(folder, MANIFEST, replace=True, unlisted=UNLISTED) as temporary,
    ):
        write_tensors(temporary / WEIGHTS, weights)
        if optimizer is not None:
            write_tensors(temporary / OPTIMIZER, optimizer)
        subwords.save(temporary)
        values = {
            "step": step,
            "languages": languages,
            "training": training or {},
            "supported_length": supported_length,
            "config": asdict(config),
            "versions": get_versions(),
            **({"quantization": INT8} if as_int8 else {}),
        }
        write_manifest(temporary, MODEL_SCHEMA, values)
        link_own_files(folder, temporary)


def quantize_tensors(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights on the CPU with their matrices as int8, and their scales beside them."""
    arrays = {name: tensor.detach().numpy() for name, tensor in weights.items()}
    return {name: torch.from_numpy(array) for name, array in quantize_arrays(arrays).items()}


class InitializationSkipped(TorchFunctionMode):
    """Builds models without initial weights, which would take longer than reading those of a file.

    On the meta device initialization computes nothing, but imports torch's compiler.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load the weights of a model folder into a model of the same shape."""
    path = folder / WEIGHTS
    check_shapes(collect_weights(model), read_weight_header(path), str(path))
    copy_weights(model, read_weights(path), str(path))


def load_model(
    folder: str | os.PathLike[str], device: str = "cpu"
) -> tuple[EncoderDecoder, SubwordPair, CheckpointInfo]:
    """Load a model for inference, with its subwords and its description."""
    opened = open_model(folder)
    model, subwords = build_opened_model(opened)
    return model.to(device), subwords, opened.info


def build_opened_model(opened: OpenModel) -> tuple[EncoderDecoder, SubwordPair]:
    """Build a model for inference, and give it the weights of its folder once they are read and verified."""
    path = opened.info.folder / WEIGHTS
    with torch.device("meta"), InitializationSkipped():
        model = build_model(opened.info.config.model)
    check_shapes(collect_weights(model), opened.header, str(path))
    files = opened.wait_for_files()
    weights = dequantize_tensors(parse_tensors(files.weights, path), str(path))
    assign_weights(model, weights, str(path))
    return model.eval(), files.subwords
