"""The tensors of a safetensors file as numpy arrays, without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every tensor. Numpy has no bfloat16: such tensors become float32."""
    from safetensors import SafetensorError, deserialize

    try:
        return {name: to_array(stored) for name, stored in deserialize(path.read_bytes())}  # type: ignore[no-untyped-call]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: not safetensors ({error}); nothing else is read") from None


def to_array(stored: "Mapping[str, Any]") -> NDArray[Any]:
    data, shape = stored["data"], stored["shape"]
    if stored["dtype"] == "BF16":  # the upper half of a float32
        bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    return np.frombuffer(data, DTYPES[stored["dtype"]]).reshape(shape)


DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
}  # fmt: skip
