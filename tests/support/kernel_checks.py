"""Random tensors and distances for the tests of kernels: on a GPU where there is one, else interpreted."""

import pytest
import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [(torch.float32, 2e-5), (torch.float16, 3e-3)]
if DEVICE == "cuda":
    DTYPES.append((torch.bfloat16, 1e-2))
all_dtypes = pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def distance(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|, where |b| is at least 0.05 a number."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp(min=0.05 * max(1, b.numel()) ** 0.5)).item()


def gradients(out: Tensor, weight: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]
