"""LayerNorm(x + Dropout(max(0, x W_1 + b_1) W_2 + b_2)) (3.1, 3.3), one op for the sake of its gradient.

There the product with W_2 applies the gradient of the ReLU and sums that of b_1 to what it writes, and the
product with W_1 adds the gradient of the residual connection.

Shapes: T tokens, D = d_model, F = d_ff. A program of the kernel computes ROWS x COLUMNS of a product.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.add_norm_triton import launch_backward, launch_forward
from manyheads.ops.dropout_seeds import dropout_seed
from manyheads.ops.linear_triton import relu_backward_and_sum
from manyheads.ops.stripes_triton import sum_stripes

BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_INNER = 128, 128, 64
NUM_WARPS, NUM_STAGES = 4, 3
GROUP_ROWS = 8  # tiles of rows whose inputs stay in the cache together


def feed_forward_add_norm(
    x_TD: Tensor,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    norm: tuple[Tensor, Tensor],
    eps: float,
    dropout: float,
) -> Tensor:
    """Return LayerNorm(x + Dropout(FFN(x))) in the dtype of x, of three pairs of weight and bias. [T, D]"""
    weights = [weight.to(x_TD.dtype) for weight in (*first, *second)]
    seed = dropout_seed(x_TD.device, dropout)
    out = _FeedForwardAddNorm.apply(x_TD, *weights, *norm, seed, eps, dropout)
    assert isinstance(out, Tensor)
    return out


class _FeedForwardAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_1: Tensor,
        bias_1: Tensor,
        weight_2: Tensor,
        bias_2: Tensor,
        weight: Tensor,
        bias: Tensor,
        seed: Tensor,
        eps: float,
        dropout: float,
    ) -> Tensor:
        hidden = torch._addmm_activation(bias_1, x, weight_1.T)
        projected = torch.addmm(bias_2, hidden, weight_2.T)
        y, total, mean, rstd = launch_forward(x, projected, weight, bias, seed, eps, dropout)
        ctx.save_for_backward(x, hidden, weight_1, weight_2, total, mean, rstd, weight, seed)
        ctx.dropout = dropout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, weight_1, weight_2, *saved = ctx.saved_tensors
        d_x, d_projected, sums = launch_backward(d_y, saved, ctx.dropout, x.dtype)
        d_weight, d_bias, d_bias_2 = sums
        d_hidden, d_bias_1 = matmul_relu_backward(d_projected, weight_2, hidden)
        return (
            d_x.addmm_(d_hidden, weight_1),
            *(d_hidden.T @ x, d_bias_1),
            *(d_projected.T @ hidden, d_bias_2),
            *(d_weight, d_bias, None, None, None),
        )


def matmul_relu_backward(d_out_TD: Tensor, weight_DF: Tensor, hidden_TF: Tensor) -> tuple[Tensor, Tensor]:
    """Return d_out W where `hidden` is positive and zero elsewhere, and its sum over tokens. [T, F], [F]"""
    count, inner = d_out_TD.shape
    width = weight_DF.shape[1]
    if inner % BLOCK_INNER or width % BLOCK_COLUMNS or not weight_DF.is_contiguous():
        return relu_backward_and_sum(d_out_TD @ weight_DF, hidden_TF)
    d_hidden = torch.empty_like(hidden_TF)
    row_tiles = triton.cdiv(count, BLOCK_ROWS)
    sums = torch.empty(row_tiles, width, dtype=torch.float32, device=d_out_TD.device)
    matmul_relu_backward_kernel[(row_tiles * (width // BLOCK_COLUMNS),)](
        *(d_out_TD, weight_DF, hidden_TF, d_hidden, sums, count),
        *(inner, width, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_INNER, GROUP_ROWS),
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    return d_hidden, sum_stripes(sums[None], d_hidden.dtype)[0]


@triton.jit
def matmul_relu_backward_kernel(
    d_out, weight, hidden, d_hidden, sums, count,
    INNER: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    column_tiles: tl.constexpr = WIDTH // COLUMNS
    row_tiles = tl.cdiv(count, ROWS)
    first_row = tl.program_id(0) // (GROUP * column_tiles) * GROUP
    group_rows = tl.minimum(row_tiles - first_row, GROUP)
    position = tl.program_id(0) % (GROUP * column_tiles)
    row_tile = first_row + position % group_rows
    rows = row_tile * ROWS + tl.arange(0, ROWS)
    columns = position // group_rows * COLUMNS + tl.arange(0, COLUMNS)
    inside = (rows < count)[:, None]
    steps = tl.arange(0, BLOCK)
    left = d_out + tl.where(rows < count, rows, 0).to(tl.int64)[:, None] * INNER + steps[None, :]
    right = weight + steps[:, None] * WIDTH + columns[None, :]
    offsets = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    product = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(0, INNER, BLOCK):
        product = tl.dot(tl.load(left), tl.load(right), product, input_precision="ieee")
        left += BLOCK
        right += BLOCK * WIDTH
    positive = tl.load(hidden + offsets, mask=inside, other=0.0) > 0
    gradient = tl.where(positive, product.to(d_hidden.dtype.element_ty), 0.0)
    tl.store(d_hidden + offsets, gradient, mask=inside)
    tl.store(sums + row_tile * WIDTH + columns, tl.sum(gradient.to(tl.float32), 0))
