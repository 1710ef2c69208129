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

from manyheads.config import ModelConfig
from manyheads.model.attention import Rule, attend, filled
from manyheads.model.baselines.recurrent_state import RowState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, initialize, new_maps, project
from manyheads.model.kv_cache import Memory, attend_rows
from manyheads.model.layers import Linear
from manyheads.packed import Packed, taken

Path = Literal["fused", "plain"]

# ---- the cells: what comes of W_x x + b_x, known beforehand, and of the state before


def plain_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """h' = tanh(W_x x + W_h h)"""
    (h,) = state
    return [torch.tanh(x_RG + F.linear(h, w_h, b_h))]


def gated_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """The gated recurrent unit: what is forgotten (r), and how much stays as it was (z)."""
    (h,) = state
    r_x, z_x, n_x = x_RG.chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, w_h, b_h).chunk(3, -1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return [(1 - z) * torch.tanh(n_x + r * n_h) + z * h]


def long_short_term_cell(x_RG: Tensor, state: list[Tensor], w_h: Tensor, b_h: Tensor) -> list[Tensor]:
    """Long short-term memory: gates for what enters (i), stays (f) and is shown (o) of the memory c."""
    h, c = state
    i, f, g, o = (x_RG + F.linear(h, w_h, b_h)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


Cell = Callable[[Tensor, list[Tensor], Tensor, Tensor], list[Tensor]]
CELLS: dict[str, tuple[Cell, Callable[..., nn.RNNBase]]] = {
    "rnn": (plain_cell, nn.RNN),
    "gru": (gated_cell, nn.GRU),
    "lstm": (long_short_term_cell, nn.LSTM),
}


# ---- a layer of them, over packed texts


@dataclass(frozen=True, eq=False)
class TimeSteps:
    """The tokens of a batch in the order of a recurrence: all first tokens, all second ones, and so on.

    Sentences stand by length, the longest first, so that those that are over leave at the end.
    """

    order_T: Tensor  # the place in the batch of each token of this order
    back_T: Tensor  # the place in this order of each token of the batch
    sizes: Tensor  # [L] on the host: sentences that have a first token, a second one, ...
    sentences: Tensor  # those that have any, the longest first

    @classmethod
    def of(cls, text: Packed) -> "TimeSteps":
        by_length = text.lengths.argsort(descending=True, stable=True)
        rank_B = by_length.argsort()
        order = (text.positions * len(text) + rank_B[text.sentence_of]).argsort()
        sizes = text.positions.bincount().cpu()
        return cls(order, order.argsort(), sizes, by_length[: int(sizes[0]) if len(sizes) else 0])


def time_steps(text: Packed) -> TimeSteps:
    return text.remember(TimeSteps, lambda: TimeSteps.of(text))


def backwards(text: Packed) -> Tensor:
    """The place of each token when every sentence is turned round. [T]"""
    last_T = text.offsets[1:].long()[text.sentence_of] - 1
    return last_T - text.positions


class Recurrence(nn.Module):
    """One layer of cells, in one direction or in both."""

    def __init__(self, cell: str, inputs: int, width: int, *, both_ways: bool = False):
        super().__init__()
        self.cell, kernel = CELLS[cell]
        self.ways = 2 if both_ways else 1
        self.has_memory = cell == "lstm"  # a state of two parts, h and c
        self.weights: nn.RNNBase = kernel(inputs, width // self.ways, bidirectional=both_ways)

    def forward(
        self, x_TX: Tensor, text: Packed, first: list[Tensor] | None = None, path: Path = "fused"
    ) -> tuple[Tensor, list[Tensor]]:
        """What each token leads to, [T, H], and the states in the end, [B, H] each; `first` is like these.

        In full precision under autocast too: a recurrence adds up what its steps round away.
        """
        with torch.autocast(x_TX.device.type, enabled=False):
            x_TX = x_TX.to(next(self.weights.parameters()).dtype)
            begun = self.nothing_yet(x_TX, len(text)) if first is None else first
            if not len(x_TX):
                return x_TX.new_zeros(0, self.ways * self.weights.hidden_size), begun
            return (self.fused if path == "fused" else self.plain)(x_TX, text, begun)

    def nothing_yet(self, like: Tensor, sentences: int) -> list[Tensor]:
        parts = 2 if self.has_memory else 1
        return [like.new_zeros(sentences, self.ways * self.weights.hidden_size) for _ in range(parts)]

    def fused(self, x_TX: Tensor, text: Packed, first: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """torch's own kernels."""
        steps = time_steps(text)
        began = [self.apart(one[steps.sentences]) for one in first]
        ordered = PackedSequence(taken(x_TX, steps.order_T), steps.sizes)
        out, last = self.weights(ordered, tuple(began) if self.has_memory else began[0])
        ended = last if self.has_memory else (last,)
        return taken(out.data, steps.back_T), [
            before.index_copy(0, steps.sentences, self.together(after))
            for before, after in zip(first, ended, strict=True)
        ]

    def apart(self, state_BH: Tensor) -> Tensor:
        """[B, H] -> [ways, B, H / ways], as torch has it."""
        return torch.stack(state_BH.chunk(self.ways, -1))

    def together(self, state: Tensor) -> Tensor:
        return torch.cat(tuple(state), -1)

    def plain(self, x_TX: Tensor, text: Packed, first: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The definition, step by step; the way back reads every sentence turned round."""
        found = []
        for way, weights in enumerate(self.of_ways()):
            turn = backwards(text) if way else slice(None)
            began = [one.chunk(self.ways, -1)[way] for one in first]
            out_TH, last = self.one_way(x_TX[turn], text, began, weights)
            found.append((out_TH[turn], last))
        outs, lasts = zip(*found, strict=True)
        return torch.cat(outs, -1), [torch.cat(part, -1) for part in zip(*lasts, strict=True)]

    def of_ways(self) -> list[tuple[Tensor, ...]]:
        """W_x, W_h, b_x, b_h of each direction."""
        every = tuple(self.weights.parameters())
        return [every[4 * way : 4 * way + 4] for way in range(self.ways)]

    def one_way(
        self, x_TX: Tensor, text: Packed, first: list[Tensor], weights: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        w_x, w_h, b_x, b_h = weights
        steps = time_steps(text)
        state, outs = [one[steps.sentences] for one in first], []
        for x_RG in F.linear(x_TX[steps.order_T], w_x, b_x).split(steps.sizes.tolist()):
            going = len(x_RG)
            new = self.cell(x_RG, [one[:going] for one in state], w_h, b_h)
            outs.append(new[0])
            state = [torch.cat((now, old[going:])) for now, old in zip(new, state, strict=True)]
        last = [old.index_copy(0, steps.sentences, now) for old, now in zip(first, state, strict=True)]
        return torch.cat(outs)[steps.back_T], last

    def step(self, x_RX: Tensor, state: list[Tensor]) -> list[Tensor]:
        """One more token of each row; the first of what it gives is h, the output."""
        ((w_x, w_h, b_x, b_h),) = self.of_ways()
        with torch.autocast(x_RX.device.type, enabled=False):
            return self.cell(F.linear(x_RX.to(w_x.dtype), w_x, b_x), state, w_h, b_h)


# ---- attention as an add-on


class SourceAttention(nn.Module):
    """Where in the source the decoder looks: one head, whose values are the encoder's output itself."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        assert config.attention != "none"
        self.w_q = Linear(config.d_ff, config.d_model)
        self.w_k = Linear(config.d_ff, config.d_model)
        self.energy = nn.Parameter(torch.empty(1, config.d_model)) if config.attention == "additive" else None
        self.kind: Literal["scaled-dot", "dot", "additive"] = config.attention

    def forward(self, h_TH: Tensor, memory: Memory, target: Packed, maps: list[Tensor] | None) -> Tensor:
        """What each target token gathers of its source. [T, H]"""
        q_T1K, k_S1K, v_S1H = self.w_q(h_TH)[:, None], *self.keys_and_values(memory)
        gathered = attend(q_T1K, k_S1K, v_S1H.to(k_S1K.dtype), target, memory.source, self.rule(), maps=maps)
        return gathered[:, 0]

    def keys_and_values(self, memory: Memory) -> tuple[Tensor, Tensor]:
        return self.w_k(memory.hidden)[:, None], memory.hidden[:, None]

    def step(self, h_RH: Tensor, state: RowState) -> Tensor:
        """The same for one token of each row. [R, H]"""
        k_B1SK, v_B1SH = (one.transpose(1, 2) for one in state.source)
        seen = filled(state.source_lengths, k_B1SK.shape[2])[:, None, None, :]
        q_R1K = self.w_q(h_RH)[:, None]
        return attend_rows(q_R1K, k_B1SK, v_B1SH.to(q_R1K.dtype), seen, self.rule())[:, 0]

    def rule(self) -> Rule:
        return Rule(self.kind, energy_HK=self.energy)


# ---- the model


@dataclass(frozen=True, eq=False)
class RecurrentMemory(Memory):
    """The encoder's output, and the states that it ended in: of each layer [B, H], once or, with c, twice."""

    ended: list[list[Tensor]]


class Recurrent(EncoderDecoder):
    """As many layers of cells in the encoder as in the decoder."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        width, below = config.d_ff, [config.d_model, *[config.d_ff] * (config.layers - 1)]
        attends = config.attention != "none"
        self.encoder = nn.ModuleList(Recurrence(config.cell, x, width, both_ways=True) for x in below)
        self.decoder = nn.ModuleList(
            Recurrence(config.cell, x + (width if attends and number else 0), width)
            for number, x in enumerate(below)
        )
        self.decoder_attention = SourceAttention(config) if attends else None
        self.decoder_output = Linear(width * (2 if attends else 1), config.d_model)
        initialize(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, losses: list[Tensor] | None = None
    ) -> RecurrentMemory:
        if trace is not None:
            trace.encoder.clear()
        x_SX = self.embed(source.tokens, self.source_embedding, None, source.positions, source.longest)
        ended = []
        for number, layer in enumerate(self.encoder):
            out_SH, last = layer(x_SX, source)
            ended.append(last)
            x_SX = self.above(x_SX, out_SH, number)
        return RecurrentMemory(x_SX, source, ended)

    def above(self, x: Tensor, out: Tensor, number: int) -> Tensor:
        """What the next layer reads: the output, and above the first layer what went in too (3.1)."""
        out = self.dropout(out)
        return x + out if number and self.config.residuals else out

    def decode(
        self,
        target: Packed,
        memory: RecurrentMemory,
        trace: Trace | None = None,
        losses: list[Tensor] | None = None,
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        x_TX = self.embed(target.tokens, self.target_embedding, None, target.positions, target.longest)
        context = None
        for number, layer in enumerate(self.decoder):
            out_TH, _ = layer(beside(x_TX, context), target, memory.ended[number])
            x_TX = self.above(x_TX, out_TH, number)
            if self.decoder_attention is not None and context is None:
                maps = new_maps(trace.cross if trace else None)
                context = self.decoder_attention(x_TX, memory, target, maps)
        return self.to_output(x_TX, context)

    def to_output(self, x: Tensor, context: Tensor | None) -> Tensor:
        return torch.tanh(self.decoder_output(beside(x, context)))

    @torch.no_grad()
    def start(self, memory: RecurrentMemory, width: int = 1) -> RowState:
        past = [part for layer in memory.ended for part in layer]
        kept = [] if self.decoder_attention is None else self.decoder_attention.keys_and_values(memory)
        return RowState.begin(past, list(kept), memory.source, width, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RowState) -> tuple[Tensor, RowState]:
        state.check(tokens_R)
        x_RX = self.embed(tokens_R, self.target_embedding, None, state.lengths, state.longest + 1)
        context, past = None, []
        parts = len(state.past) // len(self.decoder)
        for number, layer in enumerate(self.decoder):
            assert isinstance(layer, Recurrence)
            new = layer.step(beside(x_RX, context), state.past[number * parts : (number + 1) * parts])
            past += new
            x_RX = self.above(x_RX, new[0], number)
            if self.decoder_attention is not None and context is None:
                context = self.decoder_attention.step(x_RX, state)
        state.move_on(past)
        return project(self.to_output(x_RX, context), self.output), state


def beside(x: Tensor, context: Tensor | None) -> Tensor:
    return x if context is None else torch.cat((x, context.to(x.dtype)), -1)
