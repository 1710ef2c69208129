"""A KV cache of fixed shapes: a fixed number of batch slots, so that one CUDA graph serves every step.

When hypotheses branch, only a table of ancestors changes (see ops/decode_attention.py). Keys and values of
the sources lie packed, for many more sentences than there are slots.

Shapes: N layers; B slots, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L tokens of capacity of a row; S source tokens of capacity.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.config import TransformerConfig
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.ops.decode_attention import decode_cross_attention, decode_self_attention


@dataclass(eq=False)
class StaticKVCache:
    """W hypotheses for each of B slots. Every method changes it in place."""

    past_keys: Tensor  # [N, R, L, H, K]
    past_values: Tensor  # [N, R, L, H, V]
    ancestors: Tensor  # [R, L] int32: the row of the cache that holds each position of a row
    lengths: Tensor  # [R] int64: tokens that each row has read
    source_keys: Tensor  # [N, S, H, K]
    source_values: Tensor  # [N, S, H, V]
    source_starts: Tensor  # [B] int64: where the source of a slot begins
    source_lengths: Tensor  # [B] int64
    beam: int  # W
    window: int | None  # of self-attention

    @classmethod
    def allocate(
        cls,
        config: TransformerConfig,
        num_slots: int,
        beam: int,
        capacity: int,
        source_capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "StaticKVCache":
        rows, layers, heads = num_slots * beam, config.decoder_layers, config.heads

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(
            past_keys=zeros(layers, rows, capacity, heads, config.head_dim_k),
            past_values=zeros(layers, rows, capacity, heads, config.head_dim_v),
            ancestors=integers(rows, capacity).int(),
            lengths=integers(rows),
            source_keys=zeros(layers, source_capacity, heads, config.head_dim_k),
            source_values=zeros(layers, source_capacity, heads, config.head_dim_v),
            source_starts=integers(num_slots),
            source_lengths=integers(num_slots),
            beam=beam,
            window=config.window,
        )

    @property
    def max_length(self) -> int:
        """An upper bound of the tokens that any row has read."""
        return self.ancestors.shape[1] - 1

    def first_slots(self, num_slots: int) -> "StaticKVCache":
        """Return a view of the first slots; their ancestors may be in rows of any slot."""
        rows = num_slots * self.beam
        return replace(
            self,
            ancestors=self.ancestors[:rows],
            lengths=self.lengths[:rows],
            source_starts=self.source_starts[:num_slots],
            source_lengths=self.source_lengths[:num_slots],
        )

    def move_slots(self, old: Tensor, new: Tensor) -> None:
        """Move the sentences of some slots to free ones. Keys and values stay where they are."""
        for by_row in (self.ancestors, self.lengths):
            by_slot = by_row.view(-1, self.beam, *by_row.shape[1:])
            by_slot[new] = by_slot[old]
        for by_slot in (self.source_starts, self.source_lengths):
            by_slot[new] = by_slot[old]

    def begin_step(self) -> list["StaticLayerCache"]:
        return [StaticLayerCache(self, layer) for layer in range(len(self.past_keys))]

    def end_step(self) -> None:
        """Enter each row as the ancestor of its newest token. A full row overwrites its last position."""
        own_R1 = torch.arange(len(self.lengths), dtype=torch.int32, device=self.lengths.device)[:, None]
        self.ancestors.scatter_(1, self.lengths[:, None], own_R1)
        self.lengths.add_(1).clamp_(max=self.max_length)

    def reorder(self, rows_R: Tensor) -> None:
        """Row i continues row rows[i] of the same sentence."""
        self.ancestors.copy_(self.ancestors.index_select(0, rows_R))


@dataclass(frozen=True, eq=False)
class StaticLayerCache:
    """One layer of a StaticKVCache."""

    cache: StaticKVCache
    layer: int

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor:
        cache, scale = self.cache, spec.scale(q_RHK.shape[-1])
        keys, values = cache.past_keys[self.layer], cache.past_values[self.layer]
        return decode_self_attention(
            q_RHK, k_RHK, v_RHV, keys, values, cache.ancestors, cache.lengths, scale, cache.window
        )

    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor:
        cache, scale = self.cache, spec.scale(q_RHK.shape[-1])
        keys, values = cache.source_keys[self.layer], cache.source_values[self.layer]
        return decode_cross_attention(q_RHK, keys, values, cache.source_starts, cache.source_lengths, scale)
