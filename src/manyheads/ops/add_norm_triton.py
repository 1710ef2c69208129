"""LayerNorm(x + Dropout(h)) (3.1, 5.4) in one pass forward and one backward.

The dropout mask is not stored: it is a function of a seed and of the element's index, and is computed again.

Shapes: T tokens, D = d_model, F numbers into the linear map. A program takes ROWS tokens at a time.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.dropout_seeds import dropout_seed
from manyheads.ops.stripes_triton import sum_stripes

FORWARD_BLOCK, BACKWARD_BLOCK = 1024, 512  # elements that a program holds at once
ELEMENTS_PER_WARP = 512
BACKWARD_WARPS = 2112  # in all, each with sums of its own: sixteen for each multiprocessor of an H200


def add_norm(
    x_TD: Tensor, h_TD: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float, dropout: float
) -> Tensor:
    """Return LayerNorm(x + Dropout(h)) in the dtype of h. [T, D]"""
    seed = dropout_seed(h_TD.device, dropout)
    out = _AddNorm.apply(x_TD, h_TD, weight_D, bias_D, seed, eps, dropout)
    assert isinstance(out, Tensor)
    return out


def linear_add_norm(
    x_TD: Tensor,
    h_TF: Tensor,
    linear_weight_DF: Tensor,
    linear_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    eps: float,
    dropout: float,
) -> Tensor:
    """Return LayerNorm(x + Dropout(h W^T + b)) in the dtype of h. [T, D]"""
    linear_weight_DF, linear_bias_D = linear_weight_DF.to(h_TF.dtype), linear_bias_D.to(h_TF.dtype)
    seed = dropout_seed(h_TF.device, dropout)
    out = _LinearAddNorm.apply(
        *(x_TD, h_TF, linear_weight_DF, linear_bias_D, weight_D, bias_D), seed, eps, dropout
    )
    assert isinstance(out, Tensor)
    return out


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        seed: Tensor,
        eps: float,
        dropout: float,
    ) -> Tensor:
        y, total, mean, rstd = launch_forward(x, h.contiguous(), weight, bias, seed, eps, dropout)
        ctx.save_for_backward(total, mean, rstd, weight, seed)
        ctx.dropout, ctx.x_dtype = dropout, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        d_x, d_h, sums = launch_backward(d_y, ctx.saved_tensors, ctx.dropout, ctx.x_dtype)
        d_weight, d_bias, _ = sums
        return d_x, d_h, d_weight, d_bias, None, None, None


class _LinearAddNorm(torch.autograd.Function):
    """The norm's backward kernel also sums d_h over the tokens: that is the gradient of the linear bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        linear_weight: Tensor,
        linear_bias: Tensor,
        weight: Tensor,
        bias: Tensor,
        seed: Tensor,
        eps: float,
        dropout: float,
    ) -> Tensor:
        projected = torch.addmm(linear_bias, h, linear_weight.T)
        y, total, mean, rstd = launch_forward(x, projected, weight, bias, seed, eps, dropout)
        ctx.save_for_backward(h, linear_weight, total, mean, rstd, weight, seed)
        ctx.dropout, ctx.x_dtype = dropout, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        h, linear_weight, *saved = ctx.saved_tensors
        d_x, d_projected, sums = launch_backward(d_y, saved, ctx.dropout, ctx.x_dtype)
        d_weight, d_bias, d_linear_bias = sums
        d_h, d_linear_weight = d_projected @ linear_weight, d_projected.T @ h
        return (
            *(d_x, d_h, d_linear_weight, d_linear_bias, d_weight, d_bias),
            *(None, None, None),
        )


def launch_forward(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, eps: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return LayerNorm(x + Dropout(h)), the sum, and its mean and inverse standard deviation by token."""
    x = x.contiguous()
    count, width = h.shape
    y, total = torch.empty_like(h), torch.empty_like(h)
    mean, rstd = (torch.empty(count, dtype=torch.float32, device=h.device) for _ in range(2))
    block, rows, warps = block_shape(width, FORWARD_BLOCK)
    add_norm_forward[(triton.cdiv(count, rows),)](
        *(x, h, weight, bias, seed, y, total, mean, rstd, count, eps, dropout),
        *(width, block, rows, dropout > 0),
        num_warps=warps,
    )
    return y, total, mean, rstd


def launch_backward(
    d_y: Tensor, saved: Sequence[Tensor], dropout: float, x_dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the gradients of x and h, and the sums that are those of weight, bias and h's bias, [D] each.

    `saved` are the sum x + Dropout(h), its mean and inverse standard deviation, the weight and the seed.
    """
    total, mean, rstd, weight, seed = saved
    count, width = total.shape
    block, rows, warps = block_shape(width, BACKWARD_BLOCK)
    programs = min(BACKWARD_WARPS // warps, triton.cdiv(count, rows))
    d_h = torch.empty_like(total)
    d_x = torch.empty_like(total, dtype=x_dtype)
    sums = torch.empty(3, programs, width, dtype=torch.float32, device=total.device)
    add_norm_backward[(programs,)](
        *(d_y.contiguous(), total, mean, rstd, weight, seed, d_x, d_h, *sums, count),
        *(dropout, width, block, rows, dropout > 0),
        num_warps=warps,
    )
    return d_x, d_h, sum_stripes(sums, d_h.dtype)


def block_shape(width: int, elements: int) -> tuple[int, int, int]:
    """Return the power of two around a width, the tokens of a block of so many elements, and its warps."""
    block = triton.next_power_of_2(width)
    rows = max(1, elements // block)
    return block, rows, max(1, block * rows // ELEMENTS_PER_WARP)


@triton.jit
def mix_bits(x):
    """Return 32 bits mixed so that each one depends on every other (the finalizer of MurmurHash3)."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    x ^= x >> 16
    return x


@triton.jit
def dropout_mask(seed, offsets, dropout):
    """Return which elements are kept: a function of the two words of the seed and of the offset."""
    first = tl.load(seed).to(tl.uint32, bitcast=True)
    second = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    chance = mix_bits(mix_bits(offsets.to(tl.uint32) ^ first) + second)
    return (chance >> 8).to(tl.float32) * (1.0 / 16777216.0) >= dropout


@triton.jit
def add_norm_forward(
    x, h, weight, bias, seed, y, total, mean, rstd, count, eps, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    offsets = rows[:, None] * D + columns[None, :]
    branch = tl.load(h + offsets, mask=inside, other=0.0).to(tl.float32)
    if HAS_DROPOUT:
        branch = tl.where(dropout_mask(seed, offsets, dropout), branch / (1 - dropout), 0.0)
    summed = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32) + branch
    center = tl.sum(summed, 1) / D
    centered = tl.where((columns < D)[None, :], summed - center[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centered * centered, 1) / D + eps)
    weights = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    biases = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    normalized = centered * inverse[:, None] * weights[None, :] + biases[None, :]
    tl.store(y + offsets, normalized.to(y.dtype.element_ty), mask=inside)
    tl.store(total + offsets, summed.to(total.dtype.element_ty), mask=inside)
    tl.store(mean + rows, center, mask=rows < count)
    tl.store(rstd + rows, inverse, mask=rows < count)


@triton.jit
def add_norm_backward(
    d_y, total, mean, rstd, weight, seed, d_x, d_h, d_weight, d_bias, d_h_sum, count, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Each program takes a share of the tokens and sums the gradients of weight, bias and h over it."""
    program, columns = tl.program_id(0), tl.arange(0, BLOCK)
    in_row = columns < D
    weights = tl.load(weight + columns, mask=in_row, other=0.0).to(tl.float32)
    weight_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    h_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(program * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & in_row[None, :]
        offsets = rows[:, None] * D + columns[None, :]
        grad = tl.load(d_y + offsets, mask=inside, other=0.0).to(tl.float32)
        summed = tl.load(total + offsets, mask=inside, other=0.0).to(tl.float32)
        center = tl.load(mean + rows, mask=rows < count, other=0.0)
        inverse = tl.load(rstd + rows, mask=rows < count, other=0.0)
        normalized = tl.where(inside, (summed - center[:, None]) * inverse[:, None], 0.0)
        weight_sum += grad * normalized
        bias_sum += grad
        grad_normalized = grad * weights[None, :]
        projection = tl.sum(grad_normalized * normalized, 1) / D
        average = tl.sum(grad_normalized, 1) / D
        d_total = (grad_normalized - average[:, None] - normalized * projection[:, None]) * inverse[:, None]
        tl.store(d_x + offsets, d_total.to(d_x.dtype.element_ty), mask=inside)
        if HAS_DROPOUT:
            d_total = tl.where(dropout_mask(seed, offsets, dropout), d_total / (1 - dropout), 0.0)
        tl.store(d_h + offsets, d_total.to(d_h.dtype.element_ty), mask=inside)
        h_sum += tl.where(inside, d_total, 0.0)
    tl.store(d_weight + program * D + columns, tl.sum(weight_sum, 0), mask=in_row)
    tl.store(d_bias + program * D + columns, tl.sum(bias_sum, 0), mask=in_row)
    tl.store(d_h_sum + program * D + columns, tl.sum(h_sum, 0), mask=in_row)
