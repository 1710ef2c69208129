"""ConvS2S: convolutions with gated linear units in encoder and decoder, and attention in each decoder layer.

A layer is x + GLU(conv(x)), where a gated linear unit lets one half of the numbers through as far as the
other half opens it. Every sum of two is scaled by sqrt(0.5), so that its variance stays; weights are
normalized; positions are learned.

Shapes: S source tokens, T target tokens, D = d_model, C = d_ff channels; R rows of a step, P tokens that a
        convolution remembers of a row.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ModelConfig
from manyheads.model.attention import Rule, attend, filled
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.recurrent_state import RowState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, initialize, look_up, new_maps, project
from manyheads.model.kv_cache import Memory, attend_rows
from manyheads.model.layers import Dropout
from manyheads.model.positions import LearnedPositions, Sinusoids, positional_encoding
from manyheads.packed import Packed


def half(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two, with the variance of one."""
    return (a + b) * math.sqrt(0.5)


def linear(inputs: int, outputs: int) -> Convolution:
    """x W + b with normalized weights: a convolution that sees one token."""
    return Convolution(inputs, outputs, 1, normalizes=True)


class GatedConvolution(nn.Module):
    """GLU(conv(Dropout(x)))"""

    def __init__(self, config: ModelConfig, *, causal: bool):
        super().__init__()
        self.dropout = Dropout(config.dropout)
        spread = 4 * (1 - config.dropout)  # of which the gates leave a quarter, and dropout adds its part
        self.convolution = Convolution(
            config.d_ff, 2 * config.d_ff, config.kernel, causal=causal, normalizes=True, spread=spread
        )

    def forward(self, x_TC: Tensor, text: Packed) -> Tensor:
        return F.glu(self.convolution(self.dropout(x_TC), text))

    def step(self, x_RC: Tensor, past_RPC: Tensor) -> tuple[Tensor, Tensor]:
        out, past_RPC = self.convolution.step(self.dropout(x_RC), past_RPC)
        return F.glu(out), past_RPC


class AttendingLayer(nn.Module):
    """A decoder layer: a gated convolution, and what its output finds in the source."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        assert config.attention in ("dot", "scaled-dot")
        self.gated = GatedConvolution(config, causal=True)
        self.w_q = linear(config.d_ff, config.d_model)
        self.w_o = linear(config.d_model, config.d_ff)
        self.rule = Rule(config.attention)

    def query(self, h_TC: Tensor, target_TD: Tensor) -> Tensor:
        """One head. The token that was read has its say beside what the convolution made of it. [T, 1, D]"""
        return half(self.w_q.each(h_TC), target_TD)[:, None]

    def add(self, x_TC: Tensor, h_TC: Tensor, gathered_T1D: Tensor, source_lengths_T: Tensor) -> Tensor:
        """A mean of m vectors has the m-th part of their variance; sqrt(m) brings it back."""
        context_TD = gathered_T1D[:, 0] * source_lengths_T[:, None].to(gathered_T1D.dtype).sqrt()
        return half(x_TC, half(h_TC, self.w_o.each(context_TD)))


@dataclass(frozen=True, eq=False)
class ConvolutionalMemory(Memory):
    """The encoder's output, which is matched, and the same with the embeddings added, which is gathered."""

    values: Tensor  # [S, D]


class Convolutional(EncoderDecoder):
    """As many layers in the encoder as in the decoder, all of one width."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.source_positions = positional_encoding(config)
        self.target_positions = positional_encoding(config)
        self.encoder_input = linear(config.d_model, config.d_ff)
        self.encoder = nn.ModuleList(GatedConvolution(config, causal=False) for _ in range(config.layers))
        self.encoder_output = linear(config.d_ff, config.d_model)
        self.decoder_input = linear(config.d_model, config.d_ff)
        self.decoder = nn.ModuleList(AttendingLayer(config) for _ in range(config.layers))
        self.decoder_output = linear(config.d_ff, config.d_model)
        initialize(self)

    def embed(
        self,
        tokens_T: Tensor,
        embedding: nn.Embedding,
        encoding: Sinusoids | LearnedPositions | None,
        positions_T: Tensor,
        longest: int,
    ) -> Tensor:
        """As small as they are stored, words and positions alike: all that follows keeps their variance, and
        dot products of large vectors would begin with one sharp choice."""
        x_TD = look_up(tokens_T, embedding)
        if encoding is not None:
            scale = self.config.d_model**-0.5 if isinstance(encoding, Sinusoids) else 1.0
            x_TD = x_TD + scale * encoding(positions_T, longest, x_TD.dtype)
        out: Tensor = self.dropout(x_TD)
        return out

    def encode(
        self, source: Packed, trace: Trace | None = None, losses: list[Tensor] | None = None
    ) -> ConvolutionalMemory:
        if trace is not None:
            trace.encoder.clear()
        embedded_SD = self.embed(
            source.tokens, self.source_embedding, self.source_positions, source.positions, source.longest
        )
        x_SC = self.encoder_input.each(embedded_SD)
        for layer in self.encoder:
            x_SC = half(x_SC, layer(x_SC, source))
        out_SD = self.encoder_output.each(x_SC)
        return ConvolutionalMemory(out_SD, source, half(out_SD, embedded_SD))

    def decode(
        self,
        target: Packed,
        memory: ConvolutionalMemory,
        trace: Trace | None = None,
        losses: list[Tensor] | None = None,
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        embedded_TD = self.embed(
            target.tokens, self.target_embedding, self.target_positions, target.positions, target.longest
        )
        source_lengths_T = memory.source.lengths[target.sentence_of]
        k_S1D, v_S1D = memory.hidden[:, None], memory.values[:, None].to(memory.hidden.dtype)
        x_TC = self.decoder_input.each(embedded_TD)
        layer: AttendingLayer
        for layer in self.decoder:  # type: ignore[assignment]
            h_TC = layer.gated(x_TC, target)
            q_T1D = layer.query(h_TC, embedded_TD).to(k_S1D.dtype)
            maps = new_maps(trace.cross if trace else None)
            gathered = attend(q_T1D, k_S1D, v_S1D, target, memory.source, layer.rule, maps=maps)
            x_TC = layer.add(x_TC, h_TC, gathered, source_lengths_T)
        return self.to_output(x_TC)

    def to_output(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.decoder_output.each(x))
        return out

    @torch.no_grad()
    def start(self, memory: ConvolutionalMemory, width: int = 1) -> RowState:
        slots = (self.config.kernel - 1, self.config.d_ff)
        past = [memory.hidden.new_zeros(len(memory.source), *slots) for _ in self.decoder]
        source = [memory.hidden[:, None], memory.values[:, None].to(memory.hidden.dtype)]
        return RowState.begin(past, source, memory.source, width, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RowState) -> tuple[Tensor, RowState]:
        state.check(tokens_R)
        embedded_RD = self.embed(
            tokens_R, self.target_embedding, self.target_positions, state.lengths, state.longest + 1
        )
        k_B1SD, v_B1SD = (one.transpose(1, 2) for one in state.source)
        seen = filled(state.source_lengths, k_B1SD.shape[2])[:, None, None, :]
        source_lengths_R = state.source_lengths.repeat_interleave(state.width)
        x_RC, past = self.decoder_input.each(embedded_RD), []
        layer: AttendingLayer
        for layer, before in zip(self.decoder, state.past, strict=True):  # type: ignore[assignment]
            h_RC, after = layer.gated.step(x_RC, before)
            past.append(after)
            q_R1D = layer.query(h_RC, embedded_RD).to(k_B1SD.dtype)
            gathered = attend_rows(q_R1D, k_B1SD, v_B1SD, seen, layer.rule)
            x_RC = layer.add(x_RC, h_RC, gathered, source_lengths_R)
        state.move_on(past)
        return project(self.to_output(x_RC), self.output), state
