"""What decoding keeps from one step to the next, so that each step computes one token only.

Shapes: N layers; B sentences, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L slots for tokens already written, S slots for the longest source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.errors import RequestError
from manyheads.model.attention import AttentionSpec, masked_attention, padding_mask
from manyheads.packed import Packed

INITIAL_CAPACITY = 16  # slots made at the first step; doubled whenever they are full


@dataclass(frozen=True, eq=False)
class Memory:
    """What the encoder gives the decoder: its output, and where the sentences lie in it."""

    hidden: Tensor  # [source tokens, d_model]
    source: Packed


@dataclass(eq=False)
class DynamicKVCache:
    """W hypotheses for each of B sentences. `model.step` moves it on in place, and what a method gives takes
    its place: the state that it was called on may share its memory and is not used again.

    The source's keys and values are computed once a sentence, and its hypotheses share them. From start to
    end it stays in one mode: all of it in inference mode or none, all of it under autocast or none.
    """

    past_keys: Tensor  # [N, R, H, L, K]
    past_values: Tensor  # [N, R, H, L, V]
    lengths: Tensor  # [R] int64: tokens that each row has read
    max_length: int  # of these, on the host, or a bound above it
    source_keys: Tensor  # [N, B, H, S, K]
    source_values: Tensor  # [N, B, H, S, V]
    source_lengths: Tensor  # [B]
    beam: int  # W
    window: int | None  # that self-attention is restricted to
    start: Callable[[Memory, int], "DynamicKVCache"]  # the model's, which makes a state for new sentences

    def __len__(self) -> int:
        """B, the sentences under way."""
        return len(self.source_lengths)

    def reorder(self, rows_R: Tensor) -> "DynamicKVCache":
        """Row i continues what row rows[i] has read. Both must be of one sentence, which is not checked.

        Moved in place, layer by layer and only what was written: new memory would cost more than the moving.
        """
        if len(rows_R) != len(self.lengths):
            raise RequestError(f"{len(rows_R)} rows to reorder, but the state has {len(self.lengths)}")
        for cache in (self.past_keys, self.past_values):
            for layer_RHLK in cache:
                written = layer_RHLK[:, :, : self.max_length]
                written.copy_(written.index_select(0, rows_R))
        return replace(self, lengths=self.lengths.index_select(0, rows_R))

    def remove(self, sentences: Tensor) -> "DynamicKVCache":
        """Without the sentences of these indices, and without the room that only they needed."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept_R = kept_B.repeat_interleave(self.beam)
        lengths, source_lengths = self.lengths[kept_R], self.source_lengths[kept_B]
        longest = int(lengths.max()) if len(lengths) else 0
        room = max(1, int(source_lengths.max())) if len(source_lengths) else 1
        return replace(
            self,
            past_keys=self.past_keys[:, kept_R, :, :longest],
            past_values=self.past_values[:, kept_R, :, :longest],
            lengths=lengths,
            max_length=longest,
            source_keys=self.source_keys[:, kept_B, :, :room],
            source_values=self.source_values[:, kept_B, :, :room],
            source_lengths=source_lengths,
        )

    def append(self, memory: Memory) -> "DynamicKVCache":
        """With new sentences behind the others, whose hypotheses have read nothing yet."""
        new = self.start(memory, self.beam)
        return replace(
            self,
            past_keys=concat_rows(self.past_keys, new.past_keys),
            past_values=concat_rows(self.past_values, new.past_values),
            lengths=torch.cat((self.lengths, new.lengths)),
            source_keys=concat_rows(self.source_keys, new.source_keys),
            source_values=concat_rows(self.source_values, new.source_values),
            source_lengths=torch.cat((self.source_lengths, new.source_lengths)),
        )

    def begin_step(self) -> list["DynamicLayerCache"]:
        """Room for one more token of each row, and what each layer needs to read it."""
        room = self.past_keys.shape[3]
        if self.max_length == room:
            self.past_keys = grow_capacity(self.past_keys, max(INITIAL_CAPACITY, 2 * room))
            self.past_values = grow_capacity(self.past_values, max(INITIAL_CAPACITY, 2 * room))
        past, source = self.self_attention_mask(), self.cross_attention_mask()
        return [DynamicLayerCache(self, layer, past, source) for layer in range(len(self.past_keys))]

    def end_step(self) -> None:
        self.lengths = self.lengths + 1
        self.max_length += 1

    def self_attention_mask(self) -> Tensor:
        """Each row sees what it has read, and its newest token. [R, 1, 1, L]"""
        slots = torch.arange(self.max_length + 1, device=self.lengths.device)
        newest = self.lengths[:, None]
        seen_RL = slots <= newest
        if self.window is not None:
            seen_RL = seen_RL & (newest - slots <= self.window // 2)
        return seen_RL[:, None, None, :]

    def cross_attention_mask(self) -> Tensor:
        """Which slots hold a token of the source. [B, 1, 1, S]"""
        return padding_mask(self.source_lengths, self.source_keys.shape[3])[:, None, None, :]


class LayerCache(Protocol):
    """A state as one decoder layer sees it during one step."""

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor: ...
    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class DynamicLayerCache:
    """The cache of a State."""

    state: DynamicKVCache
    layer: int
    self_attention_mask: Tensor  # [R, 1, 1, L]
    cross_attention_mask: Tensor  # [B, 1, 1, S]

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor:
        """What each row's newest token gathers of the row, itself included, which is kept. [R, H, V]"""
        self.append(k_RHK, v_RHV)
        return attend_step(q_RHK, *self.past_keys_values(), spec)

    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor:
        """What it gathers of its sentence's source. [R, H, V]"""
        return attend_step(q_RHK, *self.source_keys_values(), spec)

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> None:
        """Keys and values of the newest token of each row, behind what the row has read."""
        rows = torch.arange(len(k_RHK), device=k_RHK.device)
        keys, values = self.state.past_keys[self.layer], self.state.past_values[self.layer]
        keys[rows, :, self.state.lengths] = k_RHK.to(keys.dtype)
        values[rows, :, self.state.lengths] = v_RHV.to(values.dtype)

    def past_keys_values(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys [R, H, L, K], values [R, H, L, V], and which of them each row may see."""
        slots = self.self_attention_mask.shape[-1]
        keys, values = self.state.past_keys[self.layer], self.state.past_values[self.layer]
        return keys[:, :, :slots], values[:, :, :slots], self.self_attention_mask

    def source_keys_values(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys [B, H, S, K], values [B, H, S, V], and which of them are tokens of the source."""
        return (
            self.state.source_keys[self.layer],
            self.state.source_values[self.layer],
            self.cross_attention_mask,
        )


def attend_step(q_RHK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """One query of each row, against its own keys (B = R) or those that the W rows of a sentence share."""
    width = len(q_RHK) // max(1, len(k_BHLK))
    q_BHWK = q_RHK.view(len(k_BHLK), width, *q_RHK.shape[1:]).transpose(1, 2)
    gathered_BHWV = masked_attention(q_BHWK, k_BHLK, v_BHLV, mask, spec)
    return gathered_BHWV.transpose(1, 2).flatten(0, 1)


def concat_rows(ours: Tensor, theirs: Tensor) -> Tensor:
    """Rows of two caches, the second behind the first."""
    slots = max(ours.shape[3], theirs.shape[3])
    return torch.cat((grow_capacity(ours, slots), grow_capacity(theirs, slots)), dim=1)


def grow_capacity(cache: Tensor, slots: int) -> Tensor:
    """[N, R, H, L, K] with room for at least so many tokens, zeros where nothing is written yet."""
    return F.pad(cache, (0, 0, 0, max(0, slots - cache.shape[3])))
