"""x W + b and max(0, x W + b) (3.3): the products are cuBLAS's, and what goes around them takes few passes.

The bias and the maximum are parts of the product; backward, one kernel sums the bias's gradient and closes
what the maximum closed.

Shapes: T tokens, D numbers of each in, F out.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK_ROWS, BLOCK_COLUMNS = 32, 128  # of a tile
STRIPES = 64  # that the tokens are divided into, each with sums of its own


def linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """x W^T + b in the dtype of x. [T, F]"""
    return _apply_linear(x_TD, weight_FD, bias_F, False)


def linear_relu(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """max(0, x W^T + b) in the dtype of x. [T, F]"""
    return _apply_linear(x_TD, weight_FD, bias_F, True)


def _apply_linear(x: Tensor, weight: Tensor, bias: Tensor, rectifies: bool) -> Tensor:
    dtype = x.dtype
    found = _Linear.apply(x, weight.to(dtype), bias.to(dtype), rectifies)
    assert isinstance(found, Tensor)
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rectifies: bool) -> Tensor:
        product = torch._addmm_activation if rectifies else torch.addmm
        out = product(bias, x, weight.T)
        ctx.save_for_backward(x, weight, out if rectifies else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        d_product, d_bias = d_out, known_sum(d_out) if out is None else None
        if d_bias is None:
            d_product, d_bias = relu_backward_and_sum(d_out.contiguous(), out)
        return d_product @ weight, d_product.T @ x, d_bias.to(weight.dtype), None


def relu_backward_and_sum(d_out_TF: Tensor, out_TF: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradient where something came out (of a maximum, or everywhere), and its sum over tokens."""
    count, width = d_out_TF.shape
    d_product = d_out_TF if out_TF is None else torch.empty_like(d_out_TF)
    sums = torch.empty(STRIPES, width, dtype=torch.float32, device=d_out_TF.device)
    linear_backward[(triton.cdiv(width, BLOCK_COLUMNS), STRIPES)](
        *(d_out_TF, d_out_TF if out_TF is None else out_TF, d_product, sums, count, width),
        *(out_TF is not None, BLOCK_ROWS, BLOCK_COLUMNS),
    )
    return d_product, sums.sum(0)


def remember_sum(gradient_TF: Tensor, sum_F: Tensor) -> None:
    """Whoever wrote this gradient has summed it over the tokens too; whoever needs the sum need not."""
    gradient_TF.sum_over_tokens = sum_F  # type: ignore[attr-defined]


def known_sum(gradient_TF: Tensor) -> Tensor | None:
    return getattr(gradient_TF, "sum_over_tokens", None)


@triton.jit
def linear_backward(
    d_out, out, d_product, sums, count, width,
    CLOSES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, stripe = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    inside = columns < width
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(stripe * ROWS, count, tl.num_programs(1) * ROWS):
        rows = start + tl.arange(0, ROWS)
        there = (rows < count)[:, None] & inside[None, :]
        places = rows.to(tl.int64)[:, None] * width + columns[None, :]
        gradient = tl.load(d_out + places, mask=there, other=0.0)
        if CLOSES:
            came = tl.load(out + places, mask=there, other=0.0) > 0
            gradient = tl.where(came, gradient, 0.0)
            tl.store(d_product + places, gradient, mask=there)
        total += gradient.to(tl.float32)
    tl.store(sums + stripe * width + columns, tl.sum(total, 0), mask=inside)
