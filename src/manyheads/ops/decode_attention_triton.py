"""Attention of one new query a row: what decoding asks for at each step.

A row is a hypothesis of a sentence, and W rows of a sentence stand together. The past of a row lies in a
cache of slots: what a hypothesis read at place j it wrote into its own row, at slot j. When hypotheses
branch, nothing is moved: a table of origins says in which row each place of a row's past lies. The source's
keys lie packed, and the rows of a sentence share them.

Shapes: R rows, W of a sentence, B sentences, H heads, K = d_k, V = d_v, L slots of a row; S source tokens.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_KEYS = 32  # that a program looks at together
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
    """What each row gathers of its past and of its newest token, which is put behind the past. [R, H, V]"""
    out = torch.empty_like(v_RHV, memory_format=torch.contiguous_format)
    reach = keys_RLHK.shape[1] if window is None else window // 2
    self_attention_row[(len(q_RHK), q_RHK.shape[1])](
        *(q_RHK, k_RHK, v_RHV, keys_RLHK, values_RLHV, out, ancestors_RL, lengths_R),
        *(scale * math.log2(math.e), reach, keys_RLHK.shape[1]),
        *(one.stride(0) for one in (q_RHK, k_RHK, v_RHV, out)),
        *(keys_RLHK.stride(1), values_RLHV.stride(1)),
        *kernel_shapes(q_RHK, v_RHV),
        num_warps=NUM_WARPS,
    )
    return out


def decode_cross_attention(
    q_RHK: Tensor, keys_SHK: Tensor, values_SHV: Tensor, starts_B: Tensor, lengths_B: Tensor, scale: float
) -> Tensor:
    """What each row gathers of its sentence's source: so many tokens from its first on. [R, H, V]"""
    out = values_SHV.new_empty(len(q_RHK), *values_SHV.shape[1:])
    cross_attention_row[(len(q_RHK), q_RHK.shape[1])](
        *(q_RHK, keys_SHK, values_SHV, out, starts_B, lengths_B),
        *(scale * math.log2(math.e), len(q_RHK) // len(starts_B)),
        *(one.stride(0) for one in (q_RHK, keys_SHK, values_SHV, out)),
        *kernel_shapes(q_RHK, values_SHV),
        num_warps=NUM_WARPS,
    )
    return out


def kernel_shapes(q_RHK: Tensor, v_RHV: Tensor) -> tuple[int, ...]:
    """d_k, d_v, and the powers of two around them."""
    exact = q_RHK.shape[-1], v_RHV.shape[-1]
    return *exact, *map(triton.next_power_of_2, exact), BLOCK_KEYS


@triton.jit
def accumulate_tile(q_row, keys, values, places, there, head, stride_k, stride_v, greatest, total, gathered,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """The softmax and what it gathers, built up by some more keys; q is already scaled."""
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    k_places = places.to(tl.int64)[:, None] * stride_k + head * D_K + k_columns[None, :]
    k_tile = tl.load(keys + k_places, mask=there[:, None] & (k_columns < D_K)[None, :], other=0.0)
    scores = tl.sum(k_tile.to(tl.float32) * q_row[None, :], 1)
    scores = tl.where(there, scores, float("-inf"))
    now = tl.maximum(greatest, tl.max(scores))
    level = tl.where(now == float("-inf"), 0.0, now)
    weights = tl.exp2(scores - level)
    shrink = tl.exp2(greatest - level)
    v_places = places.to(tl.int64)[:, None] * stride_v + head * D_V + v_columns[None, :]
    v_tile = tl.load(values + v_places, mask=there[:, None] & (v_columns < D_V)[None, :], other=0.0)
    gathered = gathered * shrink + tl.sum(weights[:, None] * v_tile.to(tl.float32), 0)
    return now, total * shrink + tl.sum(weights), gathered


@triton.jit
def self_attention_row(
    q, k, v, keys, values, out, origins, lengths, scale, reach, slots,
    stride_q, stride_new_k, stride_new_v, stride_out, stride_k, stride_v,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    k_inside, v_inside = k_columns < D_K, v_columns < D_V
    length = tl.load(lengths + row)  # places read before; the newest is written behind them
    q_row = tl.load(q + row * stride_q + head * D_K + k_columns, mask=k_inside, other=0.0)
    q_row = q_row.to(tl.float32) * scale
    k_new = tl.load(k + row * stride_new_k + head * D_K + k_columns, mask=k_inside, other=0.0)
    v_new = tl.load(v + row * stride_new_v + head * D_V + v_columns, mask=v_inside, other=0.0)
    own = row * slots + length
    tl.store(keys + own * stride_k + head * D_K + k_columns, k_new, mask=k_inside)
    tl.store(values + own * stride_v + head * D_V + v_columns, v_new, mask=v_inside)
    greatest = tl.sum(k_new.to(tl.float32) * q_row)
    total = 1.0
    gathered = v_new.to(tl.float32)
    first = tl.maximum(0, length - reach)
    for start in range(first, length, KEYS):
        columns = start + tl.arange(0, KEYS)
        there = columns < length
        places = tl.load(origins + row * slots + columns, mask=there, other=0).to(tl.int64) * slots + columns
        greatest, total, gathered = accumulate_tile(
            q_row, keys, values, places, there, head, stride_k, stride_v, greatest, total, gathered,
            D_K, D_V, K, V,
        )  # fmt: skip
    tl.store(out + row * stride_out + head * D_V + v_columns, gathered / total, mask=v_inside)


@triton.jit
def cross_attention_row(
    q, keys, values, out, first, lengths, scale, width,
    stride_q, stride_k, stride_v, stride_out,
    D_K: tl.constexpr, D_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sentence = row // width
    k_columns, v_columns = tl.arange(0, K), tl.arange(0, V)
    q_row = tl.load(q + row * stride_q + head * D_K + k_columns, mask=k_columns < D_K, other=0.0)
    q_row = q_row.to(tl.float32) * scale
    begin, length = tl.load(first + sentence), tl.load(lengths + sentence)
    greatest = float("-inf")
    total = 0.0
    gathered = tl.zeros([V], tl.float32)
    for start in range(0, length, KEYS):
        columns = start + tl.arange(0, KEYS)
        greatest, total, gathered = accumulate_tile(
            q_row, keys, values, begin + columns, columns < length, head, stride_k, stride_v,
            greatest, total, gathered, D_K, D_V, K, V,
        )  # fmt: skip
    gathered = gathered / tl.where(total > 0, total, 1.0)
    tl.store(out + row * stride_out + head * D_V + v_columns, gathered, mask=v_columns < D_V)
