"""Attention (3.2.1): equation (1), and the implementations that compute it fast.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                                   (1)

The reference is that formula, sentence by sentence. The tests hold every other implementation to it, values
and gradients; `dispatch` chooses among them.

Shapes: T query tokens and S key tokens of the whole batch, B sentences, H heads, K = d_k, V = d_v;
        Q and L: the queries and keys of one sentence, or of the longest where several are padded.
"""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.errors import DataError
from manyheads.ops import dispatch
from manyheads.ops.attention_spec import AttentionSpec, attention_mask, band_shape, padding_mask
from manyheads.ops.batch_cache import cached_for_batch
from manyheads.packed import Packed, round_up

if TYPE_CHECKING:
    from manyheads.ops.attention_triton import AttentionBounds

FLASH_HEAD_DIM_MULTIPLE = 8  # head widths of torch's variable-length kernel


def attend(
    q_THK: Tensor,
    k_SHK: Tensor,
    v_SHV: Tensor,
    queries: Packed,
    keys: Packed,
    spec: AttentionSpec,
    *,
    maps: list[Tensor] | None = None,
    implementation: dispatch.AttentionImplementation | None = None,
) -> Tensor:
    """Return the attention of each query over its sentence's keys, zeros where there are none. [T, H, V]

    `maps` receives the weights [H, Q, L] of each sentence and never changes the result. `implementation` is
    for tests and measurements. A decoding step attends over a cache instead.
    """
    check_sentences(queries, keys, spec)
    if implementation is None:
        implementation = dispatch.choose_attention(
            q_THK, v_SHV, spec, max(queries.max_length, keys.max_length)
        )
    if maps is not None:
        with torch.no_grad():
            maps.extend(attention_weights(q_THK, k_SHK, queries, keys, spec))
    return IMPLEMENTATIONS[implementation](q_THK, k_SHK, v_SHV, queries, keys, spec)


def check_sentences(queries: Packed, keys: Packed, spec: AttentionSpec) -> None:
    """Check that each sentence of queries has one of keys, the same where positions are compared."""
    if spec.compares_positions and queries.offsets is not keys.offsets:
        raise ValueError("causal and windowed attention compare positions of one and the same text")
    if len(queries) != len(keys):
        raise DataError(
            f"{len(queries)} target sentences, but {len(keys)} source sentences: give one source per target"
        )


# ---- the reference


def attention_scores(q_HQK: Tensor, k_HLK: Tensor, spec: AttentionSpec) -> Tensor:
    """Return the compatibility of each query with each key (3.2.1). [..., H, Q, L]

    scaled-dot  q . k / sqrt(d_k)
    dot         q . k
    additive    energy . tanh(q + k), one hidden layer whose two halves are W_Q and W_K
    """
    if spec.score == "additive":
        assert spec.energy_HK is not None
        hidden_HQLK = torch.tanh(q_HQK.unsqueeze(-2) + k_HLK.unsqueeze(-3))
        return (hidden_HQLK * spec.energy_HK[:, None, None, :]).sum(-1)
    return q_HQK @ k_HLK.transpose(-2, -1) * spec.scale(q_HQK.shape[-1])


def attention_weights(
    q_THK: Tensor, k_SHK: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> list[Tensor]:
    """Return softmax(Q K^T / sqrt(d_k)) of each sentence. [H, Q, L] each"""
    weights = []
    for q_QHK, k_LHK in zip(queries.split(q_THK), keys.split(k_SHK), strict=True):
        scores_HQL = attention_scores(q_QHK.transpose(0, 1), k_LHK.transpose(0, 1), spec)
        if spec.compares_positions:
            mask_QL = attention_mask(len(q_QHK), spec, q_THK.device)
            scores_HQL = scores_HQL.masked_fill(~mask_QL, -math.inf)
        weights.append(scores_HQL.softmax(-1))
    return weights


def reference_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Equation (1), one sentence after the other. A sum over no keys is zero by itself."""
    outputs = [v_SHV[:0]]
    weights = attention_weights(q_THK, k_SHK, queries, keys, spec)
    for weights_HQL, v_LHV in zip(weights, keys.split(v_SHV), strict=True):
        dropped_HQL = F.dropout(weights_HQL, spec.dropout)
        outputs.append((dropped_HQL @ v_LHV.transpose(0, 1)).transpose(0, 1))
    return torch.cat(outputs)


# ---- padded: CPU, float32, and whatever the kernels do not support


def padded_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """torch's scaled_dot_product_attention over a padded view."""
    q_BHQK = queries.pad(q_THK).transpose(1, 2)
    k_BHLK = keys.pad(k_SHK).transpose(1, 2)
    v_BHLV = keys.pad(v_SHV).transpose(1, 2)
    if spec.causal and spec.window is None:
        # Padding follows the sentence: a query that sees only earlier keys sees none of it.
        out_BHQV = masked_attention(q_BHQK, k_BHLK, v_BHLV, None, spec)
    else:
        mask = padding_mask(keys.lengths, k_BHLK.shape[2])[:, None, None, :]
        if spec.window is not None:
            mask = mask & attention_mask(k_BHLK.shape[2], spec, q_THK.device)
            # Padding far behind a sentence sees itself: a softmax over nothing is NaN.
            mask = mask | torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
        out_BHQV = masked_attention(q_BHQK, k_BHLK, v_BHLV, mask, spec)
    return queries.unpad(out_BHQV.transpose(1, 2))


def masked_attention(
    q_BHQK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, mask: Tensor | None, spec: AttentionSpec
) -> Tensor:
    """Return the attention of padded rows, each of which sees something. [B, H, Q, V]

    `mask` broadcasts to [B, H, Q, L]. Without it spec.causal holds; with it, the mask says everything.
    """
    if spec.score != "additive":
        return F.scaled_dot_product_attention(
            q_BHQK,
            k_BHLK,
            v_BHLV,
            attn_mask=mask,
            dropout_p=spec.dropout,
            is_causal=spec.causal and mask is None,
            scale=spec.scale(q_BHQK.shape[-1]),
        )
    if mask is None:
        mask = attention_mask(k_BHLK.shape[2], spec, q_BHQK.device)
    scores_BHQL = attention_scores(q_BHQK, k_BHLK, spec).masked_fill(~mask, -math.inf)
    return F.dropout(scores_BHQL.softmax(-1), spec.dropout).to(v_BHLV.dtype) @ v_BHLV


# ---- banded: a window that is narrow beside the sentences costs r n d and not n^2 d (4)


def banded_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Blocks of the row of tokens, whatever sentences lie in them, each with the keys around it."""
    tokens = len(q_THK)
    block, before, after = band_shape(spec)
    filler = max(1, -(-tokens // block)) * block - tokens  # an empty batch is a block too

    def split_blocks(x: Tensor, value: int = 0) -> Tensor:
        """[N blocks, Q = block, ...]"""
        whole = F.pad(x, (0, 0) * (x.dim() - 1) + (0, filler), value=value)
        return whole.view(-1, block, *x.shape[1:])

    def split_neighborhoods(x: Tensor, value: int = 0) -> Tensor:
        """[N blocks, L = before + block + after, ...]"""
        ends = (0, 0) * (x.dim() - 1) + (before, filler + after)
        return F.pad(x, ends, value=value).unfold(0, before + block + after, block).movedim(-1, 1)

    # Filler belongs to no sentence: it sees filler, itself at least, and no token sees it.
    query_sentence_NQ = split_blocks(queries.sentence_ids, -1)
    key_sentence_NL = split_neighborhoods(keys.sentence_ids, -1)
    same_NQL = query_sentence_NQ[:, :, None] == key_sentence_NL[:, None, :]
    i = torch.arange(block, device=q_THK.device)[:, None]
    j = torch.arange(-before, block + after, device=q_THK.device)[None, :]
    mask_NQL = same_NQL & (j - i >= -before) & (j - i <= after)
    q_NHQK = split_blocks(q_THK).transpose(1, 2)
    k_NHLK, v_NHLV = (split_neighborhoods(x).transpose(1, 2) for x in (k_SHK, v_SHV))
    out_NHQV = masked_attention(q_NHQK, k_NHLK, v_NHLV, mask_NQL[:, None], spec)
    return out_NHQV.transpose(1, 2).flatten(0, 1)[:tokens]


# ---- kernels: CUDA in bf16 or fp16


def flash_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """torch's variable-length kernel over the packed tokens."""
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q_THK.shape[-1], v_SHV.shape[-1]
    width = round_up(max(d_k, d_v), FLASH_HEAD_DIM_MULTIPLE)
    q, k, v = (pad_head_dim(x, width) for x in (q_THK, k_SHK, v_SHV))
    before, after = (-1 if count is None else count for count in (spec.keys_before, spec.keys_after))
    out = varlen_attn(
        q,
        k,
        v,
        queries.offsets,
        keys.offsets,
        queries.max_length,
        keys.max_length,
        scale=spec.scale(d_k),
        window_size=(before, after),
    )
    assert isinstance(out, Tensor)
    return out[..., :d_v]


def pad_head_dim(x: Tensor, width: int) -> Tensor:
    """Return x with zeros behind each head, up to the one width that the kernel takes."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def triton_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Our own kernel, which puts several short sentences into a tile."""
    from manyheads.ops.attention_triton import varlen_attention

    bounds = attention_bounds(queries, keys, spec)
    return varlen_attention(q_THK, k_SHK, v_SHV, bounds, spec.scale(q_THK.shape[-1]))


def attention_bounds(queries: Packed, keys: Packed, spec: AttentionSpec) -> "AttentionBounds":
    """Return which keys each query sees and the reverse, as our kernel needs it; once for a batch."""
    from manyheads.ops.attention_triton import AttentionBounds

    return cached_for_batch(
        queries,
        (AttentionBounds, None if keys is queries else keys, spec.causal, spec.window),
        lambda: AttentionBounds.compute(queries, keys, spec),
    )


IMPLEMENTATIONS = {
    "reference": reference_attention,
    "padded": padded_attention,
    "banded": banded_attention,
    "flash": flash_attention,
    "triton": triton_attention,
}
