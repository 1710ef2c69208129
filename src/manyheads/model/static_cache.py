"""What decoding keeps on a GPU: a fixed number of places for sentences, whose shapes never change.

So one captured graph serves every step. Hypotheses that branch move nothing but a table of origins (see
kernels/rows.py), and the source's keys and values lie packed, for many more sentences than are under way.

Shapes: N layers; B places, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L slots for tokens of a row; S source tokens that there is room for.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.config import TransformerConfig
from manyheads.model.attention import AttentionSpec


@dataclass(eq=False)
class StaticKVCache:
    """W hypotheses for each of B places. Everything is changed in place."""

    past_keys: Tensor  # [N, R, L, H, K]
    past_values: Tensor  # [N, R, L, H, V]
    ancestors: Tensor  # [R, L] int32: the row in which each place of a row's past lies
    lengths: Tensor  # [R] int64: tokens that each row has read
    source_keys: Tensor  # [N, S, H, K]
    source_values: Tensor  # [N, S, H, V]
    source_starts: Tensor  # [B] int64: where a place's source begins
    source_lengths: Tensor  # [B] int64
    beam: int  # W
    window: int | None  # that self-attention is restricted to

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

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(
            past_keys=room(layers, rows, capacity, heads, config.head_dim_k),
            past_values=room(layers, rows, capacity, heads, config.head_dim_v),
            ancestors=numbers(rows, capacity).int(),
            lengths=numbers(rows),
            source_keys=room(layers, source_capacity, heads, config.head_dim_k),
            source_values=room(layers, source_capacity, heads, config.head_dim_v),
            source_starts=numbers(num_slots),
            source_lengths=numbers(num_slots),
            beam=beam,
            window=config.window,
        )

    @property
    def max_length(self) -> int:
        """A bound above what any row has read."""
        return self.ancestors.shape[1] - 1

    def first_slots(self, num_slots: int) -> "StaticKVCache":
        """Of the first places only, in the same memory; pasts may lie in rows of any."""
        rows = num_slots * self.beam
        return replace(
            self,
            ancestors=self.ancestors[:rows],
            lengths=self.lengths[:rows],
            source_starts=self.source_starts[:num_slots],
            source_lengths=self.source_lengths[:num_slots],
        )

    def move_slots(self, old: Tensor, new: Tensor) -> None:
        """The sentences of some places go on in others, whose own are over. What they read stays."""
        for of_rows in (self.ancestors, self.lengths):
            of_places = of_rows.view(-1, self.beam, *of_rows.shape[1:])
            of_places[new] = of_places[old]
        for of_places in (self.source_starts, self.source_lengths):
            of_places[new] = of_places[old]

    def begin_step(self) -> list["StaticLayerCache"]:
        return [StaticLayerCache(self, layer) for layer in range(len(self.past_keys))]

    def end_step(self) -> None:
        """Each row's newest token lies in the row itself. A row that is full writes its last slot anew."""
        own_R1 = torch.arange(len(self.lengths), dtype=torch.int32, device=self.lengths.device)[:, None]
        self.ancestors.scatter_(1, self.lengths[:, None], own_R1)
        self.lengths.add_(1).clamp_(max=self.max_length)

    def reorder(self, rows_R: Tensor) -> None:
        """Row i goes on with what row rows[i] of the same sentence has read."""
        self.ancestors.copy_(self.ancestors.index_select(0, rows_R))


@dataclass(frozen=True, eq=False)
class StaticLayerCache:
    """The cache of a SlotState."""

    state: StaticKVCache
    layer: int

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor:
        from manyheads.ops.decode_attention_triton import decode_self_attention

        state, scale = self.state, spec.scale(q_RHK.shape[-1])
        keys, values = state.past_keys[self.layer], state.past_values[self.layer]
        return decode_self_attention(
            q_RHK, k_RHK, v_RHV, keys, values, state.ancestors, state.lengths, scale, state.window
        )

    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor:
        from manyheads.ops.decode_attention_triton import decode_cross_attention

        state, scale = self.state, spec.scale(q_RHK.shape[-1])
        keys, values = state.source_keys[self.layer], state.source_values[self.layer]
        return decode_cross_attention(q_RHK, keys, values, state.source_starts, state.source_lengths, scale)
