"""Which implementation of an op serves a device, a dtype and a shape. No other module decides that.

The Triton kernels run on CUDA devices, most of them in half precision only. Everything else is plain torch.
"""

import importlib.util
from contextlib import AbstractContextManager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from manyheads.ops.attention_spec import AttentionSpec, band_shape

HALF_DTYPES = (torch.bfloat16, torch.float16)
FLASH_MAX_HEAD_DIM = 256  # of torch's variable-length kernel
FLASH_MIN_CAPABILITY = (8, 0)  # of the GPU: Ampere
TRITON_MAX_HEAD_DIM = 128  # of our attention kernel
TRITON_MAX_LENGTH = 1024  # tokens of a sentence up to which our attention kernel is the faster one
BAND_MIN_RATIO = 2  # sentence length over the keys of a block from which the banded path is faster
COLUMN_MAX_ROWS = 64  # rows up to which a CPU multiplies a matrix by columns faster than rows by a matrix

GROUPED_ALIGNMENT = 8  # numbers of half precision in 16 bytes: torch's grouped product needs whole ones

AttentionImplementation = Literal["reference", "padded", "banded", "flash", "triton"]


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def has_flash_attention(device: torch.device) -> bool:
    """Return whether this torch has the variable-length kernel and this GPU can run it."""
    available = torch.backends.cuda.is_flash_attention_available()
    return available and torch.cuda.get_device_capability(device) >= FLASH_MIN_CAPABILITY


def is_compiling() -> bool:
    """Return whether torch.compile is tracing. It writes kernels of its own, so ours step aside."""
    return torch.compiler.is_compiling()


def use_kernels(x: Tensor) -> bool:
    """Return whether the kernels of linear, add_norm and cross_entropy serve x."""
    return not is_compiling() and x.is_cuda and x.dtype in HALF_DTYPES and has_triton()


def has_decode_kernels(device: torch.device) -> bool:
    """Return whether decode_attention and topk have kernels there. They take every dtype."""
    return device.type == "cuda" and has_triton()


def use_cached_rows(x: Tensor) -> bool:
    """Return whether a reduction takes some rows at a time, which the caches of a CPU can hold."""
    return not x.is_cuda


def use_embedding_kernel(weight: Tensor) -> bool:
    """Return whether the kernel of embeddings serves: in training with autocast to half precision."""
    training = weight.requires_grad and torch.is_grad_enabled() and not is_compiling()
    autocast = weight.is_cuda and torch.is_autocast_enabled("cuda") and weight.dtype == torch.float32
    return training and autocast and torch.get_autocast_dtype("cuda") in HALF_DTYPES and has_triton()


# ---- attention


def choose_attention(
    q_THK: Tensor, v_SHV: Tensor, spec: AttentionSpec, max_length: int = 0
) -> AttentionImplementation:
    """Return the fastest implementation for sentences of up to max_length tokens."""
    if not (q_THK.is_cuda and has_flash_attention(q_THK.device) and flash_supports(q_THK, v_SHV, spec)):
        narrow = spec.window is not None and max_length >= BAND_MIN_RATIO * sum(band_shape(spec))
        return "banded" if narrow else "padded"
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= TRITON_MAX_HEAD_DIM
    return "triton" if narrow and max_length <= TRITON_MAX_LENGTH and use_kernels(q_THK) else "flash"


def flash_supports(q_THK: Tensor, v_SHV: Tensor, spec: AttentionSpec) -> bool:
    """Return whether torch's kernel takes it: half precision, narrow heads, no dropout of weights."""
    is_half = q_THK.dtype in HALF_DTYPES
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= FLASH_MAX_HEAD_DIM
    plain = spec.score != "additive" and spec.dropout == 0
    return is_half and narrow and plain and len(q_THK) > 0 and len(v_SHV) > 0


def has_static_attention(
    device: torch.device, dtype: torch.dtype, head_dim: int, max_length: int = TRITON_MAX_LENGTH
) -> bool:
    """Return whether the Triton kernel serves, whose launch does not depend on the sentence lengths.

    Only such a launch can be captured in a CUDA graph and replayed for other batches.
    """
    fits = dtype in HALF_DTYPES and head_dim <= TRITON_MAX_HEAD_DIM and max_length <= TRITON_MAX_LENGTH
    return fits and device.type == "cuda" and has_triton() and has_flash_attention(device)


def fuse_attention(
    x_TD: Tensor, memory_SD: Tensor | None, spec: AttentionSpec, head_dim: int, max_length: int
) -> bool:
    """Return whether an attention sublayer is one op: in training, where the Triton kernel serves."""
    if len(x_TD) == 0:
        return False
    if memory_SD is not None and (len(memory_SD) == 0 or memory_SD.dtype != x_TD.dtype):
        return False
    training = torch.is_grad_enabled() and x_TD.requires_grad and not is_compiling()
    plain = spec.score != "additive" and spec.dropout == 0
    return training and plain and has_static_attention(x_TD.device, x_TD.dtype, head_dim, max_length)


# ---- linear maps


def stack_projections(x: Tensor) -> bool:
    """Return whether several projections of x are one matrix product: that keeps a GPU busier."""
    return x.is_cuda


def project_by_columns(x_RD: Tensor) -> bool:
    """Return whether the output projection of few rows is faster as a tall matrix times columns."""
    return not x_RD.is_cuda and len(x_RD) <= COLUMN_MAX_ROWS


def use_grouped_products(x_RD: Tensor, out_features: int) -> bool:
    """Return whether torch's grouped product serves: rows of 16 bytes in half precision, on a GPU."""
    is_aligned = x_RD.shape[1] % GROUPED_ALIGNMENT == 0 == out_features % GROUPED_ALIGNMENT
    return x_RD.is_cuda and x_RD.dtype in HALF_DTYPES and is_aligned and len(x_RD) > 0 and not is_compiling()


# ---- precision


def embedding_dtype(weight: Tensor, for_autocast: bool) -> torch.dtype:
    """Return the dtype that the kernel of embeddings writes."""
    return torch.get_autocast_dtype("cuda") if for_autocast else weight.dtype


def cast_for_autocast(x: Tensor) -> Tensor:
    """Return x in the dtype that the next matrix product would cast it to, so that a kernel can take it."""
    if not x.is_cuda or not torch.is_autocast_enabled("cuda") or is_compiling():
        return x
    return x.to(torch.get_autocast_dtype("cuda"))


def autocast_disabled(x: Tensor) -> AbstractContextManager[None]:
    """Return a context without autocast on the device of x."""
    return torch.autocast(x.device.type, enabled=False)


def norm_casts(x: Tensor, weight: Tensor) -> bool:
    """Return whether a norm computes in the dtype of its weight and casts back. Autocast does it itself."""
    return x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type)


def loss_dtype(hidden: Tensor) -> torch.dtype:
    """Return the dtype of the products of a loss: that of autocast, float64 kept.

    float16 becomes float32: its gradients would vanish before anything scales them.
    """
    dtype = hidden.dtype
    if torch.is_autocast_enabled(hidden.device.type) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(hidden.device.type)
    return torch.float32 if dtype == torch.float16 else dtype
