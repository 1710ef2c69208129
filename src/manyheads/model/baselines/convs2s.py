"""ConvS2S: convolutions with gated linear units in encoder and decoder, and attention in each decoder layer.

A layer is x + GLU(conv(x)): a gated linear unit multiplies one half of the features by the sigmoid of the
other. Every sum of two is scaled by sqrt(0.5) to keep its variance. Weights are normalized, and positions
learned.

Shapes: S source tokens, T target tokens, D = d_model, C = d_ff channels; R rows of a step, P past
        tokens that a convolution needs of a row.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import ConvS2SConfig
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.baselines.recurrent_state import RecurrentState
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, append_layer_maps
from manyheads.model.initialization import init_weights
from manyheads.model.kv_cache import Memory, attend_step
from manyheads.model.layers import Dropout
from manyheads.model.positions import LearnedPositions, SinusoidalPositions, build_positional_encoding
from manyheads.ops.attention import attend
from manyheads.ops.attention_spec import AttentionSpec, padding_mask
from manyheads.ops.embedding import embed_tokens
from manyheads.ops.linear import project_logits
from manyheads.packed import Packed


def scaled_add(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum, scaled to the variance of one summand."""
    return (a + b) * math.sqrt(0.5)


def weight_norm_linear(inputs: int, outputs: int) -> Convolution:
    """Return x W + b with normalized weights: a convolution of kernel size 1."""
    return Convolution(inputs, outputs, 1, weight_norm=True)


class GatedConvolution(nn.Module):
    """GLU(conv(Dropout(x)))"""

    def __init__(self, config: ConvS2SConfig, *, causal: bool):
        super().__init__()
        self.dropout = Dropout(config.dropout)
        init_variance = 4 * (1 - config.dropout)  # the gates leave a quarter, and dropout adds its share
        self.convolution = Convolution(
            config.d_ff,
            2 * config.d_ff,
            config.kernel_size,
            causal=causal,
            weight_norm=True,
            init_variance=init_variance,
        )

    def forward(self, x_TC: Tensor, text: Packed) -> Tensor:
        return F.glu(self.convolution(self.dropout(x_TC), text))

    def step(self, x_RC: Tensor, past_RPC: Tensor) -> tuple[Tensor, Tensor]:
        out, past_RPC = self.convolution.step(self.dropout(x_RC), past_RPC)
        return F.glu(out), past_RPC


class ConvS2SDecoderLayer(nn.Module):
    """A gated convolution, then attention over the source."""

    def __init__(self, config: ConvS2SConfig):
        super().__init__()
        assert config.attention in ("dot", "scaled-dot")
        self.gated = GatedConvolution(config, causal=True)
        self.w_q = weight_norm_linear(config.d_ff, config.d_model)
        self.w_o = weight_norm_linear(config.d_model, config.d_ff)
        self.spec = AttentionSpec(config.attention)

    def query(self, h_TC: Tensor, target_TD: Tensor) -> Tensor:
        """Return the query of one head: projected convolution output and target embedding. [T, 1, D]"""
        return scaled_add(self.w_q.pointwise(h_TC), target_TD)[:, None]

    def add_context(
        self, x_TC: Tensor, h_TC: Tensor, attended_T1D: Tensor, source_lengths_T: Tensor
    ) -> Tensor:
        """Add the attention output, times sqrt(m): a mean of m vectors has 1/m of their variance."""
        context_TD = attended_T1D[:, 0] * source_lengths_T[:, None].to(attended_T1D.dtype).sqrt()
        return scaled_add(x_TC, scaled_add(h_TC, self.w_o.pointwise(context_TD)))


@dataclass(frozen=True, eq=False)
class ConvS2SMemory(Memory):
    """The encoder's output as keys, and with the embeddings added as values."""

    values: Tensor  # [S, D]


class ConvS2S(EncoderDecoder):
    """Encoder and decoder of gated convolutions, all of one width."""

    config: ConvS2SConfig

    def __init__(self, config: ConvS2SConfig):
        super().__init__(config)
        self.source_positions = build_positional_encoding(config)
        self.target_positions = build_positional_encoding(config)
        self.encoder_input = weight_norm_linear(config.d_model, config.d_ff)
        self.encoder = nn.ModuleList(
            GatedConvolution(config, causal=False) for _ in range(config.encoder_layers)
        )
        self.encoder_output = weight_norm_linear(config.d_ff, config.d_model)
        self.decoder_input = weight_norm_linear(config.d_model, config.d_ff)
        self.decoder = nn.ModuleList(ConvS2SDecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_output = weight_norm_linear(config.d_ff, config.d_model)
        init_weights(self)

    def embed(
        self,
        tokens_T: Tensor,
        embedding: nn.Embedding,
        positional_encoding: SinusoidalPositions | LearnedPositions | None,
        positions_T: Tensor,
        max_length: int,
    ) -> Tensor:
        """Return the sum of both embeddings, not multiplied by sqrt(d_model).

        All layers keep their variance, and dot products of large vectors would start with a sharp softmax.
        """
        x_TD = embed_tokens(tokens_T, embedding)
        if positional_encoding is not None:
            scale = self.config.d_model**-0.5 if isinstance(positional_encoding, SinusoidalPositions) else 1.0
            x_TD = x_TD + scale * positional_encoding(positions_T, max_length, x_TD.dtype)
        out: Tensor = self.dropout(x_TD)
        return out

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> ConvS2SMemory:
        if trace is not None:
            trace.encoder.clear()
        embedded_SD = self.embed(
            source.tokens, self.source_embedding, self.source_positions, source.positions, source.max_length
        )
        x_SC = self.encoder_input.pointwise(embedded_SD)
        for layer in self.encoder:
            x_SC = scaled_add(x_SC, layer(x_SC, source))
        out_SD = self.encoder_output.pointwise(x_SC)
        return ConvS2SMemory(out_SD, source, scaled_add(out_SD, embedded_SD))

    def decode(
        self,
        target: Packed,
        memory: ConvS2SMemory,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        embedded_TD = self.embed(
            target.tokens, self.target_embedding, self.target_positions, target.positions, target.max_length
        )
        source_lengths_T = memory.source.lengths[target.sentence_ids]
        k_S1D, v_S1D = memory.hidden[:, None], memory.values[:, None].to(memory.hidden.dtype)
        x_TC = self.decoder_input.pointwise(embedded_TD)
        layer: ConvS2SDecoderLayer
        for layer in self.decoder:  # type: ignore[assignment]
            h_TC = layer.gated(x_TC, target)
            q_T1D = layer.query(h_TC, embedded_TD).to(k_S1D.dtype)
            maps = append_layer_maps(trace.cross if trace else None)
            attended = attend(q_T1D, k_S1D, v_S1D, target, memory.source, layer.spec, maps=maps)
            x_TC = layer.add_context(x_TC, h_TC, attended, source_lengths_T)
        return self.project_hidden(x_TC)

    def project_hidden(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.decoder_output.pointwise(x))
        return out

    @torch.no_grad()
    def start(self, memory: ConvS2SMemory, beam: int = 1) -> RecurrentState:
        shape = (self.config.kernel_size - 1, self.config.d_ff)
        past = [memory.hidden.new_zeros(len(memory.source), *shape) for _ in self.decoder]
        source = [memory.hidden[:, None], memory.values[:, None].to(memory.hidden.dtype)]
        return RecurrentState.create(past, source, memory.source, beam, self.start)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        state.check_rows(tokens_R)
        embedded_RD = self.embed(
            tokens_R, self.target_embedding, self.target_positions, state.lengths, state.max_length + 1
        )
        k_B1SD, v_B1SD = (x.transpose(1, 2) for x in state.source)
        mask = padding_mask(state.source_lengths, k_B1SD.shape[2])[:, None, None, :]
        source_lengths_R = state.source_lengths.repeat_interleave(state.beam)
        x_RC, past = self.decoder_input.pointwise(embedded_RD), []
        layer: ConvS2SDecoderLayer
        for layer, old in zip(self.decoder, state.past, strict=True):  # type: ignore[assignment]
            h_RC, new = layer.gated.step(x_RC, old)
            past.append(new)
            q_R1D = layer.query(h_RC, embedded_RD).to(k_B1SD.dtype)
            attended = attend_step(q_R1D, k_B1SD, v_B1SD, mask, layer.spec)
            x_RC = layer.add_context(x_RC, h_RC, attended, source_lengths_R)
        state.advance(past)
        return project_logits(self.project_hidden(x_RC), self.output), state
