"""Attention of one new query per row over a static cache. The layout is described in decode_attention.py.

Shapes: R rows, W of a sentence, B sentences, H heads, K = d_k, V = d_v, L positions of a row,
        S source tokens.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_KEYS = 32  # of a tile
NUM_WARPS = 2


def decode_self_attention(
    q_RHK: Tensor,
    k_RHK: Tensor,
    v_RHV: Tensor,
    keys_RLHK: Tensor,
    values_RLHV: Tensor,
    ancestors_RL: Tensor,
    lengths_R: Tensor,
    scale: float,
    window: int | None,
) -> Tensor:
    """Append the new key and value of each row to the cache; return its attention over the row. [R, H, V]"""
    out = torch.empty_like(v_RHV, memory_format=torch.contiguous_format)
    radius = keys_RLHK.shape[1] if window is None else window // 2
    self_attention_row[(len(q_RHK), q_RHK.shape[1])](
        *(q_RHK, k_RHK, v_RHV, keys_RLHK, values_RLHV, out, ancestors_RL, lengths_R),
        *(scale * math.log2(math.e), radius, keys_RLHK.shape[1]),
        *(x.stride(0) for x in (q_RHK, k_RHK, v_RHV, out)),
        *(keys_RLHK.stride(1), values_RLHV.stride(1)),
        *kernel_shapes(q_RHK, v_RHV),
        num_warps=NUM_WARPS,
    )
    return out


def decode_cross_attention(
    q_RHK: Tensor, keys_SHK: Tensor, values_SHV: Tensor, starts_B: Tensor, lengths_B: Tensor, scale: float
) -> Tensor:
    """Return the attention of each row over the source of its sentence. [R, H, V]"""
    out = values_SHV.new_empty(len(q_RHK), *values_SHV.shape[1:])
    cross_attention_row[(len(q_RHK), q_RHK.shape[1])](
        *(q_RHK, keys_SHK, values_SHV, out, starts_B, lengths_B),
        *(scale * math.log2(math.e), len(q_RHK) // len(starts_B)),
        *(x.stride(0) for x in (q_RHK, keys_SHK, values_SHV, out)),
        *kernel_shapes(q_RHK, values_SHV),
        num_warps=NUM_WARPS,
    )
    return out


def kernel_shapes(q_RHK: Tensor, v_RHV: Tensor) -> tuple[int, ...]:
    """Return d_k, d_v, the powers of two around them, and the keys of a tile: compile-time constants."""
    exact = q_RHK.shape[-1], v_RHV.shape[-1]
    return *exact, *map(triton.next_power_of_2, exact), BLOCK_KEYS


@triton.jit
def accumulate_tile(q_row, keys, values, positions, inside, head, stride_k, stride_v, maximum, total, output,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """Add some keys to the running softmax and its output; q is already scaled."""
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    k_offsets = positions.to(tl.int64)[:, None] * stride_k + head * D_K + k_columns[None, :]
    k_tile = tl.load(keys + k_offsets, mask=inside[:, None] & (k_columns < D_K)[None, :], other=0.0)
    scores = tl.sum(k_tile.to(tl.float32) * q_row[None, :], 1)
    scores = tl.where(inside, scores, float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores))
    safe_maximum = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    weights = tl.exp2(scores - safe_maximum)
    rescale = tl.exp2(maximum - safe_maximum)
    v_offsets = positions.to(tl.int64)[:, None] * stride_v + head * D_V + v_columns[None, :]
    v_tile = tl.load(values + v_offsets, mask=inside[:, None] & (v_columns < D_V)[None, :], other=0.0)
    output = output * rescale + tl.sum(weights[:, None] * v_tile.to(tl.float32), 0)
    return new_maximum, total * rescale + tl.sum(weights), output


@triton.jit
def self_attention_row(
    q, k, v, keys, values, out, ancestors, lengths, scale, radius, capacity,
    stride_q, stride_new_k, stride_new_v, stride_out, stride_k, stride_v,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    k_inside, v_inside = k_columns < D_K, v_columns < D_V
    length = tl.load(lengths + row)  # tokens read before; the newest is written behind them
    q_row = tl.load(q + row * stride_q + head * D_K + k_columns, mask=k_inside, other=0.0)
    q_row = q_row.to(tl.float32) * scale
    k_new = tl.load(k + row * stride_new_k + head * D_K + k_columns, mask=k_inside, other=0.0)
    v_new = tl.load(v + row * stride_new_v + head * D_V + v_columns, mask=v_inside, other=0.0)
    own = row * capacity + length
    tl.store(keys + own * stride_k + head * D_K + k_columns, k_new, mask=k_inside)
    tl.store(values + own * stride_v + head * D_V + v_columns, v_new, mask=v_inside)
    maximum = tl.sum(k_new.to(tl.float32) * q_row)
    total = 1.0
    output = v_new.to(tl.float32)
    first = tl.maximum(0, length - radius)
    for start in range(first, length, KEYS):
        columns = start + tl.arange(0, KEYS)
        inside = columns < length
        rows = tl.load(ancestors + row * capacity + columns, mask=inside, other=0).to(tl.int64)
        positions = rows * capacity + columns
        maximum, total, output = accumulate_tile(
            q_row, keys, values, positions, inside, head, stride_k, stride_v, maximum, total, output,
            D_K, D_V, K, V,
        )  # fmt: skip
    tl.store(out + row * stride_out + head * D_V + v_columns, output / total, mask=v_inside)


@triton.jit
def cross_attention_row(
    q, keys, values, out, starts, lengths, scale, hypotheses,
    stride_q, stride_k, stride_v, stride_out,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sentence = row // hypotheses
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    q_row = tl.load(q + row * stride_q + head * D_K + k_columns, mask=k_columns < D_K, other=0.0)
    q_row = q_row.to(tl.float32) * scale
    source_start, length = tl.load(starts + sentence), tl.load(lengths + sentence)
    maximum = float("-inf")
    total = 0.0
    output = tl.zeros([V], tl.float32)
    for start in range(0, length, KEYS):
        columns = start + tl.arange(0, KEYS)
        maximum, total, output = accumulate_tile(
            q_row, keys, values, source_start + columns, columns < length, head, stride_k, stride_v,
            maximum, total, output, D_K, D_V, K, V,
        )  # fmt: skip
    output = output / tl.where(total > 0, total, 1.0)
    tl.store(out + row * stride_out + head * D_V + v_columns, output, mask=v_columns < D_V)
