"""Attention (3.2): one door, `attend`, and the paths behind it.

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                                   (1)

The reference is that formula, sentence by sentence, and gives the weights too. The other paths compute the
same faster; the tests hold them to the reference, values and gradients.

Shapes: T query tokens and S key tokens of the whole batch, B sentences, H heads, K = d_k, V = d_v;
        Q and L: the queries and keys of one sentence, or of the longest where several stand padded.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.errors import DataError
from manyheads.ops import dispatch as kernels
from manyheads.packed import Packed, round_up

FLASH_MAX_HEAD_DIM = 256  # of a head, in the fused kernel
FLASH_HEAD_DIM_MULTIPLE = 8  # its widths are multiples of this
FLASH_MIN_CAPABILITY = (8, 0)  # of the GPU
TRITON_MAX_HEAD_DIM = 128  # of a head, in the kernel of ours
TRITON_MAX_LENGTH = 1024  # tokens of a sentence, up to which it is the faster one
BAND_MIN_BLOCK = 32  # queries of a block of the band, at least: smaller products are no faster
BAND_MIN_RATIO = 2  # times the keys that a block sees: from such a sentence on the band is the faster one


@dataclass(frozen=True)
class AttentionSpec:
    """How queries meet keys, and which they may see. The defaults are those of the encoder."""

    score: Literal["scaled-dot", "dot", "additive"] = "scaled-dot"
    causal: bool = False  # position i sees j <= i
    window: int | None = None  # r: position i sees |i - j| <= r // 2
    dropout: float = 0.0  # of the weights
    energy_HK: Tensor | None = None  # additive attention's output layer

    def scale(self, d_k: int) -> float:
        return 1 / math.sqrt(d_k) if self.score == "scaled-dot" else 1.0


def attend(
    q_THK: Tensor,
    k_SHK: Tensor,
    v_SHV: Tensor,
    queries: Packed,
    keys: Packed,
    spec: AttentionSpec,
    *,
    maps: list[Tensor] | None = None,
    implementation: Literal["reference", "padded", "banded", "fused", "spans"] | None = None,
) -> Tensor:
    """What each query gathers, [T, H, V]; a query with nothing to look at gathers zeros.

    `maps` receives the weights [H, Q, L] of each sentence and never changes the result. `path` is for tests;
    without it choose_path decides. A decoding step, whose keys lie padded in a cache, enters below.
    """
    if (spec.causal or spec.window is not None) and queries.offsets is not keys.offsets:
        raise ValueError("causal and windowed attention compare positions of one and the same text")
    if len(queries) != len(keys):
        raise DataError(f"{len(queries)} sentences look at {len(keys)}: give as many sources as targets")
    serve = IMPLEMENTATIONS[
        implementation or choose_implementation(q_THK, v_SHV, spec, max(queries.max_length, keys.max_length))
    ]
    if maps is not None:
        with torch.no_grad():
            maps.extend(attention_weights(q_THK, k_SHK, queries, keys, spec))
    return serve(q_THK, k_SHK, v_SHV, queries, keys, spec)


def choose_implementation(q_THK: Tensor, v_SHV: Tensor, spec: AttentionSpec, max_length: int = 0) -> str:
    """A fused kernel where there is one and it can serve; else the padded path, or a narrow window's band."""
    if not (q_THK.is_cuda and has_flash_attention(q_THK.device) and flash_supports(q_THK, v_SHV, spec)):
        narrow = spec.window is not None and max_length >= BAND_MIN_RATIO * sum(band_shape(spec))
        return "banded" if narrow else "padded"
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= TRITON_MAX_HEAD_DIM
    return "spans" if narrow and max_length <= TRITON_MAX_LENGTH and kernels.use_kernels(q_THK) else "fused"


def flash_supports(q_THK: Tensor, v_SHV: Tensor, spec: AttentionSpec) -> bool:
    """What the fused kernel knows: half precision, heads that are not too wide, no weight dropout."""
    half = q_THK.dtype in (torch.bfloat16, torch.float16)
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= FLASH_MAX_HEAD_DIM
    plain = spec.score != "additive" and spec.dropout == 0
    return half and narrow and plain and len(q_THK) > 0 and len(v_SHV) > 0


def has_flash_attention(device: torch.device) -> bool:
    """Whether this torch has the fused kernel and this GPU can run it (Ampere or later)."""
    there = torch.backends.cuda.is_flash_attention_available()
    return there and torch.cuda.get_device_capability(device) >= FLASH_MIN_CAPABILITY


# The reference


def attention_scores(q_HQK: Tensor, k_HLK: Tensor, spec: AttentionSpec) -> Tensor:
    """How well each query and each key go together (3.2.1). [..., H, Q, L]

    scaled-dot  q . k / sqrt(d_k)
    dot         q . k
    additive    energy . tanh(q + k), one hidden layer whose two halves are W_Q and W_K
    """
    if spec.score == "additive":
        assert spec.energy_HK is not None
        hidden_HQLK = torch.tanh(q_HQK.unsqueeze(-2) + k_HLK.unsqueeze(-3))
        return (hidden_HQLK * spec.energy_HK[:, None, None, :]).sum(-1)
    return q_HQK @ k_HLK.transpose(-2, -1) * spec.scale(q_HQK.shape[-1])


def attention_mask(length: int, spec: AttentionSpec, device: torch.device) -> Tensor:
    """Which positions j each position i of a sentence may see, before the softmax (3.2.3). [L, L]"""
    i = torch.arange(length, device=device)[:, None]
    j = torch.arange(length, device=device)[None, :]
    seen = torch.ones(length, length, dtype=torch.bool, device=device)
    if spec.causal:
        seen = seen & (j <= i)
    if spec.window is not None:
        seen = seen & ((i - j).abs() <= spec.window // 2)
    return seen


def attention_weights(
    q_THK: Tensor, k_SHK: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> list[Tensor]:
    """softmax(Q K^T / sqrt(d_k)) of each sentence. [H, Q, L] each"""
    found = []
    for q_QHK, k_LHK in zip(queries.split(q_THK), keys.split(k_SHK), strict=True):
        scores_HQL = attention_scores(q_QHK.transpose(0, 1), k_LHK.transpose(0, 1), spec)
        if spec.causal or spec.window is not None:
            seen_QL = attention_mask(len(q_QHK), spec, q_THK.device)
            scores_HQL = scores_HQL.masked_fill(~seen_QL, -math.inf)
        found.append(scores_HQL.softmax(-1))
    return found


def reference_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Equation (1), one sentence after the other. A sum over no keys is zero by itself."""
    gathered = [v_SHV[:0]]
    for weights_HQL, v_LHV in zip(
        attention_weights(q_THK, k_SHK, queries, keys, spec), keys.split(v_SHV), strict=True
    ):
        kept_HQL = F.dropout(weights_HQL, spec.dropout)
        gathered.append((kept_HQL @ v_LHV.transpose(0, 1)).transpose(0, 1))
    return torch.cat(gathered)


# The padded path: CPU, float32, and whatever the fused kernel does not know


def padded_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """torch's scaled_dot_product_attention over a padded view, made and undone here."""
    q_BHQK = queries.pad(q_THK).transpose(1, 2)
    k_BHLK = keys.pad(k_SHK).transpose(1, 2)
    v_BHLV = keys.pad(v_SHV).transpose(1, 2)
    if spec.causal and spec.window is None:
        # Filler stands after the sentence: who sees only what came before sees none of it.
        out_BHQV = masked_attention(q_BHQK, k_BHLK, v_BHLV, None, spec)
    else:
        seen = padding_mask(keys.lengths, k_BHLK.shape[2])[:, None, None, :]
        if spec.window is not None:
            seen = seen & attention_mask(k_BHLK.shape[2], spec, q_THK.device)
            # Filler far behind a sentence sees itself, since a softmax over nothing is not a number.
            seen = seen | torch.eye(seen.shape[-1], dtype=torch.bool, device=seen.device)
        out_BHQV = masked_attention(q_BHQK, k_BHLK, v_BHLV, seen, spec)
    return queries.unpad(out_BHQV.transpose(1, 2))


def padding_mask(lengths_B: Tensor, length: int) -> Tensor:
    """Which of `room` slots hold a token; the first one always counts.

    In an empty sentence that slot holds zeros, so what is gathered from it is zero, forward and backward.
    """
    return torch.arange(length, device=lengths_B.device) < lengths_B.clamp(min=1)[:, None]


def masked_attention(
    q_BHQK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, mask: Tensor | None, spec: AttentionSpec
) -> Tensor:
    """Attention of padded rows, each with something to see. `seen` is None, or broadcasts to [B, H, Q, L].

    Without `seen` the rule's causality holds; with it, `seen` says all.
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


# The banded path: a window that is narrow beside the sentences, so that it costs r n d and not n^2 d (4)


def banded_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Blocks of the row of tokens, whatever sentences lie in them, each with the keys around it."""
    tokens = len(q_THK)
    block, before, after = band_shape(spec)
    filler = max(1, -(-tokens // block)) * block - tokens  # no tokens at all are a block too

    def blocks_of(x: Tensor, value: int = 0) -> Tensor:
        """[N blocks, Q = block, ...]"""
        whole = F.pad(x, (0, 0) * (x.dim() - 1) + (0, filler), value=value)
        return whole.view(-1, block, *x.shape[1:])

    def around_blocks(x: Tensor, value: int = 0) -> Tensor:
        """[N blocks, L = before + block + after, ...]"""
        ends = (0, 0) * (x.dim() - 1) + (before, filler + after)
        return F.pad(x, ends, value=value).unfold(0, before + block + after, block).movedim(-1, 1)

    # Filler is of no sentence: it sees filler, itself at least, and no token sees it.
    of_query_NQ, of_key_NL = blocks_of(queries.sentence_ids, -1), around_blocks(keys.sentence_ids, -1)
    same_NQL = of_query_NQ[:, :, None] == of_key_NL[:, None, :]
    i = torch.arange(block, device=q_THK.device)[:, None]
    j = torch.arange(-before, block + after, device=q_THK.device)[None, :]
    seen_NQL = same_NQL & (j - i >= -before) & (j - i <= after)
    q_NHQK = blocks_of(q_THK).transpose(1, 2)
    k_NHLK, v_NHLV = around_blocks(k_SHK).transpose(1, 2), around_blocks(v_SHV).transpose(1, 2)
    out_NHQV = masked_attention(q_NHQK, k_NHLK, v_NHLV, seen_NQL[:, None], spec)
    return out_NHQV.transpose(1, 2).flatten(0, 1)[:tokens]


def band_shape(spec: AttentionSpec) -> tuple[int, int, int]:
    """The queries of a block, and how many keys before and after it they may see."""
    assert spec.window is not None
    reach = spec.window // 2
    return max(reach, BAND_MIN_BLOCK), reach, 0 if spec.causal else reach


# The fused path: CUDA in bf16 or fp16


def flash_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """torch's variable-length kernel, straight over the packed tokens."""
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q_THK.shape[-1], v_SHV.shape[-1]
    width = round_up(max(d_k, d_v), FLASH_HEAD_DIM_MULTIPLE)
    q, k, v = (pad_head_dim(x, width) for x in (q_THK, k_SHK, v_SHV))
    reach = -1 if spec.window is None else spec.window // 2
    out = varlen_attn(
        q,
        k,
        v,
        queries.offsets,
        keys.offsets,
        queries.max_length,
        keys.max_length,
        scale=spec.scale(d_k),
        window_size=(reach, 0 if spec.causal else reach),
    )
    assert isinstance(out, Tensor)
    return out[..., :d_v]


def triton_attention(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, spec: AttentionSpec
) -> Tensor:
    """Our own kernel, which puts several short sentences into a tile."""
    from manyheads.ops.attention_triton import AttentionBounds, varlen_attention

    sight = queries.remember(
        (AttentionBounds, None if keys is queries else keys, spec.causal, spec.window),
        lambda: AttentionBounds.compute(queries, keys, spec.causal, spec.window),
    )
    return varlen_attention(q_THK, k_SHK, v_SHV, sight, spec.scale(q_THK.shape[-1]))


def pad_head_dim(x: Tensor, width: int) -> Tensor:
    """Zeros behind each head, up to the one width that the kernel wants: they add nothing to a product."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


IMPLEMENTATIONS = {
    "reference": reference_attention,
    "padded": padded_attention,
    "banded": banded_attention,
    "fused": flash_attention,
    "spans": triton_attention,
}
