"""The fast paths of a GPU, in Triton: each equals a plain one beside it, and the tests hold it to that."""

import importlib.util
from functools import cache

import torch
from torch import Tensor

HALF_DTYPES = (torch.bfloat16, torch.float16)
IGNORE_INDEX = -1  # the label of a token that does not count


def use_kernels(x: Tensor) -> bool:
    """Whether numbers of this kind lie where the kernels run: on a GPU, in half precision."""
    return not torch.compiler.is_compiling() and x.is_cuda and x.dtype in HALF_DTYPES and has_triton()


def cast_for_autocast(x: Tensor) -> Tensor:
    """As the next product would round it under autocast, now, so that a kernel can take it."""
    if not x.is_cuda or not torch.is_autocast_enabled("cuda") or torch.compiler.is_compiling():
        return x
    return x.to(torch.get_autocast_dtype("cuda"))


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
