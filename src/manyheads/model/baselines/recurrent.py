"""Encoder and decoder of recurrent cells, with attention or without.

The starting point of the paper's introduction. The encoder reads each sentence in both directions; the
decoder starts from its final state. The first decoder layer attends to the source (additive attention, or dot
products), and the result goes to every layer above and to the output. So a step does not wait for the
attention of the step before it, and only the recurrence itself runs token by token.

Shapes: S source tokens, T target tokens, B sentences, D = d_model, X features into a layer, H = d_ff out of
        it; R rows of a step.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from manyheads.config import RecurrentConfig
from manyheads.model.baselines.recurrent_layer import RecurrentLayer
from manyheads.model.baselines.recurrent_state import RecurrentState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, append_layer_maps
from manyheads.model.initialization import init_weights
from manyheads.model.kv_cache import Memory, attend_step
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec, padding_mask
from manyheads.ops.linear import Linear, project_logits
from manyheads.packed import Packed


class SourceAttention(nn.Module):
    """Attention over the source: one head, whose values are the encoder's output itself."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        assert config.attention != "none"
        self.w_q = Linear(config.d_ff, config.d_model)
        self.w_k = Linear(config.d_ff, config.d_model)
        self.energy = nn.Parameter(torch.empty(1, config.d_model)) if config.attention == "additive" else None
        self.score: Literal["scaled-dot", "dot", "additive"] = config.attention

    def forward(self, h_TH: Tensor, memory: Memory, target: Packed, maps: list[Tensor] | None) -> Tensor:
        """Return the attention of each target token over its source. [T, H]"""
        q_T1K, k_S1K, v_S1H = self.w_q(h_TH)[:, None], *self.keys_and_values(memory)
        attended = attend(q_T1K, k_S1K, v_S1H.to(k_S1K.dtype), target, memory.source, self.spec(), maps=maps)
        return attended[:, 0]

    def keys_and_values(self, memory: Memory) -> tuple[Tensor, Tensor]:
        return self.w_k(memory.hidden)[:, None], memory.hidden[:, None]

    def step(self, h_RH: Tensor, state: RecurrentState) -> Tensor:
        """Return the same for one token of each row. [R, H]"""
        k_B1SK, v_B1SH = (x.transpose(1, 2) for x in state.source)
        mask = padding_mask(state.source_lengths, k_B1SK.shape[2])[:, None, None, :]
        q_R1K = self.w_q(h_RH)[:, None]
        return attend_step(q_R1K, k_B1SK, v_B1SH.to(q_R1K.dtype), mask, self.spec())[:, 0]

    def spec(self) -> AttentionSpec:
        return AttentionSpec(self.score, energy_HK=self.energy)


@dataclass(frozen=True, eq=False)
class RecurrentMemory(Memory):
    """The encoder's output, and the final state of each layer: h and, of an LSTM, c. [B, H] each"""

    final_states: list[list[Tensor]]


class RecurrentModel(EncoderDecoder):
    """A bidirectional recurrent encoder and a recurrent decoder."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        width, inputs = config.d_ff, [config.d_model, *[config.d_ff] * (config.encoder_layers - 1)]
        has_attention = config.attention != "none"
        self.encoder = nn.ModuleList(
            RecurrentLayer(config.cell, x, width, bidirectional=True) for x in inputs
        )
        self.decoder = nn.ModuleList(
            RecurrentLayer(config.cell, x + (width if has_attention and index else 0), width)
            for index, x in enumerate(inputs)
        )
        self.decoder_attention = SourceAttention(config) if has_attention else None
        self.decoder_output = Linear(width * (2 if has_attention else 1), config.d_model)
        init_weights(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> RecurrentMemory:
        if trace is not None:
            trace.encoder.clear()
        x_SX = self.embed(source.tokens, self.source_embedding, None, source.positions, source.max_length)
        final_states = []
        for index, layer in enumerate(self.encoder):
            out_SH, final_state = layer(x_SX, source)
            final_states.append(final_state)
            x_SX = self.apply_residual(x_SX, out_SH, index)
        return RecurrentMemory(x_SX, source, final_states)

    def apply_residual(self, x: Tensor, out: Tensor, index: int) -> Tensor:
        """Return the input of the next layer: the output, with a residual above the first layer."""
        out = self.dropout(out)
        return x + out if index and self.config.residuals else out

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
        for index, layer in enumerate(self.decoder):
            out_TH, _ = layer(concat_context(x_TX, context), target, memory.final_states[index])
            x_TX = self.apply_residual(x_TX, out_TH, index)
            if self.decoder_attention is not None and context is None:
                maps = append_layer_maps(trace.cross if trace else None)
                context = self.decoder_attention(x_TX, memory, target, maps)
        return self.project_hidden(x_TX, context)

    def project_hidden(self, x: Tensor, context: Tensor | None) -> Tensor:
        return torch.tanh(self.decoder_output(concat_context(x, context)))

    @torch.no_grad()
    def start(self, memory: RecurrentMemory, beam: int = 1) -> RecurrentState:
        past = [part for layer in memory.final_states for part in layer]
        keys_values = [] if self.decoder_attention is None else self.decoder_attention.keys_and_values(memory)
        return RecurrentState.create(past, list(keys_values), memory.source, beam, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        state.check_rows(tokens_R)
        x_RX = self.embed(tokens_R, self.target_embedding, None, state.lengths, state.max_length + 1)
        context, past = None, []
        parts = len(state.past) // len(self.decoder)
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, RecurrentLayer)
            new = layer.step(concat_context(x_RX, context), state.past[index * parts : (index + 1) * parts])
            past += new
            x_RX = self.apply_residual(x_RX, new[0], index)
            if self.decoder_attention is not None and context is None:
                context = self.decoder_attention.step(x_RX, state)
        state.advance(past)
        return project_logits(self.project_hidden(x_RX, context), self.output), state


def concat_context(x: Tensor, context: Tensor | None) -> Tensor:
    return x if context is None else torch.cat((x, context.to(x.dtype)), -1)
