"""x W + b and max(0, x W + b) (3.3). The products are cuBLAS's; bias and ReLU are parts of them.

Backward, one kernel applies the gradient of the ReLU and sums the gradient of the bias.

Shapes: T tokens, D numbers of each in, F out.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.stripes_triton import sum_stripes

BLOCK_ROWS, BLOCK_COLUMNS = 32, 128  # of a tile
STRIPES = 64  # of tokens, each with sums of its own


def linear(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return x W^T + b in the dtype of x. [T, F]"""
    return _apply_linear(x_TD, weight_FD, bias_F, False)


def linear_relu(x_TD: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """Return max(0, x W^T + b) in the dtype of x. [T, F]"""
    return _apply_linear(x_TD, weight_FD, bias_F, True)


def _apply_linear(x: Tensor, weight: Tensor, bias: Tensor, has_relu: bool) -> Tensor:
    dtype = x.dtype
    out = _Linear.apply(x, weight.to(dtype), bias.to(dtype), has_relu)
    assert isinstance(out, Tensor)
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, has_relu: bool) -> Tensor:
        product = torch._addmm_activation if has_relu else torch.addmm
        out = product(bias, x, weight.T)
        ctx.save_for_backward(x, weight, out if has_relu else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        d_product, d_bias = relu_backward_and_sum(d_out.contiguous(), out)
        return d_product @ weight, d_product.T @ x, d_bias, None


def relu_backward_and_sum(d_out_TF: Tensor, out_TF: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradient of the product and its sum over the tokens. Without `out` there was no ReLU."""
    count, width = d_out_TF.shape
    d_product = d_out_TF if out_TF is None else torch.empty_like(d_out_TF)
    sums = torch.empty(STRIPES, width, dtype=torch.float32, device=d_out_TF.device)
    linear_backward[(triton.cdiv(width, BLOCK_COLUMNS), STRIPES)](
        *(d_out_TF, d_out_TF if out_TF is None else out_TF, d_product, sums, count, width),
        *(out_TF is not None, BLOCK_ROWS, BLOCK_COLUMNS),
    )
    return d_product, sum_stripes(sums[None], d_product.dtype)[0]


@triton.jit
def linear_backward(
    d_out, out, d_product, sums, count, width,
    HAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns, stripe = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    in_row = columns < width
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(stripe * ROWS, count, tl.num_programs(1) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & in_row[None, :]
        offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
        grad = tl.load(d_out + offsets, mask=inside, other=0.0)
        if HAS_RELU:
            positive = tl.load(out + offsets, mask=inside, other=0.0) > 0
            grad = tl.where(positive, grad, 0.0)
            tl.store(d_product + offsets, grad, mask=inside)
        total += grad.to(tl.float32)
    tl.store(sums + stripe * width + columns, tl.sum(total, 0), mask=in_row)
