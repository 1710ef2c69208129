"""ByteNet: dilated convolutions in residual blocks, and a decoder that unfolds over the encoder's output.

There is no attention. The encoder's output is a fifth longer than the source. The decoder reads its t-th
column beside the t-th token of the target, zeros where the columns have ended. Dilations double from block to
block, so that log(n) blocks see n tokens.

Shapes: S source tokens, U columns of the sources, T target tokens, B sentences, D = d_model, F = d_ff;
        R rows of a step, P past tokens that a convolution needs of a row.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ByteNetConfig
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.recurrent_state import RecurrentState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace
from manyheads.model.initialization import init_weights
from manyheads.model.kv_cache import Memory
from manyheads.model.layers import Dropout, LayerNorm
from manyheads.ops.batch_cache import cached_for_batch
from manyheads.ops.linear import project_logits
from manyheads.packed import Packed

COLUMNS, TOKENS = 6, 5  # 1.2 columns per source token, as its authors have it for English and German


def dilation_rates(layers: int, max_dilation: int) -> list[int]:
    """Return the dilation of each layer: 1, 2, 4, ... up to the maximum, and again."""
    powers = [1 << exponent for exponent in range(max_dilation.bit_length())]
    return [powers[layer % len(powers)] for layer in range(layers)]


class ByteNetBlock(nn.Module):
    """x + Dropout(W ReLU(LN(conv(ReLU(LN(W ReLU(LN(x)))))))"""

    def __init__(self, config: ByteNetConfig, dilation: int, *, causal: bool):
        super().__init__()
        wide, narrow = config.d_model, config.d_ff
        self.norms = nn.ModuleList(LayerNorm(width) for width in (wide, narrow, narrow))
        self.reduce = Convolution(wide, narrow, 1, init_variance=2)
        self.dilated = Convolution(
            narrow, narrow, config.kernel_size, dilation=dilation, causal=causal, init_variance=2
        )
        self.expand = Convolution(narrow, wide, 1, init_variance=2)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_TD: Tensor, text: Packed) -> Tensor:
        return self.apply_block(x_TD, lambda h_TF: self.dilated(h_TF, text))

    def step(self, x_RD: Tensor, past_RPF: Tensor) -> tuple[Tensor, Tensor]:
        """Read one token of each row of a causal block; return its output and the new past."""
        new_past = []

        def dilated_step(h_RF: Tensor) -> Tensor:
            out, past = self.dilated.step(h_RF, past_RPF)
            new_past.append(past)
            return out

        return self.apply_block(x_RD, dilated_step), new_past[0]

    def apply_block(self, x: Tensor, dilated: Callable[[Tensor], Tensor]) -> Tensor:
        norm_1, norm_2, norm_3 = self.norms
        reduced = self.reduce.pointwise(F.relu(norm_1(x)))
        mixed = dilated(F.relu(norm_2(reduced)))
        out: Tensor = x + self.dropout(self.expand.pointwise(F.relu(norm_3(mixed))))
        return out


def unfold_length(tokens: Any) -> Any:
    """Return the number of columns for a number of tokens, or for an array or tensor of numbers."""
    return (tokens * COLUMNS + TOKENS - 1) // TOKENS


def unfold_source(source: Packed) -> Packed:
    """Return the layout of the columns that the decoder reads: a fifth more than the tokens."""

    def compute() -> Packed:
        offsets = F.pad(unfold_length(source.lengths).cumsum(0), (1, 0)).int()
        max_length = unfold_length(source.max_length)
        return Packed(source.tokens.new_zeros(int(offsets[-1])), offsets, max_length)

    return cached_for_batch(source, unfold_source, compute)


def align_to_target(values: Tensor, source: Packed, target: Packed) -> Tensor:
    """Return for each target token the value at its position in the source, zeros beyond the end. [T, D]"""
    padded, length = source.pad(values), max(1, target.max_length)
    return target.unpad(F.pad(padded, (0, 0, 0, max(0, length - padded.shape[1])))[:, :length])


class ByteNet(EncoderDecoder):
    """A stack of residual blocks as the encoder, and another on top of it as the decoder."""

    config: ByteNetConfig

    def __init__(self, config: ByteNetConfig):
        super().__init__(config)
        encoder_rates = dilation_rates(config.encoder_layers, config.dilation)
        decoder_rates = dilation_rates(config.decoder_layers, config.dilation)
        self.encoder = nn.ModuleList(ByteNetBlock(config, rate, causal=False) for rate in encoder_rates)
        self.encoder_norm = LayerNorm(config.d_model)
        self.decoder_input = Convolution(2 * config.d_model, config.d_model, 1)
        self.decoder = nn.ModuleList(ByteNetBlock(config, rate, causal=True) for rate in decoder_rates)
        self.decoder_norm = LayerNorm(config.d_model)
        init_weights(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Memory:
        if trace is not None:
            trace.encoder.clear()
        embedded_SD = self.embed(
            source.tokens, self.source_embedding, None, source.positions, source.max_length
        )
        columns = unfold_source(source)
        x_UD = align_to_target(embedded_SD, source, columns)
        for block in self.encoder:
            x_UD = block(x_UD, columns)
        return Memory(self.encoder_norm(x_UD), columns)

    def decode(
        self,
        target: Packed,
        memory: Memory,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        embedded_TD = self.embed(
            target.tokens, self.target_embedding, None, target.positions, target.max_length
        )
        x_TD = self.combine_inputs(embedded_TD, align_to_target(memory.hidden, memory.source, target))
        for block in self.decoder:
            x_TD = block(x_TD, target)
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def combine_inputs(self, embedded: Tensor, column: Tensor) -> Tensor:
        return self.decoder_input.pointwise(torch.cat((embedded, column.to(embedded.dtype)), -1))

    @torch.no_grad()
    def start(self, memory: Memory, beam: int = 1) -> RecurrentState:
        rates = dilation_rates(self.config.decoder_layers, self.config.dilation)
        lengths = [(self.config.kernel_size - 1) * rate for rate in rates]
        past = [memory.hidden.new_zeros(len(memory.source), length, self.config.d_ff) for length in lengths]
        return RecurrentState.create(past, [memory.hidden], memory.source, beam, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        state.check_rows(tokens_R)
        embedded_RD = self.embed(tokens_R, self.target_embedding, None, state.lengths, state.max_length + 1)
        x_RD, past = self.combine_inputs(embedded_RD, current_columns(state)), []
        block: ByteNetBlock
        for block, old in zip(self.decoder, state.past, strict=True):  # type: ignore[assignment]
            x_RD, new = block.step(x_RD, old)
            past.append(new)
        state.advance(past)
        return project_logits(self.decoder_norm(x_RD), self.output), state


def current_columns(state: RecurrentState) -> Tensor:
    """Return the column that each row reads next, zeros after the last. [R, D]"""
    (columns_BUD,) = state.source
    sentence_R = torch.arange(len(state), device=state.lengths.device).repeat_interleave(state.beam)
    column_RD = columns_BUD[sentence_R, state.lengths.clamp(max=columns_BUD.shape[1] - 1)]
    ended_R = state.lengths >= state.source_lengths[sentence_R]
    return column_RD.masked_fill(ended_R[:, None], 0)
