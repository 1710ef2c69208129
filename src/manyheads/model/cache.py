"""What decoding keeps from one step to the next, so that each step computes one token only.

Shapes: N layers; B sentences, W hypotheses of each, R = B W rows in that order; H heads, K = d_k, V = d_v;
        L slots for tokens already written, S slots for the longest source.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.model.attention import filled
from manyheads.packed import Packed

FIRST_ROOM = 16  # slots made at the first step; doubled whenever they are full


@dataclass(frozen=True, eq=False)
class Memory:
    """What the encoder gives the decoder: its output, and where the sentences lie in it."""

    hidden: Tensor  # [S, D]
    source: Packed


@dataclass(eq=False)
class State:
    """W hypotheses for each of B sentences. `model.step` moves it on in place; the methods make new ones.

    The source's keys and values are computed once a sentence, and its hypotheses share them.
    """

    past_keys: Tensor  # [N, R, H, L, K]
    past_values: Tensor  # [N, R, H, L, V]
    lengths: Tensor  # [R] int64: tokens that each row has read
    longest: int  # of these, on the host
    source_keys: Tensor  # [N, B, H, S, K]
    source_values: Tensor  # [N, B, H, S, V]
    source_lengths: Tensor  # [B]
    width: int  # W
    window: int | None  # that self-attention is restricted to
    start: Callable[[Memory, int], "State"]  # the model's, which makes a state for new sentences

    def __len__(self) -> int:
        """B, the sentences under way."""
        return self.source_lengths.shape[0]

    def reorder(self, rows_R: Tensor) -> "State":
        """Row i continues what row rows[i] has read; both must belong to the same sentence."""
        return self._select(rows_R, self.source_keys, self.source_values, self.source_lengths)

    def drop(self, sentences: Tensor) -> "State":
        """Without the sentences of these indices; the others keep their order."""
        kept_B = torch.ones(len(self), dtype=torch.bool, device=self.lengths.device)
        kept_B[sentences] = False
        kept = kept_B.nonzero().squeeze(1)
        rows = kept_B.repeat_interleave(self.width).nonzero().squeeze(1)
        return self._select(
            rows,
            self.source_keys.index_select(1, kept),
            self.source_values.index_select(1, kept),
            self.source_lengths.index_select(0, kept),
        )

    def admit(self, memory: Memory) -> "State":
        """With new sentences behind the others, whose hypotheses have read nothing yet."""
        new = self.start(memory, self.width)
        room = max(self.past_keys.shape[3], new.past_keys.shape[3])
        source_room = max(self.source_keys.shape[3], new.source_keys.shape[3])

        def join(ours: Tensor, theirs: Tensor, slots: int) -> Tensor:
            return torch.cat((widen(ours, slots), widen(theirs, slots)), dim=1)

        return State(
            join(self.past_keys, new.past_keys, room),
            join(self.past_values, new.past_values, room),
            torch.cat((self.lengths, new.lengths)),
            self.longest,
            join(self.source_keys, new.source_keys, source_room),
            join(self.source_values, new.source_values, source_room),
            torch.cat((self.source_lengths, new.source_lengths)),
            self.width,
            self.window,
            self.start,
        )

    def layer(self, index: int) -> "LayerCache":
        return LayerCache(self, index)

    def make_room(self) -> None:
        """A slot for one more token of each row."""
        room = self.past_keys.shape[3]
        if self.longest == room:
            self.past_keys = widen(self.past_keys, max(FIRST_ROOM, 2 * room))
            self.past_values = widen(self.past_values, max(FIRST_ROOM, 2 * room))

    def advance(self) -> None:
        self.lengths = self.lengths + 1
        self.longest += 1

    def _select(
        self, rows: Tensor, source_keys: Tensor, source_values: Tensor, source_lengths: Tensor
    ) -> "State":
        return State(
            self.past_keys.index_select(1, rows),
            self.past_values.index_select(1, rows),
            self.lengths.index_select(0, rows),
            self.longest,
            source_keys,
            source_values,
            source_lengths,
            self.width,
            self.window,
            self.start,
        )


@dataclass(frozen=True, eq=False)
class LayerCache:
    """A state as one decoder layer sees it."""

    state: State
    index: int

    def append(self, k_RHK: Tensor, v_RHV: Tensor) -> None:
        """Keys and values of the newest token of each row, behind what the row has read."""
        rows = torch.arange(len(k_RHK), device=k_RHK.device)
        self.state.past_keys[self.index][rows, :, self.state.lengths] = k_RHK
        self.state.past_values[self.index][rows, :, self.state.lengths] = v_RHV

    def past(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values, and which of them each row may see: up to and with its newest token."""
        now = self.state.longest + 1
        slots = torch.arange(now, device=self.state.lengths.device)
        newest = self.state.lengths[:, None]
        seen_RL = slots <= newest
        if self.state.window is not None:
            seen_RL = seen_RL & (newest - slots <= self.state.window // 2)
        keys_RHLK = self.state.past_keys[self.index, :, :, :now]
        values_RHLV = self.state.past_values[self.index, :, :, :now]
        return keys_RHLK, values_RHLV, seen_RL[:, None, None, :]

    def source(self) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values, and which of them are tokens of the source."""
        keys_BHSK = self.state.source_keys[self.index]
        values_BHSV = self.state.source_values[self.index]
        seen_BS = filled(self.state.source_lengths, keys_BHSK.shape[2])
        return keys_BHSK, values_BHSV, seen_BS[:, None, None, :]


def widen(cache: Tensor, slots: int) -> Tensor:
    """[N, R, H, L, K] with room for at least so many tokens, zeros where nothing is written yet."""
    return F.pad(cache, (0, 0, 0, max(0, slots - cache.shape[3])))
