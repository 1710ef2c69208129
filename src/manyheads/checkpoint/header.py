"""The header of a safetensors file: which tensors it holds. It is checked before a tensor is allocated.

A file begins with the length of the header in eight bytes and the header, a JSON object that maps names to
{"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}; the tensors follow without gaps.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.atomic_io import open_regular
from manyheads.checkpoint.quantization import take_scales
from manyheads.config import ModelConfig
from manyheads.errors import CheckpointError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 2**24  # of some hundred thousand tensors
DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
}  # fmt: skip
DTYPE_BYTES = {"BF16": 2, **{name: np.dtype(dtype).itemsize for name, dtype in DTYPES.items()}}
WEIGHT_DTYPES = ("F32", "BF16", "F16", "I8")  # in which the weights of a model folder may be stored
COUNTER_DTYPE = "I64"  # of a single number, such as the batches that a batch normalization has seen


@dataclass(frozen=True)
class TensorHeader:
    """What the header says of a tensor."""

    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path, dtypes: Collection[str] = tuple(DTYPE_BYTES)) -> dict[str, TensorHeader]:
    """Read and check the header of a safetensors file. Tensors of other types than `dtypes` are refused."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
                raise ValueError(f"its header has {length:,} bytes")
            header = json.loads(file.read(length).decode())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise not_safetensors(path, str(error)[:100]) from None
    return parse_header(header, size - LENGTH_BYTES - length, path, dtypes)


def read_weight_header(path: Path) -> dict[str, TensorHeader]:
    """Return the header of the weights of a model folder, without the scales of int8 matrices."""
    header = read_header(path, WEIGHT_DTYPES)
    scales = set(take_scales(header, str(path)).values())
    return {name: entry for name, entry in header.items() if name not in scales}


def parse_header(header: Any, num_bytes: int, path: Path, dtypes: Collection[str]) -> dict[str, TensorHeader]:
    """Return the tensors of a header that describes all bytes of the file, each once."""
    if not isinstance(header, dict):
        raise not_safetensors(path, "its header is not a table")
    tensors, ranges = {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if not is_valid_entry(entry):
            raise not_safetensors(path, f"{name[:100]!r} is not described correctly")
        is_counter = entry["dtype"] == COUNTER_DTYPE and not entry["shape"]
        if entry["dtype"] not in dtypes and not is_counter:
            raise CheckpointError(
                f"{path}: {name} is stored as {entry['dtype']}, but must be one of {', '.join(dtypes)}"
            )
        tensors[name] = TensorHeader(entry["dtype"], tuple(entry["shape"]))
        ranges.append(entry["data_offsets"])
    end = 0
    for start, stop in sorted(ranges):
        if start != end:
            raise not_safetensors(path, f"its tensors leave a gap or overlap at byte {end:,}")
        end = stop
    if end != num_bytes:
        raise not_safetensors(path, f"its header describes {end:,} bytes of {num_bytes:,}")
    return tensors


def is_valid_entry(entry: Any) -> bool:
    """Return whether a tensor has a known type, a shape, and as many bytes as these need."""
    if not isinstance(entry, dict) or entry.get("dtype") not in DTYPE_BYTES:
        return False
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not (is_list_of_sizes(shape) and is_list_of_sizes(offsets) and len(offsets) == 2):
        return False
    return bool(offsets[1] - offsets[0] == math.prod(shape) * DTYPE_BYTES[entry["dtype"]])


def is_list_of_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def not_safetensors(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path}: not safetensors ({reason}); nothing else is read")


def check_layers(header: Mapping[str, TensorHeader], config: ModelConfig, path: Path) -> None:
    """Refuse a configuration with more layers than the file has tensors, before a model is built of them."""
    num_parts = (config.encoder_layers + config.decoder_layers) * (getattr(config, "experts", None) or 1)
    if num_parts > len(header):
        raise CheckpointError(
            f"{path}: has {len(header):,} tensors, but the model has {num_parts:,} layers and experts: these "
            f"are the weights of another model"
        )
