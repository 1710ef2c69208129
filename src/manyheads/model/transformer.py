"""The Transformer (section 3): embeddings (3.4), positions (3.5), encoder and decoder (3.1).

Shapes: S source tokens, T target tokens, D = d_model; R rows of a decoding step.
"""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from manyheads.config import TransformerConfig
from manyheads.errors import RequestError
from manyheads.model.encoder_decoder import EncoderDecoder, Trace, append_layer_maps
from manyheads.model.initialization import init_weights
from manyheads.model.kv_cache import DynamicKVCache, Memory
from manyheads.model.layers import DecoderLayer, EncoderLayer, build_norm
from manyheads.model.positions import build_positional_encoding
from manyheads.model.static_cache import StaticKVCache
from manyheads.ops.linear import project_logits
from manyheads.packed import Packed

AnyKVCache = TypeVar("AnyKVCache", DynamicKVCache, StaticKVCache)


class Transformer(EncoderDecoder):
    """Figure 1 of the paper."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.source_positions = build_positional_encoding(config)
        self.target_positions = build_positional_encoding(config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm = build_final_norm(config)
        self.decoder_norm = build_final_norm(config)
        init_weights(self)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Memory:
        """Return the encoder's output for each source token. [S, D]"""
        if trace is not None:
            trace.encoder.clear()
        x_SD = self.embed(
            source.tokens, self.source_embedding, self.source_positions, source.positions, source.max_length
        )
        for layer in self.encoder:
            x_SD = layer(x_SD, source, append_layer_maps(trace.encoder if trace else None), aux_losses)
        return Memory(self.encoder_norm(x_SD), source)

    def decode(
        self,
        target: Packed,
        memory: Memory,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the decoder's output for each target token. [T, D]"""
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        x_TD = self.embed(
            target.tokens, self.target_embedding, self.target_positions, target.positions, target.max_length
        )
        for layer in self.decoder:
            x_TD = layer(
                x_TD,
                memory.hidden,
                target,
                memory.source,
                append_layer_maps(trace.decoder if trace else None),
                append_layer_maps(trace.cross if trace else None),
                aux_losses,
            )
        out: Tensor = self.decoder_norm(x_TD)
        return out

    @torch.no_grad()
    def start(self, memory: Memory, beam: int = 1) -> DynamicKVCache:
        """Return the KV cache before the first token, with `beam` hypotheses for each sentence."""
        if beam < 1:
            raise RequestError(f"{beam} hypotheses a sentence, but there must be at least 1")
        source = memory.source
        by_layer = [[source.pad(x).transpose(1, 2) for x in pair] for pair in self.project_source(memory)]
        source_keys, source_values = (torch.stack(layers) for layers in zip(*by_layer, strict=True))
        rows = len(source) * beam

        def empty(like: Tensor) -> Tensor:
            layers, _, heads, _, head_dim = like.shape
            return like.new_empty(layers, rows, heads, 0, head_dim)

        return DynamicKVCache(
            past_keys=empty(source_keys),
            past_values=empty(source_values),
            lengths=torch.zeros(rows, dtype=torch.int64, device=source.tokens.device),
            max_length=0,
            source_keys=source_keys,
            source_values=source_values,
            source_lengths=source.lengths,
            beam=beam,
            window=self.config.window,
            start=self.start,
        )

    def project_source(self, memory: Memory) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the keys [S, H, K] and values [S, H, V] of the encoder's output for each decoder layer."""
        layer: DecoderLayer
        for layer in self.decoder:  # type: ignore[assignment]
            yield layer.cross_attention.keys_and_values(memory.hidden)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: AnyKVCache) -> tuple[Tensor, AnyKVCache]:
        """Read one token of each row; return the logits of the next, [R, vocabulary], and the cache."""
        if len(tokens_R) != len(state.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(state.lengths)} rows")
        caches = state.begin_step()
        x_RD = self.embed(
            tokens_R, self.target_embedding, self.target_positions, state.lengths, state.max_length + 1
        )
        layer: DecoderLayer
        for layer, cache in zip(self.decoder, caches, strict=True):  # type: ignore[assignment]
            x_RD = layer.step(x_RD, cache)
        state.end_step()
        return project_logits(self.decoder_norm(x_RD), self.output), state


def build_final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after a stack, which only pre-norm needs."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()
