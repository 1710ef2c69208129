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
from manyheads.packed import Packed, up

FUSED_WIDTH_LIMIT = 256  # of a head, in the fused kernel
FUSED_WIDTH_STEP = 8  # its widths are multiples of this
FUSED_CAPABILITY = (8, 0)  # of the GPU
SPANS_WIDTH_LIMIT = 128  # of a head, in the kernel of ours
SPANS_LONGEST = 1024  # tokens of a sentence, up to which it is the faster one
BAND_BLOCK = 32  # queries of a block of the band, at least: smaller products are no faster
BAND_FROM = 2  # times the keys that a block sees: from such a sentence on the band is the faster one


@dataclass(frozen=True)
class Rule:
    """How queries meet keys, and which they may see. The defaults are those of the encoder."""

    attention: Literal["scaled-dot", "dot", "additive"] = "scaled-dot"
    causal: bool = False  # position i sees j <= i
    window: int | None = None  # r: position i sees |i - j| <= r // 2
    dropout: float = 0.0  # of the weights
    energy_HK: Tensor | None = None  # additive attention's output layer

    def scale(self, d_k: int) -> float:
        return 1 / math.sqrt(d_k) if self.attention == "scaled-dot" else 1.0


def attend(
    q_THK: Tensor,
    k_SHK: Tensor,
    v_SHV: Tensor,
    queries: Packed,
    keys: Packed,
    rule: Rule,
    *,
    maps: list[Tensor] | None = None,
    path: Literal["reference", "padded", "banded", "fused", "spans"] | None = None,
) -> Tensor:
    """What each query gathers, [T, H, V]; a query with nothing to look at gathers zeros.

    `maps` receives the weights [H, Q, L] of each sentence and never changes the result. `path` is for tests;
    without it choose_path decides. A decoding step, whose keys lie padded in a cache, enters below.
    """
    if (rule.causal or rule.window is not None) and queries.offsets is not keys.offsets:
        raise ValueError("causal and windowed attention compare positions of one and the same text")
    if len(queries) != len(keys):
        raise DataError(f"{len(queries)} sentences look at {len(keys)}: give as many sources as targets")
    serve = PATHS[path or choose_path(q_THK, v_SHV, rule, max(queries.longest, keys.longest))]
    if maps is not None:
        with torch.no_grad():
            maps.extend(weights(q_THK, k_SHK, queries, keys, rule))
    return serve(q_THK, k_SHK, v_SHV, queries, keys, rule)


def choose_path(q_THK: Tensor, v_SHV: Tensor, rule: Rule, longest: int = 0) -> str:
    """A fused kernel where there is one and it can serve; else the padded path, or a narrow window's band."""
    if not (q_THK.is_cuda and has_kernel(q_THK.device) and kernel_serves(q_THK, v_SHV, rule)):
        narrow = rule.window is not None and longest >= BAND_FROM * sum(band(rule))
        return "banded" if narrow else "padded"
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= SPANS_WIDTH_LIMIT
    return "spans" if narrow and longest <= SPANS_LONGEST and kernels.serve(q_THK) else "fused"


def kernel_serves(q_THK: Tensor, v_SHV: Tensor, rule: Rule) -> bool:
    """What the fused kernel knows: half precision, heads that are not too wide, no weight dropout."""
    half = q_THK.dtype in (torch.bfloat16, torch.float16)
    narrow = max(q_THK.shape[-1], v_SHV.shape[-1]) <= FUSED_WIDTH_LIMIT
    plain = rule.attention != "additive" and rule.dropout == 0
    return half and narrow and plain and len(q_THK) > 0 and len(v_SHV) > 0


def has_kernel(device: torch.device) -> bool:
    """Whether this torch has the fused kernel and this GPU can run it (Ampere or later)."""
    there = torch.backends.cuda.is_flash_attention_available()
    return there and torch.cuda.get_device_capability(device) >= FUSED_CAPABILITY


# The reference


def compatibility(q_HQK: Tensor, k_HLK: Tensor, rule: Rule) -> Tensor:
    """How well each query and each key go together (3.2.1). [..., H, Q, L]

    scaled-dot  q . k / sqrt(d_k)
    dot         q . k
    additive    energy . tanh(q + k), one hidden layer whose two halves are W_Q and W_K
    """
    if rule.attention == "additive":
        assert rule.energy_HK is not None
        hidden_HQLK = torch.tanh(q_HQK.unsqueeze(-2) + k_HLK.unsqueeze(-3))
        return (hidden_HQLK * rule.energy_HK[:, None, None, :]).sum(-1)
    return q_HQK @ k_HLK.transpose(-2, -1) * rule.scale(q_HQK.shape[-1])


def visible(length: int, rule: Rule, device: torch.device) -> Tensor:
    """Which positions j each position i of a sentence may see, before the softmax (3.2.3). [L, L]"""
    i = torch.arange(length, device=device)[:, None]
    j = torch.arange(length, device=device)[None, :]
    seen = torch.ones(length, length, dtype=torch.bool, device=device)
    if rule.causal:
        seen = seen & (j <= i)
    if rule.window is not None:
        seen = seen & ((i - j).abs() <= rule.window // 2)
    return seen


def weights(q_THK: Tensor, k_SHK: Tensor, queries: Packed, keys: Packed, rule: Rule) -> list[Tensor]:
    """softmax(Q K^T / sqrt(d_k)) of each sentence. [H, Q, L] each"""
    found = []
    for q_QHK, k_LHK in zip(queries.split(q_THK), keys.split(k_SHK), strict=True):
        scores_HQL = compatibility(q_QHK.transpose(0, 1), k_LHK.transpose(0, 1), rule)
        if rule.causal or rule.window is not None:
            seen_QL = visible(len(q_QHK), rule, q_THK.device)
            scores_HQL = scores_HQL.masked_fill(~seen_QL, -math.inf)
        found.append(scores_HQL.softmax(-1))
    return found


def reference(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, rule: Rule
) -> Tensor:
    """Equation (1), one sentence after the other. A sum over no keys is zero by itself."""
    gathered = [v_SHV[:0]]
    for weights_HQL, v_LHV in zip(weights(q_THK, k_SHK, queries, keys, rule), keys.split(v_SHV), strict=True):
        kept_HQL = F.dropout(weights_HQL, rule.dropout)
        gathered.append((kept_HQL @ v_LHV.transpose(0, 1)).transpose(0, 1))
    return torch.cat(gathered)


# The padded path: CPU, float32, and whatever the fused kernel does not know


def padded(q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, rule: Rule) -> Tensor:
    """torch's scaled_dot_product_attention over a padded view, made and undone here."""
    q_BHQK = queries.pad(q_THK).transpose(1, 2)
    k_BHLK = keys.pad(k_SHK).transpose(1, 2)
    v_BHLV = keys.pad(v_SHV).transpose(1, 2)
    if rule.causal and rule.window is None:
        # Filler stands after the sentence: who sees only what came before sees none of it.
        out_BHQV = attend_padded(q_BHQK, k_BHLK, v_BHLV, None, rule)
    else:
        seen = filled(keys.lengths, k_BHLK.shape[2])[:, None, None, :]
        if rule.window is not None:
            seen = seen & visible(k_BHLK.shape[2], rule, q_THK.device)
            # Filler far behind a sentence sees itself, since a softmax over nothing is not a number.
            seen = seen | torch.eye(seen.shape[-1], dtype=torch.bool, device=seen.device)
        out_BHQV = attend_padded(q_BHQK, k_BHLK, v_BHLV, seen, rule)
    return queries.unpad(out_BHQV.transpose(1, 2))


def filled(lengths_B: Tensor, room: int) -> Tensor:
    """Which of `room` slots hold a token; the first one always counts.

    In an empty sentence that slot holds zeros, so what is gathered from it is zero, forward and backward.
    """
    return torch.arange(room, device=lengths_B.device) < lengths_B.clamp(min=1)[:, None]


def attend_padded(q_BHQK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, seen: Tensor | None, rule: Rule) -> Tensor:
    """Attention of padded rows, each with something to see. `seen` is None, or broadcasts to [B, H, Q, L].

    Without `seen` the rule's causality holds; with it, `seen` says all.
    """
    if rule.attention != "additive":
        return F.scaled_dot_product_attention(
            q_BHQK,
            k_BHLK,
            v_BHLV,
            attn_mask=seen,
            dropout_p=rule.dropout,
            is_causal=rule.causal and seen is None,
            scale=rule.scale(q_BHQK.shape[-1]),
        )
    if seen is None:
        seen = visible(k_BHLK.shape[2], rule, q_BHQK.device)
    scores_BHQL = compatibility(q_BHQK, k_BHLK, rule).masked_fill(~seen, -math.inf)
    return F.dropout(scores_BHQL.softmax(-1), rule.dropout).to(v_BHLV.dtype) @ v_BHLV


# The banded path: a window that is narrow beside the sentences, so that it costs r n d and not n^2 d (4)


def banded(q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, rule: Rule) -> Tensor:
    """Blocks of the row of tokens, whatever sentences lie in them, each with the keys around it."""
    tokens = len(q_THK)
    block, before, after = band(rule)
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
    of_query_NQ, of_key_NL = blocks_of(queries.sentence_of, -1), around_blocks(keys.sentence_of, -1)
    same_NQL = of_query_NQ[:, :, None] == of_key_NL[:, None, :]
    i = torch.arange(block, device=q_THK.device)[:, None]
    j = torch.arange(-before, block + after, device=q_THK.device)[None, :]
    seen_NQL = same_NQL & (j - i >= -before) & (j - i <= after)
    q_NHQK = blocks_of(q_THK).transpose(1, 2)
    k_NHLK, v_NHLV = around_blocks(k_SHK).transpose(1, 2), around_blocks(v_SHV).transpose(1, 2)
    out_NHQV = attend_padded(q_NHQK, k_NHLK, v_NHLV, seen_NQL[:, None], rule)
    return out_NHQV.transpose(1, 2).flatten(0, 1)[:tokens]


def band(rule: Rule) -> tuple[int, int, int]:
    """The queries of a block, and how many keys before and after it they may see."""
    assert rule.window is not None
    reach = rule.window // 2
    return max(reach, BAND_BLOCK), reach, 0 if rule.causal else reach


# The fused path: CUDA in bf16 or fp16


def fused(q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, rule: Rule) -> Tensor:
    """torch's variable-length kernel, straight over the packed tokens."""
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q_THK.shape[-1], v_SHV.shape[-1]
    width = up(max(d_k, d_v), FUSED_WIDTH_STEP)
    q, k, v = (fill_up(x, width) for x in (q_THK, k_SHK, v_SHV))
    reach = -1 if rule.window is None else rule.window // 2
    out = varlen_attn(
        q,
        k,
        v,
        queries.offsets,
        keys.offsets,
        queries.longest,
        keys.longest,
        scale=rule.scale(d_k),
        window_size=(reach, 0 if rule.causal else reach),
    )
    assert isinstance(out, Tensor)
    return out[..., :d_v]


def spans(q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, queries: Packed, keys: Packed, rule: Rule) -> Tensor:
    """Our own kernel, which puts several short sentences into a tile."""
    from manyheads.ops.attention_triton import Sight, attend_spans

    sight = queries.remember(
        (Sight, None if keys is queries else keys, rule.causal, rule.window),
        lambda: Sight.between(queries, keys, rule.causal, rule.window),
    )
    return attend_spans(q_THK, k_SHK, v_SHV, sight, rule.scale(q_THK.shape[-1]))


def fill_up(x: Tensor, width: int) -> Tensor:
    """Zeros behind each head, up to the one width that the kernel wants: they add nothing to a product."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


PATHS = {"reference": reference, "padded": padded, "banded": banded, "fused": fused, "spans": spans}
