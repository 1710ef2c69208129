"""The Transformer (section 3), put together: embeddings (3.4), positions (3.5), encoder and decoder (3.1).

Shapes: S source tokens, T target tokens, D = d_model; R rows of a decoding step.
"""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from manyheads.config import TransformerConfig
from manyheads.errors import RequestError
from manyheads.model.encoder_decoder import (
    EncoderDecoder,
    Trace,
    append_layer_maps,
    init_weights,
    project_logits,
)
from manyheads.model.kv_cache import DynamicKVCache, Memory
from manyheads.model.layers import DecoderLayer, EncoderLayer, build_norm
from manyheads.model.positions import build_positional_encoding
from manyheads.model.static_cache import StaticKVCache
from manyheads.packed import Packed

AnyKVCache = TypeVar("AnyKVCache", DynamicKVCache, StaticKVCache)


class Transformer(EncoderDecoder):
    """Figure 1 of the paper: an encoder, a decoder, and what leads in and out."""

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
        """The encoder's output for each source token. [S, D]"""
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
        """The decoder's output for each target token. [T, D]"""
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
        """The state before the first token, with `width` hypotheses for each sentence."""
        if beam < 1:
            raise RequestError(f"{beam} hypotheses a sentence, but there must be at least 1")
        source = memory.source
        found = [[source.pad(x).transpose(1, 2) for x in pair] for pair in self.project_source(memory)]
        source_keys, source_values = (torch.stack(kind) for kind in zip(*found, strict=True))
        rows = len(source) * beam

        def nothing_yet(like: Tensor) -> Tensor:
            layers, _, heads, _, each = like.shape
            return like.new_empty(layers, rows, heads, 0, each)

        return DynamicKVCache(
            past_keys=nothing_yet(source_keys),
            past_values=nothing_yet(source_values),
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
        """The keys [S, H, K] and values [S, H, V] that each decoder layer finds in the encoder's output."""
        layer: DecoderLayer
        for layer in self.decoder:  # type: ignore[assignment]
            yield layer.cross_attention.keys_and_values(memory.hidden)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: AnyKVCache) -> tuple[Tensor, AnyKVCache]:
        """Reads one token of each row; gives the logits of what follows it, [R, vocabulary]."""
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
    """Post-norm ends normalized; pre-norm needs one more at the end of each stack."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()
