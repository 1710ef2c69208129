"""What decoding keeps on a GPU: a fixed number of places for sentences, whose shapes never change.

So one captured graph serves every step. Hypotheses that branch move nothing but a table of origins (see
kernels/rows.py), and the source's keys and values lie packed, for many more sentences than are under way.

Shapes: N layers; B places, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L slots for tokens of a row; S source tokens that there is room for.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from manyheads.config import ModelConfig
from manyheads.model.attention import Rule


@dataclass(eq=False)
class SlotState:
    """W hypotheses for each of B places. Everything is changed in place."""

    past_keys: Tensor  # [N, R, L, H, K]
    past_values: Tensor  # [N, R, L, H, V]
    origins: Tensor  # [R, L] int32: the row in which each place of a row's past lies
    lengths: Tensor  # [R] int64: tokens that each row has read
    source_keys: Tensor  # [N, S, H, K]
    source_values: Tensor  # [N, S, H, V]
    source_first: Tensor  # [B] int64: where a place's source begins
    source_lengths: Tensor  # [B] int64
    width: int  # W
    window: int | None  # that self-attention is restricted to

    @classmethod
    def make(
        cls,
        config: ModelConfig,
        places: int,
        width: int,
        slots: int,
        source_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> "SlotState":
        rows, layers, heads = places * width, config.layers, config.heads

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(
            past_keys=room(layers, rows, slots, heads, config.key_width),
            past_values=room(layers, rows, slots, heads, config.value_width),
            origins=numbers(rows, slots).int(),
            lengths=numbers(rows),
            source_keys=room(layers, source_tokens, heads, config.key_width),
            source_values=room(layers, source_tokens, heads, config.value_width),
            source_first=numbers(places),
            source_lengths=numbers(places),
            width=width,
            window=config.window,
        )

    @property
    def longest(self) -> int:
        """A bound above what any row has read."""
        return self.origins.shape[1] - 1

    def first(self, places: int) -> "SlotState":
        """Of the first places only, in the same memory; pasts may lie in rows of any."""
        rows = places * self.width
        return replace(
            self,
            origins=self.origins[:rows],
            lengths=self.lengths[:rows],
            source_first=self.source_first[:places],
            source_lengths=self.source_lengths[:places],
        )

    def move(self, old: Tensor, new: Tensor) -> None:
        """The sentences of some places go on in others, whose own are over. What they read stays."""
        for of_rows in (self.origins, self.lengths):
            of_places = of_rows.view(-1, self.width, *of_rows.shape[1:])
            of_places[new] = of_places[old]
        for of_places in (self.source_first, self.source_lengths):
            of_places[new] = of_places[old]

    def begin_step(self) -> list["SlotCache"]:
        return [SlotCache(self, layer) for layer in range(len(self.past_keys))]

    def end_step(self) -> None:
        """Each row's newest token lies in the row itself. A row that is full writes its last slot anew."""
        own_R1 = torch.arange(len(self.lengths), dtype=torch.int32, device=self.lengths.device)[:, None]
        self.origins.scatter_(1, self.lengths[:, None], own_R1)
        self.lengths.add_(1).clamp_(max=self.longest)

    def continue_rows(self, rows_R: Tensor) -> None:
        """Row i goes on with what row rows[i] of the same sentence has read."""
        self.origins.copy_(self.origins.index_select(0, rows_R))


@dataclass(frozen=True, eq=False)
class SlotCache:
    """The cache of a SlotState."""

    state: SlotState
    layer: int

    def attend_past(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, rule: Rule) -> Tensor:
        from manyheads.ops.decode_attention_triton import attend_past

        state, scale = self.state, rule.scale(q_RHK.shape[-1])
        keys, values = state.past_keys[self.layer], state.past_values[self.layer]
        return attend_past(
            q_RHK, k_RHK, v_RHV, keys, values, state.origins, state.lengths, scale, state.window
        )

    def attend_source(self, q_RHK: Tensor, rule: Rule) -> Tensor:
        from manyheads.ops.decode_attention_triton import attend_source

        state, scale = self.state, rule.scale(q_RHK.shape[-1])
        keys, values = state.source_keys[self.layer], state.source_values[self.layer]
        return attend_source(q_RHK, keys, values, state.source_first, state.source_lengths, scale)
