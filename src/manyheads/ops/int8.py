"""Linear maps in int8 on a CPU: weights rounded by row, activations rounded by row as they come.

The arithmetic is CTranslate2's: x is rounded to whole numbers from -127 to 127 with a scale per row, products
are summed in int32, and the sum is multiplied by both scales.

Shapes: R rows, D numbers of each in, F out.
"""

from collections.abc import Sequence
from functools import cache
from typing import Self

import torch
from torch import Tensor, nn

MAX_INT8 = 127


@cache
def has_int8_products() -> bool:
    """Return whether this torch multiplies int8 matrices on this CPU."""
    try:
        ones = torch.ones(2, 8, dtype=torch.int8)
        return bool((multiply_int8(ones, ones) == 8).all())
    except (AttributeError, RuntimeError):
        return False


def multiply_int8(x_RD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return x W^T of int8 matrices, summed in int32. [R, F]"""
    return torch._int_mm(x_RD, weight_FD.T)


class Int8Linear(nn.Module):
    """x W^T + b with int8 products."""

    weight_FD: Tensor  # int8
    scales_F: Tensor
    bias_F: Tensor | None

    def __init__(self, weight_FD: Tensor, scales_F: Tensor, bias_F: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight_FD.shape
        self.register_buffer("weight_FD", weight_FD.contiguous(), persistent=False)
        self.register_buffer("scales_F", scales_F, persistent=False)
        self.register_buffer("bias_F", bias_F, persistent=False)

    def select_rows(self, rows: Tensor) -> Self:
        """Return the layer of some output features."""
        bias = None if self.bias_F is None else self.bias_F[rows]
        return type(self)(self.weight_FD[rows], self.scales_F[rows], bias)

    def forward(self, x_RD: Tensor) -> Tensor:
        return self.multiply(*round_activations(x_RD))

    def multiply(self, x_RD: Tensor, scales_R1: Tensor) -> Tensor:
        """Return the output for activations that are rounded already. [R, F]"""
        out_RF = multiply_int8(x_RD, self.weight_FD).float().mul_(scales_R1).mul_(self.scales_F)
        return out_RF if self.bias_F is None else out_RF.add_(self.bias_F)


def round_activations(x_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as int8, and their scales. [R, D], [R, 1]"""
    scales_R1 = x_RD.abs().amax(1, keepdim=True).div_(MAX_INT8).clamp_min_(torch.finfo(torch.float32).tiny)
    return (x_RD / scales_R1).round_().to(torch.int8), scales_R1


def int8_linears(x_RD: Tensor, layers: Sequence[Int8Linear]) -> list[Tensor]:
    """Return the output of each layer for the same x, which is rounded once."""
    rounded = round_activations(x_RD)
    return [layer.multiply(*rounded) for layer in layers]
