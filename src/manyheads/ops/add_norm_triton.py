"""LayerNorm(x + Dropout(h)) (3.1, 5.4) in one pass forward and one backward.

What was dropped is not kept: it is a function of a seed and of the place, and is worked out anew.

Shapes: T tokens, D = d_model. A program takes ROWS tokens at a time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.linear_triton import remember_sum

BACKWARD_PROGRAMS = (
    1056  # of a backward pass, each with sums of its own: eight to each multiprocessor of an H200
)
BLOCK_SIZE = 1024  # that a program holds at once
NUM_WARPS = 2


def add_norm(
    x_TD: Tensor, h_TD: Tensor, weight_D: Tensor, bias_D: Tensor, eps: float, dropout: float
) -> Tensor:
    """LayerNorm(x + Dropout(h)), in the dtype of h. [T, D]"""
    seed = dropout_seed(h_TD.device, dropout)
    found = _AddNorm.apply(x_TD, h_TD, weight_D, bias_D, seed, eps, dropout)
    assert isinstance(found, Tensor)
    return found


def dropout_seed(device: torch.device, dropout: float) -> Tensor:
    """Two random words out of torch's generator, so that its seed decides what is dropped; or any two."""
    if dropout == 0:
        return torch.empty(2, dtype=torch.int32, device=device)
    return torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=device)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        gain: Tensor,
        bias: Tensor,
        seed: Tensor,
        epsilon: float,
        dropout: float,
    ) -> Tensor:
        x, h = x.contiguous(), h.contiguous()
        count, width = h.shape
        y, total = torch.empty_like(h), torch.empty_like(h)
        mean, deviation = (torch.empty(count, dtype=torch.float32, device=h.device) for _ in range(2))
        block = triton.next_power_of_2(width)
        rows = max(1, BLOCK_SIZE // block)
        add_norm_forward[(triton.cdiv(count, rows),)](
            *(x, h, gain, bias, seed, y, total, mean, deviation, count, epsilon, dropout),
            *(width, block, rows, dropout > 0),
            num_warps=NUM_WARPS,
        )
        ctx.save_for_backward(total, mean, deviation, gain, seed)
        ctx.dropout, ctx.x_dtype = dropout, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, deviation, gain, seed = ctx.saved_tensors
        count, width = total.shape
        block = triton.next_power_of_2(width)
        rows = max(1, BLOCK_SIZE // block)
        programs = min(BACKWARD_PROGRAMS, triton.cdiv(count, rows))
        d_h = torch.empty_like(total)
        d_x = torch.empty_like(total, dtype=ctx.x_dtype)
        sums = torch.empty(3, programs, width, dtype=torch.float32, device=total.device)
        add_norm_backward[(programs,)](
            *(d_y.contiguous(), total, mean, deviation, gain, seed, d_x, d_h, *sums, count),
            *(ctx.dropout, width, block, rows, ctx.dropout > 0),
            num_warps=NUM_WARPS,
        )
        d_gain, d_bias, sum_of_d_h = sums.sum(1)
        remember_sum(d_h, sum_of_d_h)
        return d_x, d_h, d_gain, d_bias, None, None, None


@triton.jit
def mix_bits(x):
    """A number of 32 bits stirred so that each bit of it decides about every other (MurmurHash3's end)."""
    x ^= x >> 16
    x *= 0x85EBCA6B
    x ^= x >> 13
    x *= 0xC2B2AE35
    x ^= x >> 16
    return x


@triton.jit
def dropout_mask(seed, offsets, dropout):
    """Which places are not dropped: a function of the seed's two words and the place."""
    first = tl.load(seed).to(tl.uint32, bitcast=True)
    second = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    chance = mix_bits(mix_bits(offsets.to(tl.uint32) ^ first) + second)
    return (chance >> 8).to(tl.float32) * (1.0 / 16777216.0) >= dropout


@triton.jit
def add_norm_forward(
    x, h, gain, bias, seed, y, total, mean, deviation, count, epsilon, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    there = (rows < count)[:, None] & (columns < D)[None, :]
    places = rows[:, None] * D + columns[None, :]
    added = tl.load(h + places, mask=there, other=0.0).to(tl.float32)
    if DROPS:
        added = tl.where(dropout_mask(seed, places, dropout), added / (1 - dropout), 0.0)
    summed = tl.load(x + places, mask=there, other=0.0).to(tl.float32) + added
    center = tl.sum(summed, 1) / D
    apart = tl.where((columns < D)[None, :], summed - center[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(apart * apart, 1) / D + epsilon)
    gains = tl.load(gain + columns, mask=columns < D, other=0.0).to(tl.float32)
    biases = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    normal = apart * inverse[:, None] * gains[None, :] + biases[None, :]
    tl.store(y + places, normal.to(y.dtype.element_ty), mask=there)
    tl.store(total + places, summed.to(total.dtype.element_ty), mask=there)
    tl.store(mean + rows, center, mask=rows < count)
    tl.store(deviation + rows, inverse, mask=rows < count)


@triton.jit
def add_norm_backward(
    d_y, total, mean, deviation, gain, seed, d_x, d_h, d_gain, d_bias, sum_of_d_h, count, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Each program walks over its share of the tokens and sums up what gain, bias and h's bias get of it."""
    program, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < D
    gains = tl.load(gain + columns, mask=inside, other=0.0).to(tl.float32)
    gain_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    h_sum = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(program * ROWS, count, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        there = (rows < count)[:, None] & inside[None, :]
        places = rows[:, None] * D + columns[None, :]
        arrived = tl.load(d_y + places, mask=there, other=0.0).to(tl.float32)
        summed = tl.load(total + places, mask=there, other=0.0).to(tl.float32)
        center = tl.load(mean + rows, mask=rows < count, other=0.0)
        inverse = tl.load(deviation + rows, mask=rows < count, other=0.0)
        normal = tl.where(there, (summed - center[:, None]) * inverse[:, None], 0.0)
        gain_sum += arrived * normal
        bias_sum += arrived
        pushed = arrived * gains[None, :]
        along = tl.sum(pushed * normal, 1) / D
        level = tl.sum(pushed, 1) / D
        back = (pushed - level[:, None] - normal * along[:, None]) * inverse[:, None]
        tl.store(d_x + places, back.to(d_x.dtype.element_ty), mask=there)
        if DROPS:
            back = tl.where(dropout_mask(seed, places, dropout), back / (1 - dropout), 0.0)
        tl.store(d_h + places, back.to(d_h.dtype.element_ty), mask=there)
        h_sum += tl.where(there, back, 0.0)
    tl.store(d_gain + program * D + columns, tl.sum(gain_sum, 0), mask=inside)
    tl.store(d_bias + program * D + columns, tl.sum(bias_sum, 0), mask=inside)
    tl.store(sum_of_d_h + program * D + columns, tl.sum(h_sum, 0), mask=inside)
