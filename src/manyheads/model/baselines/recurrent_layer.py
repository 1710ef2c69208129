"""Recurrent cells, h_t = f(h_{t-1}, x_t), and layers of them over packed sentences.

The cells are written out. Whole sentences are read by torch's own kernels (cuDNN's on a GPU), which the tests
hold to the written cells, values and gradients.

Shapes: T tokens, B sentences, L tokens of the longest, X features into a layer, H out of it (half of them in
        each direction), G the gates of a cell together; R rows of a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from manyheads.ops.batch_cache import cached_for_batch
from manyheads.ops.dispatch import autocast_disabled
from manyheads.packed import Packed, gather_rows

Implementation = Literal["fused", "reference"]

# ---- cells: the next state from W_x x + b_x, computed beforehand for all tokens, and the state before


def rnn_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """h' = tanh(W_x x + W_h h)"""
    (h,) = state
    return [torch.tanh(x_RG + F.linear(h, w_h, b_h))]


def gru_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """The gated recurrent unit: a reset gate r and an update gate z."""
    (h,) = state
    r_x, z_x, n_x = x_RG.chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, w_h, b_h).chunk(3, -1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return [(1 - z) * torch.tanh(n_x + r * n_h) + z * h]


def lstm_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """Long short-term memory: input gate i, forget gate f and output gate o of the cell state c."""
    h, c = state
    i, f, g, o = (x_RG + F.linear(h, w_h, b_h)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


Cell = Callable[[Tensor, list[Tensor], Tensor, Tensor], list[Tensor]]
CELLS: dict[str, tuple[Cell, Callable[..., nn.RNNBase]]] = {
    "rnn": (rnn_cell, nn.RNN),
    "gru": (gru_cell, nn.GRU),
    "lstm": (lstm_cell, nn.LSTM),
}


# ---- layers over packed sentences


@dataclass(frozen=True, eq=False)
class TimeSteps:
    """The tokens of a batch in the order of a recurrence: all first tokens, all second ones, and so on.

    Sentences are sorted by length, the longest first, so that those that have ended are the last.
    """

    order_T: Tensor  # the index in the batch of each token of this order
    inverse_T: Tensor  # the index in this order of each token of the batch
    batch_sizes: Tensor  # [L] on the host: sentences that have a first token, a second one, ...
    sorted_sentences: Tensor  # those that are not empty, the longest first

    @classmethod
    def from_packed(cls, text: Packed) -> "TimeSteps":
        by_length = text.lengths.argsort(descending=True, stable=True)
        rank_B = by_length.argsort()
        order = (text.positions * len(text) + rank_B[text.sentence_ids]).argsort()
        sizes = text.positions.bincount().cpu()
        return cls(order, order.argsort(), sizes, by_length[: int(sizes[0]) if len(sizes) else 0])


def time_steps(text: Packed) -> TimeSteps:
    return cached_for_batch(text, TimeSteps, lambda: TimeSteps.from_packed(text))


def reversed_positions(text: Packed) -> Tensor:
    """Return the index of each token when every sentence is reversed. [T]"""
    last_T = text.offsets[1:].long()[text.sentence_ids] - 1
    return last_T - text.positions


class RecurrentLayer(nn.Module):
    """One layer of cells, in one direction or in both."""

    def __init__(self, cell: str, inputs: int, width: int, *, bidirectional: bool = False):
        super().__init__()
        self.cell, kernel = CELLS[cell]
        self.num_directions = 2 if bidirectional else 1
        self.has_cell_state = cell == "lstm"  # a state of two parts, h and c
        self.rnn: nn.RNNBase = kernel(inputs, width // self.num_directions, bidirectional=bidirectional)

    def forward(
        self,
        x_TX: Tensor,
        text: Packed,
        initial_state: list[Tensor] | None = None,
        implementation: Implementation = "fused",
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the output of each token, [T, H], and the final state, [B, H] each, like initial_state.

        In full precision under autocast too: a recurrence accumulates rounding errors.
        """
        with autocast_disabled(x_TX):
            x_TX = x_TX.to(next(self.rnn.parameters()).dtype)
            state = self.zero_state(x_TX, len(text)) if initial_state is None else initial_state
            if not len(x_TX):
                return x_TX.new_zeros(0, self.num_directions * self.rnn.hidden_size), state
            run = self.forward_fused if implementation == "fused" else self.forward_reference
            return run(x_TX, text, state)

    def zero_state(self, like: Tensor, sentences: int) -> list[Tensor]:
        parts = 2 if self.has_cell_state else 1
        return [like.new_zeros(sentences, self.num_directions * self.rnn.hidden_size) for _ in range(parts)]

    def forward_fused(self, x_TX: Tensor, text: Packed, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """torch's own kernels."""
        steps = time_steps(text)
        initial = [self.split_directions(part[steps.sorted_sentences]) for part in state]
        ordered = PackedSequence(gather_rows(x_TX, steps.order_T), steps.batch_sizes)
        out, last = self.rnn(ordered, tuple(initial) if self.has_cell_state else initial[0])
        final = last if self.has_cell_state else (last,)
        return gather_rows(out.data, steps.inverse_T), [
            old.index_copy(0, steps.sorted_sentences, self.concat_directions(new))
            for old, new in zip(state, final, strict=True)
        ]

    def split_directions(self, state_BH: Tensor) -> Tensor:
        """Return [B, H] as [directions, B, H / directions], the layout of torch."""
        return torch.stack(state_BH.chunk(self.num_directions, -1))

    def concat_directions(self, state: Tensor) -> Tensor:
        return torch.cat(tuple(state), -1)

    def forward_reference(
        self, x_TX: Tensor, text: Packed, state: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The definition, step by step. The second direction reads every sentence reversed."""
        results = []
        for direction, weights in enumerate(self.direction_weights()):
            order = reversed_positions(text) if direction else slice(None)
            initial = [part.chunk(self.num_directions, -1)[direction] for part in state]
            out_TH, final = self.run_direction(x_TX[order], text, initial, weights)
            results.append((out_TH[order], final))
        outputs, finals = zip(*results, strict=True)
        return torch.cat(outputs, -1), [torch.cat(part, -1) for part in zip(*finals, strict=True)]

    def direction_weights(self) -> list[tuple[Tensor, ...]]:
        """Return W_x, W_h, b_x, b_h of each direction."""
        weights = tuple(self.rnn.parameters())
        return [weights[4 * direction : 4 * direction + 4] for direction in range(self.num_directions)]

    def run_direction(
        self, x_TX: Tensor, text: Packed, initial: list[Tensor], weights: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        w_x, w_h, b_x, b_h = weights
        steps = time_steps(text)
        state, outputs = [part[steps.sorted_sentences] for part in initial], []
        for x_RG in F.linear(x_TX[steps.order_T], w_x, b_x).split(steps.batch_sizes.tolist()):
            rows = len(x_RG)  # sentences that have not ended
            updated = self.cell(x_RG, [part[:rows] for part in state], w_h, b_h)
            outputs.append(updated[0])
            state = [torch.cat((new, old[rows:])) for new, old in zip(updated, state, strict=True)]
        sentences = steps.sorted_sentences
        final = [old.index_copy(0, sentences, new) for old, new in zip(initial, state, strict=True)]
        return torch.cat(outputs)[steps.inverse_T], final

    def step(self, x_RX: Tensor, state: list[Tensor]) -> list[Tensor]:
        """Read one token of each row; return the new state, whose first part h is the output."""
        ((w_x, w_h, b_x, b_h),) = self.direction_weights()
        with autocast_disabled(x_RX):
            return self.cell(F.linear(x_RX.to(w_x.dtype), w_x, b_x), state, w_h, b_h)
