"""Tensors on disk (safetensors, never pickled), and in and out of a model."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from manyheads.checkpoint.quantization import take_scales
from manyheads.errors import CheckpointError


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; other threads can run meanwhile.

    safetensors reports system errors as text, and makes files that only their owner can read. Here they are
    OSErrors again, and files are as readable as their folder.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path, metadata)
    except SafetensorError as error:
        if match := re.search(r"os error (\d+)", str(error)):
            number = int(match[1])
            raise OSError(number, os.strerror(number), str(path)) from None
        raise
    with suppress(PermissionError):  # a file system without such permissions
        path.chmod(path.parent.stat().st_mode & 0o666)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    return parse_tensors(content, path)


def parse_tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file that has been read. `path` is for messages."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: not safetensors ({error}); nothing else is read") from None


def dequantize_tensors(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the weights of a model, int8 matrices as float32: quantization.dequantize_arrays with torch."""
    scales = take_scales(tensors, where)
    return {
        name: tensor.float() * tensors[scales[name]].float()[:, None] if name in scales else tensor
        for name, tensor in tensors.items()
        if name not in scales.values()
    }


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a model folder; int8 matrices become float32."""
    return dequantize_tensors(read_tensors(path), str(path))


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and running statistics, each once: tied matrices have one name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into a model of the same shape. `where` names their origin in messages."""
    own = collect_weights(model)
    check_weights(own, weights, where)
    for name, tensor in own.items():
        tensor.copy_(weights[name])


def assign_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Make weights those of a model that was built without memory, on the meta device. Ties stay ties."""
    own = collect_weights(model)
    check_weights(own, weights, where)
    new = {
        id(old): nn.Parameter(weights[name].to(old.dtype)) if isinstance(old, nn.Parameter) else weights[name]
        for name, old in own.items()
    }
    for module in model.modules():
        for name, old in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            setattr(module, name, new[id(old)])


def check_weights(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights with other names or shapes than the model's own."""
    missing, foreign = own.keys() - weights.keys(), weights.keys() - own.keys()
    if missing or foreign:
        name = sorted(missing or foreign)[0]
        problem = f"lacks {name}" if missing else f"has an unknown {name}"
        raise CheckpointError(f"{where}: {problem}: these are the weights of another model")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise CheckpointError(
                f"{where}: {name} is {list(weights[name].shape)}, but the model's is {list(tensor.shape)}"
            )
