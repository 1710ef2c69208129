"""int8 model folders: a quarter of the size, read by every engine (checkpoint/quantization.py)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyheads import checkpoint
from manyheads.atomic_io import report_disk_full
from manyheads.checkpoint.arrays import read_arrays
from manyheads.checkpoint.quantization import INT8, SCALE_SUFFIX, dequantize_arrays, quantize_arrays
from manyheads.errors import CheckpointError, RequestError


@dataclass(frozen=True)
class QuantizedModel:
    """An int8 model folder, and what rounding did to the weights."""

    folder: Path
    original_bytes: int  # of all files
    num_bytes: int
    num_int8: int  # weights that are int8 now
    num_float: int  # biases, norms, scales
    relative_error: float  # of the int8 weights: root of the squared error over the squares of the weights


def quantize_model(folder: Path, out: Path) -> QuantizedModel:
    """Write a model folder whose matrices are int8. Everything else travels along as it is."""
    from safetensors.numpy import save as serialize

    info = checkpoint.read_info(folder)
    if info.quantization is not None:
        raise RequestError(f"{folder}: is {info.quantization} already; quantize the model it was made from")
    path = info.folder / checkpoint.WEIGHTS
    arrays = read_arrays(path)
    try:
        quantized = quantize_arrays(arrays)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    scales = {name for name in quantized if name.endswith(SCALE_SUFFIX) and name not in arrays}
    rounded = [name.removesuffix(SCALE_SUFFIX) for name in scales]
    if not rounded:
        raise RequestError(f"{folder}: has no matrix that could be stored as int8")
    restored = dequantize_arrays(quantized, str(path))
    squared_error = sum(np.square(restored[name] - arrays[name], dtype=np.float64).sum() for name in rounded)
    squares = sum(np.square(arrays[name], dtype=np.float64).sum() for name in rounded)
    with report_disk_full(out, count_bytes(info.folder)):
        checkpoint.rewrite_folder(
            info.folder, out, {checkpoint.WEIGHTS: serialize(quantized)}, quantization=INT8, training={}
        )
    return QuantizedModel(
        folder=out,
        original_bytes=count_bytes(info.folder),
        num_bytes=count_bytes(out),
        num_int8=sum(arrays[name].size for name in rounded),
        num_float=sum(array.size for name, array in quantized.items() if name not in rounded),
        relative_error=float(np.sqrt(squared_error / max(squares, np.finfo(np.float64).tiny))),
    )


def count_bytes(folder: Path) -> int:
    """Return the size of the files of a model folder, without the state of an optimizer."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name != checkpoint.OPTIMIZER)
    return sum(path.stat().st_size for path in files)
