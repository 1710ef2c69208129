"""The tensors of a safetensors file as numpy arrays, without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyheads.atomic_io import read_regular
from manyheads.checkpoint.header import DTYPES, read_header
from manyheads.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every tensor. Numpy has no bfloat16: such tensors become float32."""
    read_header(path)
    try:
        return parse_arrays(read_regular(path), str(path))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None


def parse_arrays(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Return every tensor of a safetensors file that has been read. `where` names it in messages."""
    from safetensors import SafetensorError, deserialize

    try:
        return {name: to_array(stored) for name, stored in deserialize(content)}  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{where}: not safetensors ({error}); nothing else is read") from None


def to_array(stored: "Mapping[str, Any]") -> NDArray[Any]:
    data, shape = stored["data"], stored["shape"]
    if stored["dtype"] == "BF16":  # the upper half of a float32
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    return np.frombuffer(data, DTYPES[stored["dtype"]]).reshape(shape)
