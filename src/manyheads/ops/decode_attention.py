"""Attention of one new query per row over a static cache: a decoding step.

A row is one hypothesis; the W rows of a sentence are adjacent. At position j a row writes its key and value
into its own row of the cache. When hypotheses branch nothing is copied: a table of ancestors says in which
row each position of a row's past lies (a block table with blocks of one token). The keys and values of the
sources lie packed, and the rows of a sentence share them.

Shapes: R rows, W of a sentence, B sentences, H heads, K = d_k, V = d_v, L positions of a row in the cache,
        S source tokens, X the longest source.
"""

import math

import torch
from torch import Tensor

from manyheads.ops import dispatch


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
    implementation = reference_self_attention
    if dispatch.has_decode_kernels(q_RHK.device):
        from manyheads.ops import decode_attention_triton

        implementation = decode_attention_triton.decode_self_attention
    cache = keys_RLHK, values_RLHV, ancestors_RL, lengths_R
    return implementation(q_RHK, k_RHK, v_RHV, *cache, scale, window)


def decode_cross_attention(
    q_RHK: Tensor, keys_SHK: Tensor, values_SHV: Tensor, starts_B: Tensor, lengths_B: Tensor, scale: float
) -> Tensor:
    """Return the attention of each row over the source of its sentence. [R, H, V]"""
    implementation = reference_cross_attention
    if dispatch.has_decode_kernels(q_RHK.device):
        from manyheads.ops import decode_attention_triton

        implementation = decode_attention_triton.decode_cross_attention
    return implementation(q_RHK, keys_SHK, values_SHV, starts_B, lengths_B, scale)


def reference_self_attention(
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
    """The definition, in plain torch."""
    rows_R = torch.arange(len(q_RHK), device=q_RHK.device)
    keys_RLHK[rows_R, lengths_R] = k_RHK.to(keys_RLHK.dtype)
    values_RLHV[rows_R, lengths_R] = v_RHV.to(values_RLHV.dtype)
    positions_L = torch.arange(keys_RLHK.shape[1], device=q_RHK.device)
    newest_R1 = lengths_R[:, None]
    visible_RL = positions_L <= newest_R1
    if window is not None:
        visible_RL = visible_RL & (newest_R1 - positions_L <= window // 2)
    rows_RL = torch.where(positions_L < newest_R1, ancestors_RL.long(), rows_R[:, None])
    return attend_rows(
        q_RHK, keys_RLHK[rows_RL, positions_L], values_RLHV[rows_RL, positions_L], visible_RL, scale
    )


def reference_cross_attention(
    q_RHK: Tensor, keys_SHK: Tensor, values_SHV: Tensor, starts_B: Tensor, lengths_B: Tensor, scale: float
) -> Tensor:
    """The definition, in plain torch."""
    hypotheses = len(q_RHK) // len(starts_B)
    starts_R, lengths_R = (x.repeat_interleave(hypotheses) for x in (starts_B, lengths_B))
    offsets_X = torch.arange(int(lengths_B.max()), device=q_RHK.device)
    visible_RX = offsets_X < lengths_R[:, None]
    tokens_RX = torch.where(visible_RX, starts_R[:, None] + offsets_X, 0)
    return attend_rows(q_RHK, keys_SHK[tokens_RX], values_SHV[tokens_RX], visible_RX, scale)


def attend_rows(
    q_RHK: Tensor, keys_RLHK: Tensor, values_RLHV: Tensor, visible_RL: Tensor, scale: float
) -> Tensor:
    """Return equation (1) of each row in at least float32; zeros for a row that sees nothing. [R, H, V]"""
    dtype = torch.promote_types(q_RHK.dtype, torch.float32)
    scores_RHL = torch.einsum("rhk,rlhk->rhl", q_RHK.to(dtype), keys_RLHK.to(dtype)) * scale
    hidden_R1L = ~visible_RL[:, None, :]
    weights_RHL = scores_RHL.masked_fill(hidden_R1L, -math.inf).softmax(-1).masked_fill(hidden_R1L, 0)
    return torch.einsum("rhl,rlhv->rhv", weights_RHL, values_RLHV.to(dtype)).to(values_RLHV.dtype)
