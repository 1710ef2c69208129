"""Attention of packed sentences, several in a tile.

Sentences lie end to end, so the keys that a query sees are one range: its sentence, cut short by causality
or a window; and the queries of a key are a range too. So one kernel serves every kind of attention. The work
is divided into tiles on the device: neighboring short sentences share one, and its backward pass is a single
pass over the tile; a long sentence takes several. The launch does not depend on the lengths: a fixed number
of programs share the tiles, so that a CUDA graph can replay it.

Shapes: T queries, S keys, H heads, K = d_k, V = d_v, N tiles.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.attention_spec import AttentionSpec
from manyheads.packed import Packed

LOG2_E = tl.constexpr(math.log2(math.e))  # kernels compute powers of 2
NUM_WARPS, NUM_STAGES = 4, 2  # of every launch
NUM_PROGRAMS = 1056  # that share the tiles of all heads: eight for each multiprocessor of an H200
WINDOW = 512  # query tokens whose sentences one program divides into tiles
TILE_FIELDS = 5  # kind, and the first and last + 1 of its queries and of its keys
SHORT, LONG_QUERIES, LONG_KEYS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # kinds of tiles


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
    """The keys of each query, the queries of each key, and the tiles that cover them.

    A tile has at most `size` queries of one or several sentences with as many of their keys at most (SHORT),
    or it is a part of a sentence that has more: of its queries, beside all keys, or of its keys, beside all
    queries (LONG_QUERIES, LONG_KEYS).
    """

    key_ranges: TokenRanges
    query_ranges: TokenRanges
    tiles: Tensor  # [N, 5] int32, of which the first `count` are used
    count: Tensor  # [1] int32
    size: int

    @classmethod
    def compute(cls, queries: Packed, keys: Packed, spec: AttentionSpec, size: int) -> "AttentionBounds":
        return cls(
            TokenRanges.within_sentence(queries, keys, spec.keys_before, spec.keys_after),
            TokenRanges.within_sentence(keys, queries, spec.keys_after, spec.keys_before),
            *divide_into_tiles(queries, keys, size),
            size,
        )


def divide_into_tiles(queries: Packed, keys: Packed, size: int) -> tuple[Tensor, Tensor]:
    """Return the tiles of AttentionBounds in no particular order, and their number."""
    q_offsets, k_offsets = queries.offsets, keys.offsets
    ends = [torch.searchsorted(x, x[:-1] + size, right=True, out_int32=True) for x in (q_offsets, k_offsets)]
    own = torch.arange(1, len(q_offsets), dtype=torch.int32, device=q_offsets.device)
    group_ends = torch.maximum(torch.minimum(*ends) - 1, own)  # sentences from each that fit into a tile
    windows = len(queries.tokens) // WINDOW + 1
    window_starts = torch.arange(windows + 1, dtype=torch.int32, device=own.device) * WINDOW
    window_starts = torch.searchsorted(q_offsets[:-1], window_starts, out_int32=True)
    # Of two neighboring tiles of short sentences, or a long one, each pair has more than `size` tokens.
    most = 4 * -(-(len(queries.tokens) + len(keys.tokens)) // size) + windows + 1
    tiles = torch.empty(most, TILE_FIELDS, dtype=torch.int32, device=own.device)
    count = torch.zeros(1, dtype=torch.int32, device=own.device)
    divide_window[(windows,)](
        *(q_offsets, k_offsets, group_ends, window_starts, tiles, count, len(queries)), size, num_warps=1
    )
    return tiles, count


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
        heads, d_v = v.shape[1:]
        out = v.new_empty(len(q), heads, d_v)
        log_sums = torch.empty(heads, len(q), dtype=torch.float32, device=q.device)
        ranges = bounds.key_ranges
        attention_forward[(min(NUM_PROGRAMS, heads * len(bounds.tiles)),)](
            *(q, k, v, out, log_sums, ranges.start, ranges.end, bounds.tiles, bounds.count, scale, len(q)),
            *(q.stride(0), k.stride(0), v.stride(0), out.stride(0)),
            *kernel_shapes(q, v, bounds.size),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        ctx.save_for_backward(q, k, v, out, log_sums)
        ctx.bounds, ctx.scale = bounds, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sums = ctx.saved_tensors
        bounds: AttentionBounds = ctx.bounds
        d_out = with_adjacent_heads(d_out)
        d_q, d_k, d_v = allocate_gradients(q, k, v)
        by_query, by_key = bounds.key_ranges, bounds.query_ranges
        attention_backward[(min(NUM_PROGRAMS, v.shape[1] * len(bounds.tiles)),)](
            *(q, k, v, out, d_out, log_sums, d_q, d_k, d_v, by_query.start, by_query.end),
            *(by_key.start, by_key.end, bounds.tiles, bounds.count, ctx.scale, len(q)),
            *(x.stride(0) for x in (q, k, v, out, d_out, d_q, d_k, d_v)),
            *kernel_shapes(q, v, bounds.size),
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        return d_q, d_k, d_v, None, None


def kernel_shapes(q: Tensor, v: Tensor, size: int) -> tuple[int, ...]:
    """Return heads, d_k, d_v, the powers of two around the two, and the tile: compile-time constants."""
    widths = (q.shape[-1], v.shape[-1])
    return v.shape[1], *widths, *(max(16, triton.next_power_of_2(width)) for width in widths), size


def choose_tile_size(q: Tensor, v: Tensor) -> int:
    """Return how many queries and keys a tile has: as many as fit for wide heads."""
    narrow = max(q.shape[-1], v.shape[-1]) <= 64
    return 64 if narrow and q.element_size() == 2 else 32


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
def load_ranges(starts, ends, rows, inside):
    """Load the ranges of some tokens, and the range around all of them; those outside see nothing."""
    range_start = tl.load(starts + rows, mask=inside, other=2147483647)
    range_end = tl.load(ends + rows, mask=inside, other=0)
    return range_start, range_end, tl.min(range_start), tl.max(range_end)


@triton.jit
def divide_window(
    q_offsets, k_offsets, group_ends, window_starts, tiles, count, sentences, SIZE: tl.constexpr
):
    """Divide the sentences of a window into tiles."""
    sentence = tl.load(window_starts + tl.program_id(0))
    window_end = tl.load(window_starts + tl.program_id(0) + 1)
    window_end = tl.where(tl.program_id(0) == tl.num_programs(0) - 1, sentences, window_end)
    while sentence < window_end:
        end = tl.minimum(tl.load(group_ends + sentence), window_end)
        q_start, q_end = tl.load(q_offsets + sentence), tl.load(q_offsets + end)
        k_start, k_end = tl.load(k_offsets + sentence), tl.load(k_offsets + end)
        if (q_end - q_start <= SIZE) & (k_end - k_start <= SIZE):
            if (q_end > q_start) | (k_end > k_start):
                store_tile_bounds(tiles, count, SHORT, q_start, q_end, k_start, k_end)
        else:
            for start in range(q_start, q_end, SIZE):
                part_end = tl.minimum(start + SIZE, q_end)
                store_tile_bounds(tiles, count, LONG_QUERIES, start, part_end, k_start, k_end)
            for start in range(k_start, k_end, SIZE):
                part_end = tl.minimum(start + SIZE, k_end)
                store_tile_bounds(tiles, count, LONG_KEYS, q_start, q_end, start, part_end)
        sentence = end


@triton.jit
def store_tile_bounds(tiles, count, KIND: tl.constexpr, q_start, q_end, k_start, k_end):
    tile = tiles + 5 * tl.atomic_add(count, 1)
    tl.store(tile, KIND)
    tl.store(tile + 1, q_start)
    tl.store(tile + 2, q_end)
    tl.store(tile + 3, k_start)
    tl.store(tile + 4, k_end)


@triton.jit
def load_tile_bounds(tiles, index):
    tile = tiles + 5 * index
    return tl.load(tile), tl.load(tile + 1), tl.load(tile + 2), tl.load(tile + 3), tl.load(tile + 4)


@triton.jit
def attention_forward(
    q, k, v, out, log_sums, starts, ends, tiles, count, scale, T, stride_q, stride_k, stride_v, stride_out,
    HEADS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Equation (1) over ranges, with a running softmax from one tile of keys to the next."""
    for unit in range(tl.program_id(0), tl.load(count) * HEADS, tl.num_programs(0)):
        head = unit % HEADS
        kind, q_start, q_end, k_start, k_end = load_tile_bounds(tiles, unit // HEADS)
        if kind == LONG_KEYS:  # of the backward pass only
            q_end = q_start
            k_end = k_start
        rows = q_start + tl.arange(0, SIZE)
        inside = rows < q_end
        range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
        if kind == SHORT:
            lowest = k_start
            highest = k_end
        q_tile = load_tile(q, rows, stride_q, head, D_K, inside, K)
        maximum = tl.full([SIZE], float("-inf"), tl.float32)
        total = tl.zeros([SIZE], tl.float32)
        output = tl.zeros([SIZE, V], tl.float32)
        for start in range(lowest, highest, SIZE):
            columns = start + tl.arange(0, SIZE)
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
def attention_backward(
    q, k, v, out, d_out, log_sums, d_q, d_k, d_v, key_starts, key_ends, query_starts, query_ends,
    tiles, count, scale, T,
    stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q, stride_d_k, stride_d_v,
    HEADS: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K; dS = P (dP - delta), dP = dO V^T, delta = sum(dO O)."""
    for unit in range(tl.program_id(0), tl.load(count) * HEADS, tl.num_programs(0)):
        head = unit % HEADS
        kind, q_start, q_end, k_start, k_end = load_tile_bounds(tiles, unit // HEADS)
        if kind == LONG_QUERIES:
            backward_queries(
                q, k, v, out, d_out, log_sums, d_q, key_starts, key_ends, q_start, q_end, head, scale, T,
                stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q,
                D_K, D_V, K, V, SIZE,
            )  # fmt: skip
        else:
            backward_keys(
                q, k, v, out, d_out, log_sums, d_q, d_k, d_v, query_starts, query_ends,
                q_start, q_end, k_start, k_end, kind == SHORT, head, scale, T,
                stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q, stride_d_k, stride_d_v,
                D_K, D_V, K, V, SIZE,
            )  # fmt: skip


@triton.jit
def backward_queries(
    q, k, v, out, d_out, log_sums, d_q, starts, ends, q_start, q_end, head, scale, T,
    stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """dQ of some queries, from all keys that they see."""
    rows = q_start + tl.arange(0, SIZE)
    inside = rows < q_end
    range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
    q_tile = load_tile(q, rows, stride_q, head, D_K, inside, K)
    out_tile = load_tile(out, rows, stride_out, head, D_V, inside, V)
    d_out_tile = load_tile(d_out, rows, stride_d_out, head, D_V, inside, V)
    delta = tl.sum(out_tile.to(tl.float32) * d_out_tile.to(tl.float32), 1)
    log_sum = tl.load(log_sums + head * T + rows, mask=inside, other=float("inf"))
    d_q_tile = tl.zeros([SIZE, K], tl.float32)
    for start in range(lowest, highest, SIZE):
        columns = start + tl.arange(0, SIZE)
        k_tile = load_tile(k, columns, stride_k, head, D_K, columns < highest, K)
        v_tile = load_tile(v, columns, stride_v, head, D_V, columns < highest, V)
        visible = (columns[None, :] >= range_start[:, None]) & (columns[None, :] < range_end[:, None])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(visible, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(d_out_tile, tl.trans(v_tile), input_precision="ieee")
        d_scores = weights * (d_weights - delta[:, None])
        d_q_tile += tl.dot(d_scores.to(k_tile.dtype), k_tile, input_precision="ieee")
    store_tile(d_q, rows, stride_d_q, head, D_K, inside, d_q_tile * scale, K)


@triton.jit
def backward_keys(
    q, k, v, out, d_out, log_sums, d_q, d_k, d_v, starts, ends,
    q_start, q_end, k_start, k_end, has_all_keys, head, scale, T,
    stride_q, stride_k, stride_v, stride_out, stride_d_out, stride_d_q, stride_d_k, stride_d_v,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """dK and dV of some keys, from all queries that see them; dQ too where those see no other keys."""
    rows = k_start + tl.arange(0, SIZE)
    inside = rows < k_end
    range_start, range_end, lowest, highest = load_ranges(starts, ends, rows, inside)
    if has_all_keys:  # a query that sees no key has a gradient too
        lowest = q_start
        highest = q_end
    k_tile = load_tile(k, rows, stride_k, head, D_K, inside, K)
    v_tile = load_tile(v, rows, stride_v, head, D_V, inside, V)
    d_k_tile = tl.zeros([SIZE, K], tl.float32)
    d_v_tile = tl.zeros([SIZE, V], tl.float32)
    for start in range(lowest, highest, SIZE):
        columns = start + tl.arange(0, SIZE)
        columns_inside = columns < highest
        q_tile = load_tile(q, columns, stride_q, head, D_K, columns_inside, K)
        out_tile = load_tile(out, columns, stride_out, head, D_V, columns_inside, V)
        d_out_tile = load_tile(d_out, columns, stride_d_out, head, D_V, columns_inside, V)
        delta = tl.sum(out_tile.to(tl.float32) * d_out_tile.to(tl.float32), 1)
        log_sum = tl.load(log_sums + head * T + columns, mask=columns_inside, other=float("inf"))
        visible = (columns[None, :] >= range_start[:, None]) & (columns[None, :] < range_end[:, None])
        scores = tl.dot(k_tile, tl.trans(q_tile), input_precision="ieee") * (scale * LOG2_E)
        weights = tl.where(visible, tl.exp2(scores - log_sum[None, :]), 0.0)
        d_v_tile += tl.dot(weights.to(d_out_tile.dtype), d_out_tile, input_precision="ieee")
        d_weights = tl.dot(v_tile, tl.trans(d_out_tile), input_precision="ieee")
        d_scores = (weights * (d_weights - delta[None, :])).to(q_tile.dtype)
        d_k_tile += tl.dot(d_scores, q_tile, input_precision="ieee")
        if has_all_keys:
            d_q_tile = tl.dot(tl.trans(d_scores), k_tile, input_precision="ieee") * scale
            store_tile(d_q, columns, stride_d_q, head, D_K, columns_inside, d_q_tile, K)
    store_tile(d_k, rows, stride_d_k, head, D_K, inside, d_k_tile * scale, K)
    store_tile(d_v, rows, stride_d_v, head, D_V, inside, d_v_tile, V)
