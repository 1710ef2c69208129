"""Multi-head attention (3.2.2). Attention itself, equation (1), is in ops/attention.py.

Shapes: T query tokens, S memory tokens, D = d_model, H heads, K = d_k, V = d_v;
        R rows of a decoding step, each one hypothesis.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from manyheads.config import TransformerConfig
from manyheads.model.kv_cache import LayerCache
from manyheads.ops import dispatch
from manyheads.ops.attention import attend
from manyheads.ops.attention_add_norm import attention_add_norm
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.linear import Linear, stacked_linear
from manyheads.packed import Packed


class MultiHeadAttention(nn.Module):
    """Several attentions in parallel (3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O
    head_i = Attention(Q W_Q, K W_K, V W_V)             each with its own part of the three matrices

    The methods other than `forward` return Concat(head_1, ..., head_h): a layer applies W_O together with
    what follows it.
    """

    def __init__(self, config: TransformerConfig, *, causal: bool = False, window: int | None = None):
        super().__init__()
        self.heads = config.heads
        self.w_q = Linear(config.d_model, config.heads * config.head_dim_k)
        self.w_k = Linear(config.d_model, config.heads * config.head_dim_k)
        self.w_v = Linear(config.d_model, config.heads * config.head_dim_v)
        self.w_o = Linear(config.heads * config.head_dim_v, config.d_model)
        additive = config.attention == "additive"
        self.energy = nn.Parameter(torch.empty(config.heads, config.head_dim_k)) if additive else None
        self.spec = AttentionSpec(config.attention, causal, window, config.attention_dropout)

    def forward(
        self,
        x_TD: Tensor,
        memory_SD: Tensor,
        queries: Packed,
        keys: Packed,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        out: Tensor = self.w_o(self.concat_heads(x_TD, memory_SD, queries, keys, maps))
        return out

    def concat_heads(
        self,
        x_TD: Tensor,
        memory_SD: Tensor,
        queries: Packed,
        keys: Packed,
        maps: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the concatenated heads. [T, H V]"""
        if x_TD is memory_SD:
            q_THK, k_SHK, v_SHV = self.project(x_TD, [self.w_q, self.w_k, self.w_v])
        else:
            (q_THK,) = self.project(x_TD, [self.w_q])
            k_SHK, v_SHV = self.keys_and_values(memory_SD)
        return attend(q_THK, k_SHK, v_SHV, queries, keys, self.current_spec(), maps=maps).flatten(-2)

    def is_fused(self, x_TD: Tensor, memory_SD: Tensor | None, queries: Packed, keys: Packed) -> bool:
        """Return whether `add_norm` serves these tokens."""
        head_dim = max(self.w_k.out_features, self.w_v.out_features) // self.heads
        length = max(queries.max_length, keys.max_length)
        return dispatch.fuse_attention(x_TD, memory_SD, self.current_spec(), head_dim, length)

    def add_norm(
        self,
        x_TD: Tensor,
        memory_SD: Tensor | None,
        queries: Packed,
        keys: Packed,
        norm: nn.LayerNorm,
        dropout: nn.Dropout,
    ) -> Tensor:
        """Return LayerNorm(x + Dropout(MultiHead)) as one op; without a memory of x itself. [T, D]"""
        projections, spec = [self.w_q, self.w_k, self.w_v], self.current_spec()
        return attention_add_norm(
            x_TD, memory_SD, projections, self.w_o, self.heads, queries, keys, spec, norm, dropout
        )

    def self_attention_step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """Attend from one new token of each row to itself and to what the row has read. [R, H V]"""
        q_RHK, k_RHK, v_RHV = self.project(x_RD, [self.w_q, self.w_k, self.w_v])
        return cache.self_attention(q_RHK, k_RHK, v_RHV, self.current_spec()).flatten(-2)

    def cross_attention_step(self, x_RD: Tensor, cache: LayerCache) -> Tensor:
        """Attend from one new token of each row to the source of its sentence. [R, H V]"""
        (q_RHK,) = self.project(x_RD, [self.w_q])
        return cache.cross_attention(q_RHK, self.current_spec()).flatten(-2)

    def keys_and_values(self, memory_SD: Tensor) -> tuple[Tensor, Tensor]:
        k_SHK, v_SHV = self.project(memory_SD, [self.w_k, self.w_v])
        return k_SHK, v_SHV

    def project(self, x_TD: Tensor, projections: Sequence[nn.Linear]) -> list[Tensor]:
        """Return each projection of x, split into heads."""
        return [self.split_heads(x) for x in stacked_linear(x_TD, projections)]

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, x.shape[-1] // self.heads)

    def current_spec(self) -> AttentionSpec:
        """Return the spec with the present parameters, and with dropout only in training."""
        dropout = self.spec.dropout if self.training else 0.0
        return replace(self.spec, dropout=dropout, energy_HK=self.energy)
