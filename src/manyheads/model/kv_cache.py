"""The KV cache of a decoding: keys and values of earlier tokens, so that each step computes one token only.

This one grows as sentences do. static_cache.py has one of fixed shapes for CUDA graphs.

Shapes: N layers; B sentences, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L tokens of capacity of a row, S tokens of the longest source.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.errors import RequestError
from manyheads.ops.attention import masked_attention
from manyheads.ops.attention_spec import AttentionSpec, padding_mask
from manyheads.packed import Packed

INITIAL_CAPACITY = 16  # tokens of a row at the first step; doubled whenever it is full


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoder's output, and where the sentences lie in it."""

    hidden: Tensor  # [source tokens, d_model]
    source: Packed


@dataclass(eq=False)
class DynamicKVCache:
    """W hypotheses for each of B sentences.

    `model.step` advances it in place. The other methods return a new cache that may share memory with this
    one: do not use this one again. Keys and values of the source are computed once per sentence, and its
    hypotheses share them. All steps of a cache are in inference mode or none, under autocast or none.
    """

    past_keys: Tensor  # [N, R, H, L, K]
    past_values: Tensor  # [N, R, H, L, V]
    lengths: Tensor  # [R] int64: tokens that each row has read
    max_length: int  # of these, on the host, or an upper bound
    source_keys: Tensor  # [N, B, H, S, K]
    source_values: Tensor  # [N, B, H, S, V]
    source_lengths: Tensor  # [B]
    beam: int  # W
    window: int | None  # of self-attention
    start: Callable[[Memory, int], "DynamicKVCache"]  # of the model: creates a cache for new sentences

    def __len__(self) -> int:
        """B"""
        return len(self.source_lengths)

    def reorder(self, rows_R: Tensor) -> "DynamicKVCache":
        """Row i continues row rows[i]. Both must belong to one sentence, which is not checked.

        The copy is in place, layer by layer: allocating memory would take longer than copying.
        """
        if len(rows_R) != len(self.lengths):
            raise RequestError(f"{len(rows_R)} rows to reorder, but the state has {len(self.lengths)}")
        for cache in (self.past_keys, self.past_values):
            for layer_RHLK in cache:
                written = layer_RHLK[:, :, : self.max_length]
                written.copy_(written.index_select(0, rows_R))
        return replace(self, lengths=self.lengths.index_select(0, rows_R))

    def remove(self, sentences: Tensor) -> "DynamicKVCache":
        """Return the cache without these sentences, and without the capacity only they needed."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept_R = kept_B.repeat_interleave(self.beam)
        lengths, source_lengths = self.lengths[kept_R], self.source_lengths[kept_B]
        max_length = int(lengths.max()) if len(lengths) else 0
        source_length = max(1, int(source_lengths.max())) if len(source_lengths) else 1
        return replace(
            self,
            past_keys=self.past_keys[:, kept_R, :, :max_length],
            past_values=self.past_values[:, kept_R, :, :max_length],
            lengths=lengths,
            max_length=max_length,
            source_keys=self.source_keys[:, kept_B, :, :source_length],
            source_values=self.source_values[:, kept_B, :, :source_length],
            source_lengths=source_lengths,
        )

    def append(self, memory: Memory) -> "DynamicKVCache":
        """Return the cache with new sentences behind the others, before their first token."""
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
        """Make room for one more token of each row; return the cache of each layer."""
        capacity = self.past_keys.shape[3]
        if self.max_length == capacity:
            self.past_keys = grow_capacity(self.past_keys, max(INITIAL_CAPACITY, 2 * capacity))
            self.past_values = grow_capacity(self.past_values, max(INITIAL_CAPACITY, 2 * capacity))
        masks = self.self_attention_mask(), self.cross_attention_mask()
        return [DynamicLayerCache(self, layer, *masks) for layer in range(len(self.past_keys))]

    def end_step(self) -> None:
        self.lengths = self.lengths + 1
        self.max_length += 1

    def self_attention_mask(self) -> Tensor:
        """Return which tokens each row sees: what it has read, and its newest token. [R, 1, 1, L]"""
        positions_L = torch.arange(self.max_length + 1, device=self.lengths.device)
        newest_R1 = self.lengths[:, None]
        mask_RL = positions_L <= newest_R1
        if self.window is not None:
            mask_RL = mask_RL & (newest_R1 - positions_L <= self.window // 2)
        return mask_RL[:, None, None, :]

    def cross_attention_mask(self) -> Tensor:
        """Return which positions hold a token of the source. [B, 1, 1, S]"""
        return padding_mask(self.source_lengths, self.source_keys.shape[3])[:, None, None, :]


class LayerCache(Protocol):
    """A KV cache as one decoder layer sees it during one step."""

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor: ...
    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class DynamicLayerCache:
    """One layer of a DynamicKVCache."""

    cache: DynamicKVCache
    layer: int
    self_attention_mask: Tensor  # [R, 1, 1, L]
    cross_attention_mask: Tensor  # [B, 1, 1, S]

    def self_attention(self, q_RHK: Tensor, k_RHK: Tensor, v_RHV: Tensor, spec: AttentionSpec) -> Tensor:
        """Append the newest token of each row; return its attention over the row and itself. [R, H, V]"""
        self.append(k_RHK, v_RHV)
        return attend_step(q_RHK, *self.past_keys_values(), spec)

    def cross_attention(self, q_RHK: Tensor, spec: AttentionSpec) -> Tensor:
        """Return its attention over the source of its sentence. [R, H, V]"""
        return attend_step(q_RHK, *self.source_keys_values(), spec)

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> None:
        """Write the key and value of the newest token of each row."""
        rows = torch.arange(len(k_RHK), device=k_RHK.device)
        keys, values = self.cache.past_keys[self.layer], self.cache.past_values[self.layer]
        keys[rows, :, self.cache.lengths] = k_RHK.to(keys.dtype)
        values[rows, :, self.cache.lengths] = v_RHV.to(values.dtype)

    def past_keys_values(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys [R, H, L, K], values [R, H, L, V] and the mask of each row."""
        length = self.self_attention_mask.shape[-1]
        keys, values = self.cache.past_keys[self.layer], self.cache.past_values[self.layer]
        return keys[:, :, :length], values[:, :, :length], self.self_attention_mask

    def source_keys_values(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return keys [B, H, S, K], values [B, H, S, V] and the mask of the source."""
        return (
            self.cache.source_keys[self.layer],
            self.cache.source_values[self.layer],
            self.cross_attention_mask,
        )


def attend_step(q_RHK: Tensor, k_BHLK: Tensor, v_BHLV: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """Attend from one query of each row to its own keys (B = R) or to those that W rows share. [R, H, V]"""
    hypotheses = len(q_RHK) // max(1, len(k_BHLK))
    q_BHWK = q_RHK.view(len(k_BHLK), hypotheses, *q_RHK.shape[1:]).transpose(1, 2)
    out_BHWV = masked_attention(q_BHWK, k_BHLK, v_BHLV, mask, spec)
    return out_BHWV.transpose(1, 2).flatten(0, 1)


def concat_rows(first: Tensor, second: Tensor) -> Tensor:
    """Return the rows of two caches, with the capacity of the larger. [N, R, H, L, K]"""
    capacity = max(first.shape[3], second.shape[3])
    return torch.cat((grow_capacity(first, capacity), grow_capacity(second, capacity)), dim=1)


def grow_capacity(cache: Tensor, capacity: int) -> Tensor:
    """Return a cache [N, R, H, L, K] of at least this capacity, zeros where nothing is written yet."""
    return F.pad(cache, (0, 0, 0, max(0, capacity - cache.shape[3])))
