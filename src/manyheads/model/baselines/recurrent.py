"""Encoder and decoder of recurrent cells, h_t = f(h_{t-1}, x_t), with attention as an add-on or without.

What the paper's introduction starts from. The encoder reads each sentence in both directions; the decoder
begins with the state that the encoder ended in. The first decoder layer's output looks at the source
(additive attention, or dot products), and what it gathers goes to every layer above and to the output. So a
step never waits for the attention of the step before it, and only the recurrence itself runs token by token.

Cells and their steps are written out below; whole texts are read by torch's own kernels (cuDNN's on a GPU),
which the tests hold to the written ones, values and gradients.

Shapes: S source tokens, T target tokens, B sentences, D = d_model, X numbers into a layer, H = d_ff out of it
        (half of them in each direction of the encoder), G the gates of a cell together; R rows of a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from manyheads.config import RecurrentConfig
from manyheads.model.attention import AttentionSpec, attend, padding_mask
from manyheads.model.baselines.recurrent_state import RecurrentState
from manyheads.model.encoder_decoder import (
    EncoderDecoder,
    Trace,
    append_layer_maps,
    init_weights,
    project_logits,
)
from manyheads.model.kv_cache import Memory, attend_step
from manyheads.model.layers import Linear
from manyheads.packed import Packed, gather_rows

Implementation = Literal["fused", "plain"]

# ---- the cells: what comes of W_x x + b_x, known beforehand, and of the state before


def rnn_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """h' = tanh(W_x x + W_h h)"""
    (h,) = state
    return [torch.tanh(x_RG + F.linear(h, w_h, b_h))]


def gru_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """The gated recurrent unit: what is forgotten (r), and how much stays as it was (z)."""
    (h,) = state
    r_x, z_x, n_x = x_RG.chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, w_h, b_h).chunk(3, -1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return [(1 - z) * torch.tanh(n_x + r * n_h) + z * h]


def lstm_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """Long short-term memory: gates for what enters (i), stays (f) and is shown (o) of the memory c."""
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


# ---- a layer of them, over packed texts


@dataclass(frozen=True, eq=False)
class TimeSteps:
    """The tokens of a batch in the order of a recurrence: all first tokens, all second ones, and so on.

    Sentences stand by length, the longest first, so that those that are over leave at the end.
    """

    order_T: Tensor  # the place in the batch of each token of this order
    inverse_T: Tensor  # the place in this order of each token of the batch
    batch_sizes: Tensor  # [L] on the host: sentences that have a first token, a second one, ...
    sorted_sentences: Tensor  # those that have any, the longest first

    @classmethod
    def from_packed(cls, text: Packed) -> "TimeSteps":
        by_length = text.lengths.argsort(descending=True, stable=True)
        rank_B = by_length.argsort()
        order = (text.positions * len(text) + rank_B[text.sentence_ids]).argsort()
        sizes = text.positions.bincount().cpu()
        return cls(order, order.argsort(), sizes, by_length[: int(sizes[0]) if len(sizes) else 0])


def time_steps(text: Packed) -> TimeSteps:
    return text.remember(TimeSteps, lambda: TimeSteps.from_packed(text))


def reversed_positions(text: Packed) -> Tensor:
    """The place of each token when every sentence is turned round. [T]"""
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
        """What each token leads to, [T, H], and the states in the end, [B, H] each; `first` is like these.

        In full precision under autocast too: a recurrence adds up what its steps round away.
        """
        with torch.autocast(x_TX.device.type, enabled=False):
            x_TX = x_TX.to(next(self.rnn.parameters()).dtype)
            begun = self.zero_state(x_TX, len(text)) if initial_state is None else initial_state
            if not len(x_TX):
                return x_TX.new_zeros(0, self.num_directions * self.rnn.hidden_size), begun
            return (self.forward_fused if implementation == "fused" else self.forward_reference)(
                x_TX, text, begun
            )

    def zero_state(self, like: Tensor, sentences: int) -> list[Tensor]:
        parts = 2 if self.has_cell_state else 1
        return [like.new_zeros(sentences, self.num_directions * self.rnn.hidden_size) for _ in range(parts)]

    def forward_fused(self, x_TX: Tensor, text: Packed, first: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """torch's own kernels."""
        steps = time_steps(text)
        began = [self.split_directions(one[steps.sorted_sentences]) for one in first]
        ordered = PackedSequence(gather_rows(x_TX, steps.order_T), steps.batch_sizes)
        out, last = self.rnn(ordered, tuple(began) if self.has_cell_state else began[0])
        ended = last if self.has_cell_state else (last,)
        return gather_rows(out.data, steps.inverse_T), [
            before.index_copy(0, steps.sorted_sentences, self.concat_directions(after))
            for before, after in zip(first, ended, strict=True)
        ]

    def split_directions(self, state_BH: Tensor) -> Tensor:
        """[B, H] -> [ways, B, H / ways], as torch has it."""
        return torch.stack(state_BH.chunk(self.num_directions, -1))

    def concat_directions(self, state: Tensor) -> Tensor:
        return torch.cat(tuple(state), -1)

    def forward_reference(
        self, x_TX: Tensor, text: Packed, first: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The definition, step by step; the way back reads every sentence turned round."""
        found = []
        for way, weights in enumerate(self.direction_weights()):
            turn = reversed_positions(text) if way else slice(None)
            began = [one.chunk(self.num_directions, -1)[way] for one in first]
            out_TH, last = self.run_direction(x_TX[turn], text, began, weights)
            found.append((out_TH[turn], last))
        outs, lasts = zip(*found, strict=True)
        return torch.cat(outs, -1), [torch.cat(part, -1) for part in zip(*lasts, strict=True)]

    def direction_weights(self) -> list[tuple[Tensor, ...]]:
        """W_x, W_h, b_x, b_h of each direction."""
        every = tuple(self.rnn.parameters())
        return [every[4 * way : 4 * way + 4] for way in range(self.num_directions)]

    def run_direction(
        self, x_TX: Tensor, text: Packed, first: list[Tensor], weights: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        w_x, w_h, b_x, b_h = weights
        steps = time_steps(text)
        state, outs = [one[steps.sorted_sentences] for one in first], []
        for x_RG in F.linear(x_TX[steps.order_T], w_x, b_x).split(steps.batch_sizes.tolist()):
            going = len(x_RG)
            new = self.cell(x_RG, [one[:going] for one in state], w_h, b_h)
            outs.append(new[0])
            state = [torch.cat((now, old[going:])) for now, old in zip(new, state, strict=True)]
        last = [old.index_copy(0, steps.sorted_sentences, now) for old, now in zip(first, state, strict=True)]
        return torch.cat(outs)[steps.inverse_T], last

    def step(self, x_RX: Tensor, state: list[Tensor]) -> list[Tensor]:
        """One more token of each row; the first of what it gives is h, the output."""
        ((w_x, w_h, b_x, b_h),) = self.direction_weights()
        with torch.autocast(x_RX.device.type, enabled=False):
            return self.cell(F.linear(x_RX.to(w_x.dtype), w_x, b_x), state, w_h, b_h)


# ---- attention as an add-on


class SourceAttention(nn.Module):
    """Where in the source the decoder looks: one head, whose values are the encoder's output itself."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        assert config.attention != "none"
        self.w_q = Linear(config.d_ff, config.d_model)
        self.w_k = Linear(config.d_ff, config.d_model)
        self.energy = nn.Parameter(torch.empty(1, config.d_model)) if config.attention == "additive" else None
        self.score: Literal["scaled-dot", "dot", "additive"] = config.attention

    def forward(self, h_TH: Tensor, memory: Memory, target: Packed, maps: list[Tensor] | None) -> Tensor:
        """What each target token gathers of its source. [T, H]"""
        q_T1K, k_S1K, v_S1H = self.w_q(h_TH)[:, None], *self.keys_and_values(memory)
        gathered = attend(q_T1K, k_S1K, v_S1H.to(k_S1K.dtype), target, memory.source, self.spec(), maps=maps)
        return gathered[:, 0]

    def keys_and_values(self, memory: Memory) -> tuple[Tensor, Tensor]:
        return self.w_k(memory.hidden)[:, None], memory.hidden[:, None]

    def step(self, h_RH: Tensor, state: RecurrentState) -> Tensor:
        """The same for one token of each row. [R, H]"""
        k_B1SK, v_B1SH = (one.transpose(1, 2) for one in state.source)
        seen = padding_mask(state.source_lengths, k_B1SK.shape[2])[:, None, None, :]
        q_R1K = self.w_q(h_RH)[:, None]
        return attend_step(q_R1K, k_B1SK, v_B1SH.to(q_R1K.dtype), seen, self.spec())[:, 0]

    def spec(self) -> AttentionSpec:
        return AttentionSpec(self.score, energy_HK=self.energy)


# ---- the model


@dataclass(frozen=True, eq=False)
class RecurrentMemory(Memory):
    """The encoder's output, and the states that it ended in: of each layer [B, H], once or, with c, twice."""

    final_states: list[list[Tensor]]


class RecurrentModel(EncoderDecoder):
    """As many layers of cells in the encoder as in the decoder."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        width, below = config.d_ff, [config.d_model, *[config.d_ff] * (config.encoder_layers - 1)]
        attends = config.attention != "none"
        self.encoder = nn.ModuleList(RecurrentLayer(config.cell, x, width, bidirectional=True) for x in below)
        self.decoder = nn.ModuleList(
            RecurrentLayer(config.cell, x + (width if attends and number else 0), width)
            for number, x in enumerate(below)
        )
        self.decoder_attention = SourceAttention(config) if attends else None
        self.decoder_output = Linear(width * (2 if attends else 1), config.d_model)
        init_weights(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> RecurrentMemory:
        if trace is not None:
            trace.encoder.clear()
        x_SX = self.embed(source.tokens, self.source_embedding, None, source.positions, source.max_length)
        ended = []
        for number, layer in enumerate(self.encoder):
            out_SH, last = layer(x_SX, source)
            ended.append(last)
            x_SX = self.apply_residual(x_SX, out_SH, number)
        return RecurrentMemory(x_SX, source, ended)

    def apply_residual(self, x: Tensor, out: Tensor, number: int) -> Tensor:
        """What the next layer reads: the output, and above the first layer what went in too (3.1)."""
        out = self.dropout(out)
        return x + out if number and self.config.residuals else out

    def decode(
        self,
        target: Packed,
        memory: RecurrentMemory,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        x_TX = self.embed(target.tokens, self.target_embedding, None, target.positions, target.max_length)
        context = None
        for number, layer in enumerate(self.decoder):
            out_TH, _ = layer(concat_context(x_TX, context), target, memory.final_states[number])
            x_TX = self.apply_residual(x_TX, out_TH, number)
            if self.decoder_attention is not None and context is None:
                maps = append_layer_maps(trace.cross if trace else None)
                context = self.decoder_attention(x_TX, memory, target, maps)
        return self.project_hidden(x_TX, context)

    def project_hidden(self, x: Tensor, context: Tensor | None) -> Tensor:
        return torch.tanh(self.decoder_output(concat_context(x, context)))

    @torch.no_grad()
    def start(self, memory: RecurrentMemory, beam: int = 1) -> RecurrentState:
        past = [part for layer in memory.final_states for part in layer]
        kept = [] if self.decoder_attention is None else self.decoder_attention.keys_and_values(memory)
        return RecurrentState.create(past, list(kept), memory.source, beam, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        state.check_rows(tokens_R)
        x_RX = self.embed(tokens_R, self.target_embedding, None, state.lengths, state.max_length + 1)
        context, past = None, []
        parts = len(state.past) // len(self.decoder)
        for number, layer in enumerate(self.decoder):
            assert isinstance(layer, RecurrentLayer)
            new = layer.step(concat_context(x_RX, context), state.past[number * parts : (number + 1) * parts])
            past += new
            x_RX = self.apply_residual(x_RX, new[0], number)
            if self.decoder_attention is not None and context is None:
                context = self.decoder_attention.step(x_RX, state)
        state.advance(past)
        return project_logits(self.project_hidden(x_RX, context), self.output), state


def concat_context(x: Tensor, context: Tensor | None) -> Tensor:
    return x if context is None else torch.cat((x, context.to(x.dtype)), -1)
