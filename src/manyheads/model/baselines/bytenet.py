"""ByteNet: dilated convolutions in residual blocks, and a decoder that unfolds over the encoder's output.

There is no attention. The encoder's output is a little longer than the source; the decoder reads it column by
column, the t-th beside the t-th token of the target, for as long as the target goes on (nothing where the
columns have ended). Dilations double from block to block, so that log(n) blocks see n tokens.

Shapes: S source tokens, U columns of the sources, T target tokens, B sentences, D = d_model, F = d_ff;
        R rows of a step, P tokens that a convolution remembers of a row.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ModelConfig
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.recurrent_state import RowState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, initialize, project
from manyheads.model.kv_cache import Memory
from manyheads.model.layers import Dropout, LayerNorm
from manyheads.packed import Packed

COLUMNS, TOKENS = 6, 5  # of the source: 1.2 columns a token, as its authors have it for English and German


def dilations(layers: int, widest: int) -> list[int]:
    """1, 2, 4, ... up to the widest, and again."""
    powers = [1 << number for number in range(widest.bit_length())]
    return [powers[number % len(powers)] for number in range(layers)]


class Block(nn.Module):
    """x + Dropout(W ReLU(LN(conv(ReLU(LN(W ReLU(LN(x))))))): narrow, over several tokens, and wide again."""

    def __init__(self, config: ModelConfig, dilation: int, *, causal: bool):
        super().__init__()
        wide, narrow = config.d_model, config.d_ff
        self.norms = nn.ModuleList(LayerNorm(width) for width in (wide, narrow, narrow))
        self.inward = Convolution(wide, narrow, 1, spread=2)
        self.across = Convolution(narrow, narrow, config.kernel, dilation=dilation, causal=causal, spread=2)
        self.outward = Convolution(narrow, wide, 1, spread=2)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_TD: Tensor, text: Packed) -> Tensor:
        return self.around(x_TD, lambda h_TF: self.across(h_TF, text))

    def step(self, x_RD: Tensor, past_RPF: Tensor) -> tuple[Tensor, Tensor]:
        after = []

        def across(h_RF: Tensor) -> Tensor:
            out, past = self.across.step(h_RF, past_RPF)
            after.append(past)
            return out

        return self.around(x_RD, across), after[0]

    def around(self, x: Tensor, across: Callable[[Tensor], Tensor]) -> Tensor:
        before, between, behind = self.norms
        narrow = self.inward.each(F.relu(before(x)))
        seen = across(F.relu(between(narrow)))
        out: Tensor = x + self.dropout(self.outward.each(F.relu(behind(seen))))
        return out


def unfolded_length(tokens: Any) -> Any:
    """Columns of so many tokens, rounded up; of a number, or of an array or tensor of them."""
    return (tokens * COLUMNS + TOKENS - 1) // TOKENS


def unfolded(source: Packed) -> Packed:
    """The columns that the decoder reads: as many as tokens, and a fifth more."""

    def made() -> Packed:
        offsets = F.pad(unfolded_length(source.lengths).cumsum(0), (1, 0)).int()
        longest = unfolded_length(source.longest)
        return Packed(source.tokens.new_zeros(int(offsets[-1])), offsets, longest)

    return source.remember(unfolded, made)


def carried(values: Tensor, source: Packed, target: Packed) -> Tensor:
    """What stands at the same place of each sentence in another text; zeros where that has ended."""
    padded, room = source.pad(values), max(1, target.longest)
    return target.unpad(F.pad(padded, (0, 0, 0, max(0, room - padded.shape[1])))[:, :room])


class ByteNet(EncoderDecoder):
    """As many blocks in the encoder as in the decoder, which stands on top of it."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        rates = dilations(config.layers, config.dilation)
        self.encoder = nn.ModuleList(Block(config, rate, causal=False) for rate in rates)
        self.encoder_norm = LayerNorm(config.d_model)
        self.decoder_input = Convolution(2 * config.d_model, config.d_model, 1)
        self.decoder = nn.ModuleList(Block(config, rate, causal=True) for rate in rates)
        self.decoder_norm = LayerNorm(config.d_model)
        initialize(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, losses: list[Tensor] | None = None
    ) -> Memory:
        if trace is not None:
            trace.encoder.clear()
        embedded_SD = self.embed(source.tokens, self.source_embedding, None, source.positions, source.longest)
        columns = unfolded(source)
        x_UD = carried(embedded_SD, source, columns)
        for block in self.encoder:
            x_UD = block(x_UD, columns)
        return Memory(self.encoder_norm(x_UD), columns)

    def decode(
        self, target: Packed, memory: Memory, trace: Trace | None = None, losses: list[Tensor] | None = None
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        embedded_TD = self.embed(target.tokens, self.target_embedding, None, target.positions, target.longest)
        x_TD = self.read(embedded_TD, carried(memory.hidden, memory.source, target))
        for block in self.decoder:
            x_TD = block(x_TD, target)
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def read(self, embedded: Tensor, column: Tensor) -> Tensor:
        return self.decoder_input.each(torch.cat((embedded, column.to(embedded.dtype)), -1))

    @torch.no_grad()
    def start(self, memory: Memory, width: int = 1) -> RowState:
        rates = dilations(self.config.layers, self.config.dilation)
        slots = [(self.config.kernel - 1) * rate for rate in rates]
        past = [memory.hidden.new_zeros(len(memory.source), each, self.config.d_ff) for each in slots]
        return RowState.begin(past, [memory.hidden], memory.source, width, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RowState) -> tuple[Tensor, RowState]:
        state.check(tokens_R)
        embedded_RD = self.embed(tokens_R, self.target_embedding, None, state.lengths, state.longest + 1)
        x_RD, past = self.read(embedded_RD, columns_now(state)), []
        block: Block
        for block, before in zip(self.decoder, state.past, strict=True):  # type: ignore[assignment]
            x_RD, after = block.step(x_RD, before)
            past.append(after)
        state.move_on(past)
        return project(self.decoder_norm(x_RD), self.output), state


def columns_now(state: RowState) -> Tensor:
    """The column that each row reads next, or zeros. [R, D]"""
    (columns_BUD,) = state.source
    sentence_R = torch.arange(len(state), device=state.lengths.device).repeat_interleave(state.width)
    found_RD = columns_BUD[sentence_R, state.lengths.clamp(max=columns_BUD.shape[1] - 1)]
    over_R = state.lengths >= state.source_lengths[sentence_R]
    return found_RD.masked_fill(over_R[:, None], 0)
