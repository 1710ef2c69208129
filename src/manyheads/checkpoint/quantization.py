"""int8 weights: every matrix is stored as rows of whole numbers from -127 to 127 with one scale per row.

    matrix[i, j] = int8[i, j] * scale[i],    scale[i] = max |matrix[i]| / 127

NumPy only, so that every engine and export rounds in the same way, with torch or without. In a file, the
scales of `output.weight` are `output.weight_scale`. What is not a matrix of a layer stays float32: biases,
norms, tables of positions, convolutions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import CheckpointError

INT8 = "int8"  # as the manifest of a model folder states it
SCALE_SUFFIX = "_scale"
MAX_INT8 = 127  # -128 is not used: rows are symmetric
POSITION_TABLES = (".table.weight",)  # learned positions: added to embeddings, never multiplied

Int8Rows = NDArray[np.int8]
Scales = NDArray[np.float32]


def quantize_rows(matrix: NDArray[Any]) -> tuple[Int8Rows, Scales]:
    """Round each row of a matrix to int8. Return the rows and their scales; a row of zeros has scale 1."""
    values = np.asarray(matrix, np.float32)
    if values.ndim != 2:
        raise ValueError(f"a matrix has 2 axes, but this array has {values.ndim}")
    largest = np.abs(values).max(axis=1, initial=0)
    if not np.isfinite(largest).all():
        raise CheckpointError("a weight is not finite: a model that diverged cannot be quantized")
    smallest_scale = np.finfo(np.float32).tiny  # of a row whose numbers are too small for their scale
    scales = np.maximum(largest / np.float32(MAX_INT8), smallest_scale)
    scales[largest == 0] = 1
    rows = np.clip(np.rint(values / scales[:, None]), -MAX_INT8, MAX_INT8).astype(np.int8)
    return rows, scales.astype(np.float32)


def dequantize_rows(rows: Int8Rows, scales: Scales) -> NDArray[np.float32]:
    """Return the matrix that int8 rows and their scales stand for."""
    return rows.astype(np.float32) * scales.astype(np.float32)[:, None]


def is_quantizable(name: str, array: NDArray[Any]) -> bool:
    """Return whether an array is the matrix of a layer or an embedding."""
    return name.endswith(".weight") and array.ndim == 2 and not name.endswith(POSITION_TABLES)


def quantize_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a model with its matrices as int8, and their scales beside them."""
    quantized: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if is_quantizable(name, array):
            quantized[name], quantized[f"{name}{SCALE_SUFFIX}"] = quantize_rows(array)
        else:
            quantized[name] = array
    return quantized


def dequantize_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a model with its matrices as float32. Float weights stay as they are."""
    scales = take_scales(arrays, where)
    return {
        name: dequantize_rows(array, arrays[scales[name]]) if name in scales else array
        for name, array in arrays.items()
        if name not in scales.values()
    }


def take_scales(arrays: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the name of the scales of each int8 matrix. `where` names the file in messages.

    The arrays may be of NumPy or torch.
    """
    names = {name: f"{name}{SCALE_SUFFIX}" for name in arrays if str(arrays[name].dtype).endswith(INT8)}
    for name, scale in names.items():
        rows, shape = arrays[name].shape[0], tuple(arrays[scale].shape) if scale in arrays else None
        if shape != (rows,) or len(arrays[name].shape) != 2:
            stated = "lacks its scales" if shape is None else f"has scales of shape {list(shape)}"
            raise CheckpointError(
                f"{where}: {name} is int8 {list(arrays[name].shape)} and {stated}, but an int8 matrix has "
                f"one scale per row: write the folder again (manyheads export MODEL --to int8)"
            )
    return names
