"""Attention of packed sentences, several in a tile.

Sentences lie end to end, so the keys that a query sees are one range: its sentence, cut short by causality
or a window. A tile of queries reads the keys from the start of its first range to the end of its last one,
and the queries of a key are a range too. So one kernel serves every kind of attention, short sentences share
a tile, long ones take several, and the launch does not depend on the lengths: a CUDA graph can replay it.

Shapes: T queries, S keys, H heads, K = d_k, V = d_v. A kernel's program takes QUERIES x KEYS of one head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.attention_spec import AttentionSpec
from manyheads.packed import Packed

LOG2_E = tl.constexpr(math.log2(math.e))  # kernels compute powers of 2
LAUNCH = {"num_warps": 4, "num_stages": 2, "maxnreg": 128}  # four programs at a time on a multiprocessor


@dataclass(frozen=True)
class TokenRanges:
    """The tokens [start, end) of the other side that each token sees."""

    start: Tensor  # [T] int32
    end: Tensor  # [T] int32

    @classmethod
    def within_sentence(
        cls, tokens: Packed, others: Packed, before: int | None, after: int | None
    ) -> "TokenRanges":
        """Return the range of each token in the same sentence of `others`; None: as far as it goes."""
        sentence_T = tokens.sentence_ids
        start, end = others.offsets[sentence_T], others.offsets[sentence_T + 1]
        own = torch.arange(len(start), dtype=torch.int32, device=start.device)
        if before is not None:
            start = torch.maximum(start, own - before)
        if after is not None:
            end = torch.minimum(end, own + after + 1)
        return cls(start, end)


@dataclass(frozen=True)
class AttentionBounds:
    """The keys of each query, and the queries of each key."""

    key_ranges: TokenRanges
    query_ranges: TokenRanges

    @classmethod
    def compute(cls, queries: Packed, keys: Packed, spec: AttentionSpec) -> "AttentionBounds":
        return cls(
            TokenRanges.within_sentence(queries, keys, spec.keys_before, spec.keys_after),
            TokenRanges.within_sentence(keys, queries, spec.keys_after, spec.keys_before),
        )


def varlen_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, bounds: AttentionBounds, scale: float
) -> Tensor:
    """Return softmax(scale Q K^T) V over the keys that each query sees. [T, H, V]"""
    out = _VarlenAttention.apply(q_THK, k_SHK, v_SHV, bounds, scale)
    assert isinstance(out, Tensor)
    return out


class _VarlenAttention(torch.autograd.Function):
    """Saves the log of each softmax's sum, and computes the weights again for the gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bounds: AttentionBounds, scale: float) -> Tensor:
        q, k, v = with_adjacent_heads(q), with_adjacent_heads(k), with_adjacent_heads(v)
        out, log_sums = launch_forward(q, k, v, bounds, scale)
        ctx.save_for_backward(q, k, v, out, log_sums)
        ctx.bounds, ctx.scale = bounds, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sums = ctx.saved_tensors
        gradients = allocate_gradients(q, k, v)
        launch_backward(d_out, (q, k, v), out, log_sums, ctx.bounds, ctx.scale, gradients)
        return *gradients, None, None


def launch_forward(
    q: Tensor, k: Tensor, v: Tensor, bounds: AttentionBounds, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the attention, [T, H, V], and the log of each softmax's sum, [H, T]."""
    heads, d_v = v.shape[1:]
    out = v.new_empty(len(q), heads, d_v)
    log_sums = torch.empty(heads, len(q), dtype=torch.float32, device=q.device)
    ranges, tile = bounds.key_ranges, choose_tile(q, v)
    attention_forward[(triton.cdiv(len(q), tile.queries), heads)](
        *(q, k, v, out, log_sums, ranges.start, ranges.end, scale, len(q)),
        *(q.stride(0), k.stride(0), v.stride(0), out.stride(0)),
        *tile.kernel_shapes(q, v),
        **LAUNCH,
    )
    return out, log_sums


def launch_backward(
    d_out: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
    log_sums: Tensor,
    bounds: AttentionBounds,
    scale: float,
    gradients: Sequence[Tensor],
    sums: Sequence[Tensor] | None = None,
) -> None:
    """Write the gradients of q, k and v, and, if asked for, their sums over the tokens of each tile.

    The sums have a row for each tile of `count_tiles`.
    """
    q, k, v = inputs
    d_q, d_k, d_v = gradients
    d_q_sums, d_k_sums, d_v_sums = gradients if sums is None else sums
    has_sums = sums is not None
    heads, d_out = v.shape[1], with_adjacent_heads(d_out)
    deltas = torch.empty_like(log_sums)
    ranges, tile = bounds.key_ranges, choose_tile(q, v)
    attention_backward_queries[(triton.cdiv(len(q), tile.queries), heads)](
        *(q, k, v, out, d_out, log_sums, deltas, d_q, d_q_sums, ranges.start, ranges.end, scale, len(q)),
        *(x.stride(0) for x in (q, k, v, out, d_out, d_q, d_q_sums)),
        *(*tile.kernel_shapes(q, v), has_sums),
        **LAUNCH,
    )
    ranges, tile = bounds.query_ranges, replace(tile, queries=32)
    attention_backward_keys[(triton.cdiv(len(k), tile.keys), heads)](
        *(q, k, v, d_out, log_sums, deltas, d_k, d_v, d_k_sums, d_v_sums, ranges.start, ranges.end, scale),
        *(len(q), len(k)),
        *(x.stride(0) for x in (q, k, v, d_out, d_k, d_v, d_k_sums, d_v_sums)),
        *(*tile.kernel_shapes(q, v), has_sums),
        **LAUNCH,
    )


def count_tiles(q: Tensor, v: Tensor, tokens: int) -> int:
    """Return the number of tiles of this many queries, or keys, in the backward pass."""
    size = choose_tile(q, v).queries
    return -(-tokens // size)


@dataclass(frozen=True)
class Tile:
    """The queries and keys that a program takes at once. Forward they are equally many."""

    queries: int
    keys: int

    def kernel_shapes(self, q: Tensor, v: Tensor) -> tuple[int, ...]:
        """Return d_k, d_v, the powers of two around them, and the tile: compile-time constants."""
        widths = (q.shape[-1], v.shape[-1])
        return *widths, *(max(16, triton.next_power_of_2(width)) for width in widths), self.queries, self.keys


def choose_tile(q: Tensor, v: Tensor) -> Tile:
    """Return the fastest tile on an H200, or one that fits wide heads."""
    narrow = max(q.shape[-1], v.shape[-1]) <= 64
    return Tile(64, 64) if narrow and q.element_size() == 2 else Tile(32, 32)


def with_adjacent_heads(x_THK: Tensor) -> Tensor:
    """Return x with the heads of a token adjacent in memory; tokens may be further apart."""
    packed = x_THK.stride(-1) == 1 and x_THK.stride(-2) == x_THK.shape[-1]
    return x_THK if packed else x_THK.contiguous()


def allocate_gradients(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Return empty gradients. Where q, k and v are parts of one product, they are parts of one tensor too."""
    if len(q) == len(k) and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr():
        return allocate_adjacent([q, k, v])
    return [*allocate_adjacent([q]), *allocate_adjacent([k, v])]


def allocate_adjacent(tensors: list[Tensor]) -> list[Tensor]:
    """Return an empty tensor like each of these, all in one."""
    widths = [x.shape[1] * x.shape[2] for x in tensors]
    whole = tensors[0].new_empty(len(tensors[0]), sum(widths))
    return [part.unflatten(1, x.shape[1:]) for part, x in zip(whole.split(widths, 1), tensors, strict=True)]


@triton.jit
def load_tile(base, rows, stride, head, width, inside, WIDTH: tl.constexpr):
    """Load some tokens of one head, zeros beyond its width and outside. [rows, WIDTH]"""
    columns = tl.arange(0, WIDTH)
    offsets = rows.to(tl.int64)[:, None] * stride + head * width + columns[None, :]
    return tl.load(base + offsets, mask=inside[:, None] & (columns < width)[None, :], other=0.0)


@triton.jit
def store_tile(base, rows, stride, head, width, inside, values, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    offsets = rows.to(tl.int64)[:, None] * stride + head * width + columns[None, :]
    mask = inside[:, None] & (columns < width)[None, :]
    tl.store(base + offsets, values.to(base.dtype.element_ty), mask=mask)


@triton.jit
def store_sum(sums, stride, head, width, values, WIDTH: tl.constexpr):
    """Store the sum over the tokens of this program's tile."""
    columns = tl.arange(0, WIDTH)
    sums += tl.program_id(0) * stride + head * width
    tl.store(sums + columns, tl.sum(values, 0), mask=columns < width)


@triton.jit
def load_ranges(starts, ends, rows, inside):
    """Load the ranges of some tokens, and the range around all of them; those outside see nothing."""
    range_start = tl.load(starts + rows, mask=inside, other=2147483647)
    range_end = tl.load(ends + rows, mask=inside, other=0)
    return range_start, range_end, tl.min(range_start), tl.max(range_end)


@triton.jit
def attention_forward(
    q, k, v, out, log_sums, starts, ends, scale, T, stride_q, stride_k, stride_v, stride_out,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Equation (1) over ranges, with a running softmax from one tile of keys to the next."""
    rows, head = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.program_id(1)
    inside = rows < T
    range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
    q_tile = load_tile(q, rows, stride_q, head, D_K, inside, K)
    maximum = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    output = tl.zeros([QUERIES, V], tl.float32)
    for start in range(lowest, highest, KEYS):
        columns = start + tl.arange(0, KEYS)
        k_tile = load_tile(k, columns, stride_k, head, D_K, columns < highest, K)
        v_tile = load_tile(v, columns, stride_v, head, D_V, columns < highest, V)
        visible = (columns[None, :] >= range_start[:, None]) & (columns[None, :] < range_end[:, None])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * LOG2_E)
        scores = tl.where(visible, scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        safe_maximum = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)  # nothing seen yet
        weights = tl.exp2(scores - safe_maximum[:, None])
        rescale = tl.exp2(maximum - safe_maximum)
        total = total * rescale + tl.sum(weights, 1)
        output *= rescale[:, None]
        output += tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
        maximum = new_maximum
    sees_any = total > 0
    output = output / tl.where(sees_any, total, 1.0)[:, None]
    store_tile(out, rows, stride_out, head, D_V, inside, output, V)
    log_sum = tl.where(sees_any, maximum + tl.log2(tl.where(sees_any, total, 1.0)), float("inf"))
    tl.store(log_sums + head * T + rows, log_sum, mask=inside)


@triton.jit
def attention_backward_queries(
    q, k, v, out, d_out, log_sums, deltas, d_q, d_q_sums, starts, ends, scale, T,
    stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q, stride_d_q_sums,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, HAS_SUMS: tl.constexpr,
):  # fmt: skip
    """dQ = scale dS K, where dS = P (dP - delta), dP = dO V^T and delta = sum(dO O), saved for the keys."""
    rows, head = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.program_id(1)
    inside = rows < T
    range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
    q_tile = load_tile(q, rows, stride_q, head, D_K, inside, K)
    out_tile = load_tile(out, rows, stride_out, head, D_V, inside, V)
    d_out_tile = load_tile(d_out, rows, stride_d_out, head, D_V, inside, V)
    delta = tl.sum(out_tile.to(tl.float32) * d_out_tile.to(tl.float32), 1)
    tl.store(deltas + head * T + rows, delta, mask=inside)
    log_sum = tl.load(log_sums + head * T + rows, mask=inside, other=float("inf"))
    d_q_tile = tl.zeros([QUERIES, K], tl.float32)
    for start in range(lowest, highest, KEYS):
        columns = start + tl.arange(0, KEYS)
        k_tile = load_tile(k, columns, stride_k, head, D_K, columns < highest, K)
        v_tile = load_tile(v, columns, stride_v, head, D_V, columns < highest, V)
        visible = (columns[None, :] >= range_start[:, None]) & (columns[None, :] < range_end[:, None])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(visible, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
        d_scores = weights * (d_weights - delta[:, None])
        d_q_tile += tl.dot(d_scores.to(k_tile.dtype), k_tile, input_precision="ieee")
    store_tile(d_q, rows, stride_d_q, head, D_K, inside, d_q_tile * scale, K)
    if HAS_SUMS:
        store_sum(d_q_sums, stride_d_q_sums, head, D_K, d_q_tile * scale, K)


@triton.jit
def attention_backward_keys(
    q, k, v, d_out, log_sums, deltas, d_k, d_v, d_k_sums, d_v_sums, starts, ends, scale, T, S,
    stride_q, stride_k, stride_v, stride_d_out, stride_d_k, stride_d_v, stride_d_k_sums, stride_d_v_sums,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, HAS_SUMS: tl.constexpr,
):  # fmt: skip
    """dV = P^T dO and dK = scale dS^T Q: the same from the side of the keys."""
    rows, head = tl.program_id(0) * KEYS + tl.arange(0, KEYS), tl.program_id(1)
    inside = rows < S
    range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
    k_tile = load_tile(k, rows, stride_k, head, D_K, inside, K)
    v_tile = load_tile(v, rows, stride_v, head, D_V, inside, V)
    d_k_tile = tl.zeros([KEYS, K], tl.float32)
    d_v_tile = tl.zeros([KEYS, V], tl.float32)
    for start in range(lowest, highest, QUERIES):
        columns = start + tl.arange(0, QUERIES)
        columns_inside = columns < highest
        q_tile = load_tile(q, columns, stride_q, head, D_K, columns_inside, K)
        d_out_tile = load_tile(d_out, columns, stride_d_out, head, D_V, columns_inside, V)
        log_sum = tl.load(log_sums + head * T + columns, mask=columns_inside, other=float("inf"))
        delta = tl.load(deltas + head * T + columns, mask=columns_inside, other=0.0)
        visible = (columns[None, :] >= range_start[:, None]) & (columns[None, :] < range_end[:, None])
        scores = tl.dot(k_tile, tl.trans(q_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(visible, tl.exp2(scores - log_sum[None, :]), 0.0)
        d_v_tile += tl.dot(weights.to(d_out_tile.dtype), d_out_tile, input_precision="ieee")
        d_weights = tl.dot(v_tile, tl.trans(d_out_tile), input_precision="ieee")
        d_scores = weights * (d_weights - delta[None, :])
        d_k_tile += tl.dot(d_scores.to(q_tile.dtype), q_tile, input_precision="ieee")
    store_tile(d_k, rows, stride_d_k, head, D_K, inside, d_k_tile * scale, K)
    store_tile(d_v, rows, stride_d_v, head, D_V, inside, d_v_tile, V)
    if HAS_SUMS:
        store_sum(d_k_sums, stride_d_k_sums, head, D_K, d_k_tile * scale, K)
        store_sum(d_v_sums, stride_d_v_sums, head, D_V, d_v_tile, V)
