"""Low-rank adapters (LoRA): small files that change the linear layers of a model, W + B A.

An adapter is a safetensors file in the folder `adapters` of its model folder. For each weight W [F, D] it has
a matrix A [r, D] and a matrix B [F, r] in float16. Its metadata names the weights that it was trained with by
their SHA-256, so that it is never used with others.

    run/model/adapters/captions.safetensors

Weights are merged when an adapter is loaded: `merge_adapter` returns a model that shares everything else with
the original, whose weights are never changed.
"""

import copy
import hashlib
import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.atomic_io import clear_temporary_file, fsync_path, report_disk_full
from manyheads.checkpoint.header import read_header
from manyheads.checkpoint.manifest import ADAPTERS, WEIGHTS, read_model_manifest
from manyheads.errors import CheckpointError, RequestError

if TYPE_CHECKING:
    from torch import Tensor, nn

FORMAT = 1
METADATA_KEY = "manyheads.adapter"
SUFFIX = ".safetensors"
ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
A_SUFFIX, B_SUFFIX = ".a", ".b"  # of the names of tensors, after the name of the weight
ADAPTER_DTYPES = ("F16", "U8")  # of the matrices, of a calibration
SPACE_KEY = "space"  # of `info`: the space of corrections that it has learned from, if it has
CONFIDENCE_TENSOR = "confidence"  # the bytes of a calibration, if there is one


@dataclass(frozen=True)
class Adapter:
    """The matrices A and B of each weight, by its name, and where they come from."""

    name: str
    factors: "dict[str, tuple[Tensor, Tensor]]"  # A [r, D] and B [F, r]
    base: str  # SHA-256 of the weights that it was trained with
    info: dict[str, Any]  # step, data, versions, ...
    confidence: bytes | None = None  # the calibration of the model with this adapter

    @property
    def rank(self) -> int:
        return max((a.shape[0] for a, _ in self.factors.values()), default=0)

    @property
    def num_parameters(self) -> int:
        return sum(a.numel() + b.numel() for a, b in self.factors.values())


def adapter_path(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the file of an adapter. A name has no separators: it cannot leave the folder."""
    if not ADAPTER_NAME.fullmatch(name):
        raise RequestError(
            f"the name of an adapter is {name[:80]!r}, but must be 1 to 64 letters, digits, dots, hyphens or "
            f"underscores, and begin with a letter or a digit"
        )
    return Path(folder) / ADAPTERS / f"{name}{SUFFIX}"


def list_adapters(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the adapters of a model folder."""
    paths = sorted((Path(folder) / ADAPTERS).glob(f"*{SUFFIX}"))
    return [path.stem for path in paths if ADAPTER_NAME.fullmatch(path.stem)]


def hash_base(folder: Path) -> str:
    """Return the SHA-256 of a model's weights, as its manifest states it."""
    return str(read_model_manifest(folder)["files"][WEIGHTS]["sha256"])


# ---- files


def write_adapter(path: Path, adapter: Adapter) -> None:
    """Write an adapter in float16, through a temporary file; an existing one is replaced."""
    import numpy as np
    import torch

    from manyheads.checkpoint.tensors import write_tensors

    tensors = {
        f"{name}{suffix}": matrix.detach().to("cpu", torch.float16)
        for name, pair in adapter.factors.items()
        for suffix, matrix in zip((A_SUFFIX, B_SUFFIX), pair, strict=True)
    }
    if adapter.confidence is not None:
        tensors[CONFIDENCE_TENSOR] = torch.from_numpy(np.frombuffer(adapter.confidence, np.uint8).copy())
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{path}: not written, since {name} is not finite in float16")
    header = {"format": FORMAT, "base": adapter.base, "sha256": hash_tensors(tensors), "info": adapter.info}
    # One key: safetensors writes several in any order, and the same adapter is to be the same file.
    metadata = {METADATA_KEY: json.dumps(header, ensure_ascii=False, sort_keys=True)}
    temporary = path.with_name(f".{path.name}.part")
    with report_disk_full(path, sum(tensor.nbytes for tensor in tensors.values())):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(clear_temporary_file(temporary), tensors, metadata)
        fsync_path(temporary)
        temporary.replace(path)
        fsync_path(path.parent)


def hash_tensors(tensors: "Mapping[str, Tensor]") -> str:
    """Return the SHA-256 of the names, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().data)
    return digest.hexdigest()


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of an adapter file, and check its format."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = dict(json.loads((file.metadata() or {})[METADATA_KEY]))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not safetensors ({error}); nothing else is read") from None
    except (KeyError, ValueError, TypeError, RecursionError):
        raise CheckpointError(f"{path}: not an adapter: its metadata has no valid {METADATA_KEY}") from None
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: format {header.get('format')}, but this version reads format {FORMAT}: update "
            f"manyheads, or adapt again"
        )
    if not all(isinstance(header.get(key), str) for key in ("base", "sha256")):
        raise CheckpointError(f"{path}: not an adapter: its metadata has no base and sha256")
    return header


def read_adapter(folder: str | os.PathLike[str], name: str) -> Adapter:
    """Read an adapter of a model folder. One of other weights, or a damaged one, is refused."""
    path = adapter_path(folder, name)
    if not path.is_file():
        names = list_adapters(folder)
        there = f"it has {', '.join(names)}" if names else "it has none"
        raise RequestError(f"{folder}: has no adapter {name!r}; {there}")
    base = hash_base(Path(folder))
    adapter = parse_adapter(path, name)
    if adapter.base != base:
        raise CheckpointError(
            f"{path}: was trained with other weights ({adapter.base[:12]}) than those of {folder} "
            f"({base[:12]}): adapt this model again, or use the model that it belongs to"
        )
    return adapter


def parse_adapter(path: Path, name: str) -> Adapter:
    """Read an adapter file and verify its checksum, whatever model it belongs to."""
    from manyheads.checkpoint.tensors import read_tensors

    read_header(path, ADAPTER_DTYPES)
    header = read_metadata(path)
    tensors = read_tensors(path)
    if hash_tensors(tensors) != header["sha256"]:
        raise CheckpointError(f"{path}: damaged, its SHA-256 does not match: adapt the model again")
    confidence = tensors.pop(CONFIDENCE_TENSOR, None)
    if any(tensor.dim() != 2 for tensor in tensors.values()):
        raise CheckpointError(f"{path}: not an adapter: its tensors must be matrices")
    names = [key.removesuffix(A_SUFFIX) for key in tensors if key.endswith(A_SUFFIX)]
    try:
        factors = {key: (tensors[f"{key}{A_SUFFIX}"], tensors[f"{key}{B_SUFFIX}"]) for key in names}
        info = dict(header.get("info") or {})
    except (KeyError, ValueError, TypeError):
        raise CheckpointError(f"{path}: not an adapter, or one of another version") from None
    calibration = None if confidence is None else confidence.numpy().tobytes()
    return Adapter(name, factors, header["base"], info, calibration)


# ---- merging


def merge_adapter(model: "nn.Module", adapter: Adapter, num_threads: int = 1) -> "nn.Module":
    """Return a model with the weights W + B A, which shares all other tensors with the original.

    Several threads multiply matrices of their own. That is faster than several threads in each product,
    which are too small to wait for each other.
    """
    weights = dict(model.named_parameters())
    check_factors(weights, adapter)

    def merge(name: str) -> "Tensor":
        return merge_weight(weights[name], *adapter.factors[name])

    if num_threads > 1:
        with ThreadPoolExecutor(num_threads) as pool:
            merged = dict(zip(adapter.factors, pool.map(merge, adapter.factors), strict=True))
    else:
        merged = {name: merge(name) for name in adapter.factors}
    return replace_weights(model, merged, weights)


def replace_weights(
    model: "nn.Module", new: "Mapping[str, Tensor]", weights: "Mapping[str, Tensor] | None" = None
) -> "nn.Module":
    """Return a model with some new weights, which shares all other tensors with the original.

    weights  those of the model by name, if they are known: to list them takes a tenth of merging an adapter
    """
    from torch import nn

    weights = dict(model.named_parameters()) if weights is None else weights
    replaced = {
        id(weights[name]): nn.Parameter(tensor.to(weights[name].dtype), requires_grad=False)
        for name, tensor in new.items()
    }
    return copy_module(model, replaced)


def copy_module(module: "nn.Module", replaced: "Mapping[int, nn.Parameter]") -> "nn.Module":
    """Copy a tree of modules, but not their tensors: seven times as fast as a deep copy that shares them."""
    other = copy.copy(module)
    own = module.__dict__
    parameters = {name: replaced.get(id(value), value) for name, value in own["_parameters"].items()}
    children = {name: child and copy_module(child, replaced) for name, child in own["_modules"].items()}
    other.__dict__.update(_parameters=parameters, _buffers=dict(own["_buffers"]), _modules=children)
    return other


def merge_weight(weight_FD: "Tensor", a_rD: "Tensor", b_Fr: "Tensor") -> "Tensor":
    """Return W + B A, computed on the device and in the precision of W. [F, D]"""
    a_rD, b_Fr = (matrix.to(weight_FD.device).to(weight_FD.dtype) for matrix in (a_rD, b_Fr))
    return weight_FD.detach().addmm(b_Fr, a_rD)


def check_factors(weights: "Mapping[str, Tensor]", adapter: Adapter) -> None:
    for name, (a_rD, b_Fr) in adapter.factors.items():
        shape = (b_Fr.shape[0], a_rD.shape[1])
        if name not in weights or tuple(weights[name].shape) != shape or a_rD.shape[0] != b_Fr.shape[1]:
            raise CheckpointError(
                f"the adapter {adapter.name} changes {name} {list(shape)}, which the model does not have: it "
                f"belongs to another model"
            )
