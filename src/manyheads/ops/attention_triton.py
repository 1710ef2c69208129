"""Attention of packed sentences, several in a tile.

Sentences lie end to end, so what a query may see is one span of keys: its sentence, cut short by causality
or a window. A tile of queries looks at the keys from where its first span begins to where its last one ends,
and a key's queries are a span too. So one rule serves every kind of attention, short sentences share a tile,
long ones take several, and nothing depends on the longest: a captured graph serves every batch.

Shapes: T queries, S keys, H heads, K = d_k, V = d_v. A kernel's program takes QUERIES x KEYS of one head.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.packed import Packed

LOG2_E = tl.constexpr(math.log2(math.e))  # kernels know powers of 2
NUM_WARPS, NUM_STAGES = 4, 2  # of every launch


@dataclass(frozen=True)
class TokenRanges:
    """What each token may see: [first, last) of the other side."""

    start: Tensor  # [T] int32
    end: Tensor  # [T] int32

    @classmethod
    def within_sentence(
        cls, tokens: Packed, others: Packed, back: int | None, ahead: int | None
    ) -> "TokenRanges":
        """Of each token the other text's same sentence, so many places back and ahead; None: all of it."""
        sentence_T = tokens.sentence_ids
        first, last = others.offsets[sentence_T], others.offsets[sentence_T + 1]
        here = torch.arange(len(first), dtype=torch.int32, device=first.device)
        if back is not None:
            first = torch.maximum(first, here - back)
        if ahead is not None:
            last = torch.minimum(last, here + ahead + 1)
        return cls(first, last)


@dataclass(frozen=True)
class AttentionBounds:
    """Who sees whom, from both sides."""

    key_ranges: TokenRanges
    query_ranges: TokenRanges

    @classmethod
    def compute(cls, queries: Packed, keys: Packed, causal: bool, window: int | None) -> "AttentionBounds":
        reach = None if window is None else window // 2
        ahead = 0 if causal else reach
        return cls(
            TokenRanges.within_sentence(queries, keys, reach, ahead),
            TokenRanges.within_sentence(keys, queries, ahead, reach),
        )


def varlen_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, bounds: AttentionBounds, scale: float
) -> Tensor:
    """softmax(scale Q K^T) V over the keys that each query sees. [T, H, V]"""
    found = _VarlenAttention.apply(q_THK, k_SHK, v_SHV, bounds, scale)
    assert isinstance(found, Tensor)
    return found


class _VarlenAttention(torch.autograd.Function):
    """Keeps the logarithm of each softmax's sum, and computes the weights anew for the gradients."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sight: AttentionBounds, scale: float) -> Tensor:
        q, k, v = with_adjacent_heads(q), with_adjacent_heads(k), with_adjacent_heads(v)
        heads, d_v = v.shape[1:]
        out = v.new_empty(len(q), heads, d_v)
        log_sums = torch.empty(heads, len(q), dtype=torch.float32, device=q.device)
        spans, tile = sight.key_ranges, choose_tile(q, v)
        attention_forward[(triton.cdiv(len(q), tile.queries), heads)](
            *(q, k, v, out, log_sums, spans.start, spans.end, scale, len(q)),
            *(q.stride(0), k.stride(0), v.stride(0), out.stride(0)),
            *tile.kernel_shapes(q, v),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        ctx.save_for_backward(q, k, v, out, log_sums)
        ctx.sight, ctx.scale = sight, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sums = ctx.saved_tensors
        sight: AttentionBounds = ctx.sight
        heads, d_out = v.shape[1], with_adjacent_heads(d_out)
        d_q, d_k, d_v = allocate_gradients(q, k, v)
        deltas = torch.empty_like(log_sums)
        spans, tile = sight.key_ranges, choose_tile(q, v)
        attention_backward_queries[(triton.cdiv(len(q), tile.queries), heads)](
            *(q, k, v, out, d_out, log_sums, deltas, d_q, spans.start, spans.end, ctx.scale, len(q)),
            *(one.stride(0) for one in (q, k, v, out, d_out, d_q)),
            *tile.kernel_shapes(q, v),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        spans, tile = sight.query_ranges, replace(tile, queries=32)
        attention_backward_keys[(triton.cdiv(len(k), tile.keys), heads)](
            *(q, k, v, d_out, log_sums, deltas, d_k, d_v, spans.start, spans.end, ctx.scale),
            *(len(q), len(k)),
            *(one.stride(0) for one in (q, k, v, d_out, d_k, d_v)),
            *tile.kernel_shapes(q, v),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        return d_q, d_k, d_v, None, None


@dataclass(frozen=True)
class Tile:
    """How much a program takes at once."""

    queries: int
    keys: int

    def kernel_shapes(self, q: Tensor, v: Tensor) -> tuple[int, ...]:
        """d_k, d_v, and the powers of two around them: the shapes that a kernel is compiled for."""
        widths = (q.shape[-1], v.shape[-1])
        return *widths, *(max(16, triton.next_power_of_2(width)) for width in widths), self.queries, self.keys


def choose_tile(q: Tensor, v: Tensor) -> Tile:
    """What was the fastest on an H200, or fits where heads are wide."""
    narrow = max(q.shape[-1], v.shape[-1]) <= 64
    return Tile(64, 64) if narrow and q.element_size() == 2 else Tile(32, 32)


def with_adjacent_heads(x_THK: Tensor) -> Tensor:
    """With the heads of a token side by side in memory; tokens may lie further apart."""
    packed = x_THK.stride(-1) == 1 and x_THK.stride(-2) == x_THK.shape[-1]
    return x_THK if packed else x_THK.contiguous()


def allocate_gradients(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Room for the gradients: what one product made side by side, they are in one piece too."""
    if len(q) == len(k) and q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr():
        return allocate_adjacent([q, k, v])
    return [*allocate_adjacent([q]), *allocate_adjacent([k, v])]


def allocate_adjacent(tensors: list[Tensor]) -> list[Tensor]:
    widths = [one.shape[1] * one.shape[2] for one in tensors]
    room = tensors[0].new_empty(len(tensors[0]), sum(widths))
    return [
        part.unflatten(1, one.shape[1:]) for part, one in zip(room.split(widths, 1), tensors, strict=True)
    ]


@triton.jit
def load_tile(base, rows, stride, head, width, kept, WIDTH: tl.constexpr):
    """Some tokens of one head, zeros beyond its width and where nothing is kept. [rows, WIDTH]"""
    columns = tl.arange(0, WIDTH)
    places = rows.to(tl.int64)[:, None] * stride + head * width + columns[None, :]
    return tl.load(base + places, mask=kept[:, None] & (columns < width)[None, :], other=0.0)


@triton.jit
def store_tile(base, rows, stride, head, width, kept, values, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    places = rows.to(tl.int64)[:, None] * stride + head * width + columns[None, :]
    mask = kept[:, None] & (columns < width)[None, :]
    tl.store(base + places, values.to(base.dtype.element_ty), mask=mask)


@triton.jit
def load_ranges(first, last, rows, kept):
    """The spans of some tokens, and the range that holds them all; who is not kept sees nothing."""
    begin = tl.load(first + rows, mask=kept, other=2147483647)
    end = tl.load(last + rows, mask=kept, other=0)
    return begin, end, tl.min(begin), tl.max(end)


@triton.jit
def attention_forward(
    q, k, v, out, log_sums, first, last, scale, T, stride_q, stride_k, stride_v, stride_out,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Equation (1) over spans, the softmax built up from one tile of keys to the next."""
    rows, head = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.program_id(1)
    there = rows < T
    begin, end, low, high = load_ranges(first, last, rows, there)
    q_tile = load_tile(q, rows, stride_q, head, D_K, there, K)
    greatest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    gathered = tl.zeros([QUERIES, V], tl.float32)
    for start in range(low, high, KEYS):
        columns = start + tl.arange(0, KEYS)
        k_tile = load_tile(k, columns, stride_k, head, D_K, columns < high, K)
        v_tile = load_tile(v, columns, stride_v, head, D_V, columns < high, V)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * LOG2_E)
        scores = tl.where(seen, scores, float("-inf"))
        now = tl.maximum(greatest, tl.max(scores, 1))
        level = tl.where(now == float("-inf"), 0.0, now)  # of who has seen nothing yet
        weights = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(greatest - level)
        total = total * shrink + tl.sum(weights, 1)
        gathered *= shrink[:, None]
        gathered += tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="ieee")
        greatest = now
    saw = total > 0
    gathered = gathered / tl.where(saw, total, 1.0)[:, None]
    store_tile(out, rows, stride_out, head, D_V, there, gathered, V)
    log_sum = tl.where(saw, greatest + tl.log2(tl.where(saw, total, 1.0)), float("inf"))
    tl.store(log_sums + head * T + rows, log_sum, mask=there)


@triton.jit
def attention_backward_queries(
    q, k, v, out, d_out, log_sums, deltas, d_q, first, last, scale, T,
    stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """dQ = scale dS K, where dS = P (dP - delta), dP = dO V^T and delta = sum(dO O), kept for the keys."""
    rows, head = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.program_id(1)
    there = rows < T
    begin, end, low, high = load_ranges(first, last, rows, there)
    q_tile = load_tile(q, rows, stride_q, head, D_K, there, K)
    out_tile = load_tile(out, rows, stride_out, head, D_V, there, V)
    d_out_tile = load_tile(d_out, rows, stride_d_out, head, D_V, there, V)
    delta = tl.sum(out_tile.to(tl.float32) * d_out_tile.to(tl.float32), 1)
    tl.store(deltas + head * T + rows, delta, mask=there)
    log_sum = tl.load(log_sums + head * T + rows, mask=there, other=float("inf"))
    found = tl.zeros([QUERIES, K], tl.float32)
    for start in range(low, high, KEYS):
        columns = start + tl.arange(0, KEYS)
        k_tile = load_tile(k, columns, stride_k, head, D_K, columns < high, K)
        v_tile = load_tile(v, columns, stride_v, head, D_V, columns < high, V)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(seen, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
        d_scores = weights * (d_weights - delta[:, None])
        found += tl.dot(d_scores.to(k_tile.dtype), k_tile, input_precision="ieee")
    store_tile(d_q, rows, stride_d_q, head, D_K, there, found * scale, K)


@triton.jit
def attention_backward_keys(
    q, k, v, d_out, log_sums, deltas, d_k, d_v, first, last, scale, T, S,
    stride_q, stride_k, stride_v, stride_d_out, stride_d_k, stride_d_v,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """dV = P^T dO and dK = scale dS^T Q: the same, seen from the keys."""
    rows, head = tl.program_id(0) * KEYS + tl.arange(0, KEYS), tl.program_id(1)
    there = rows < S
    begin, end, low, high = load_ranges(first, last, rows, there)
    k_tile = load_tile(k, rows, stride_k, head, D_K, there, K)
    v_tile = load_tile(v, rows, stride_v, head, D_V, there, V)
    found_k = tl.zeros([KEYS, K], tl.float32)
    found_v = tl.zeros([KEYS, V], tl.float32)
    for start in range(low, high, QUERIES):
        columns = start + tl.arange(0, QUERIES)
        kept = columns < high
        q_tile = load_tile(q, columns, stride_q, head, D_K, kept, K)
        d_out_tile = load_tile(d_out, columns, stride_d_out, head, D_V, kept, V)
        log_sum = tl.load(log_sums + head * T + columns, mask=kept, other=float("inf"))
        delta = tl.load(deltas + head * T + columns, mask=kept, other=0.0)
        seen = (columns[None, :] >= begin[:, None]) & (columns[None, :] < end[:, None])
        scores = tl.dot(k_tile, tl.trans(q_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(seen, tl.exp2(scores - log_sum[None, :]), 0.0)
        found_v += tl.dot(weights.to(d_out_tile.dtype), d_out_tile, input_precision="ieee")
        d_weights = tl.dot(v_tile, tl.trans(d_out_tile), input_precision="ieee")
        d_scores = weights * (d_weights - delta[None, :])
        found_k += tl.dot(d_scores.to(q_tile.dtype), q_tile, input_precision="ieee")
    store_tile(d_k, rows, stride_d_k, head, D_K, there, found_k * scale, K)
    store_tile(d_v, rows, stride_d_v, head, D_V, there, found_v, V)
