"""The Transformer (section 3), put together: embeddings (3.4), positions (3.5), encoder and decoder (3.1).

It takes token ids and returns logits. It knows no vocabulary, no loss, no file and no device.

Shapes: S source tokens, T target tokens, D = d_model; R rows of a decoding step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from manyheads import kernels
from manyheads.config import ModelConfig
from manyheads.errors import DataError, RequestError
from manyheads.model.cache import Memory, State
from manyheads.model.layers import DecoderLayer, Dropout, EncoderLayer, MultiHeadAttention, normalisation
from manyheads.model.positions import LearnedPositions, Sinusoids, positional_encoding
from manyheads.model.slots import SlotState
from manyheads.packed import Packed

AnyState = TypeVar("AnyState", State, SlotState)


@dataclass
class Trace:
    """Holds every attention map of the latest call: kind[layer][sentence] is [heads, queries, keys]."""

    encoder: list[list[Tensor]] = field(default_factory=list)
    decoder: list[list[Tensor]] = field(default_factory=list)
    cross: list[list[Tensor]] = field(default_factory=list)


class Transformer(nn.Module):
    """Figure 1 of the paper: an encoder, a decoder, and what leads in and out."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_size, config.d_model)
        self.target_embedding = nn.Embedding(config.target_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.target_size, bias=config.output_bias)
        tie(self.source_embedding, self.target_embedding, self.output, config)
        self.source_positions = positional_encoding(config)
        self.target_positions = positional_encoding(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.encoder_norm = final_norm(config)
        self.decoder_norm = final_norm(config)
        initialise(self)

    def forward(self, source: Packed, target: Packed, trace: Trace | None = None) -> Tensor:
        """The logits of what follows each target token. [T, vocabulary]"""
        logits: Tensor = self.output(self.hidden(source, target, trace))
        return logits

    def hidden(self, source: Packed, target: Packed, trace: Trace | None = None) -> Tensor:
        """The same before the output projection: what the training loss takes. [T, D]"""
        return self.decode(target, self.encode(source, trace), trace)

    def encode(self, source: Packed, trace: Trace | None = None) -> Memory:
        """The encoder's output for each source token. [S, D]"""
        if trace is not None:
            trace.encoder.clear()
        x_SD = self.embed(
            source.tokens, self.source_embedding, self.source_positions, source.positions, source.longest
        )
        for layer in self.encoder:
            x_SD = layer(x_SD, source, new_maps(trace.encoder if trace else None))
        return Memory(self.encoder_norm(x_SD), source)

    def decode(self, target: Packed, memory: Memory, trace: Trace | None = None) -> Tensor:
        """The decoder's output for each target token. [T, D]"""
        if trace is not None:
            trace.decoder.clear()
            trace.cross.clear()
        x_TD = self.embed(
            target.tokens, self.target_embedding, self.target_positions, target.positions, target.longest
        )
        for layer in self.decoder:
            x_TD = layer(
                x_TD,
                memory.hidden,
                target,
                memory.source,
                new_maps(trace.decoder if trace else None),
                new_maps(trace.cross if trace else None),
            )
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def embed(
        self,
        tokens_T: Tensor,
        embedding: nn.Embedding,
        encoding: Sinusoids | LearnedPositions | None,
        positions_T: Tensor,
        longest: int,
    ) -> Tensor:
        """Embeddings times sqrt(d_model), plus the encoding of positions, then dropout (3.4, 3.5, 5.4)."""
        try:
            x_TD: Tensor = embedding(tokens_T) * math.sqrt(self.config.d_model)
        except IndexError:  # on a CPU; a GPU reports it in its own way, and later
            known = embedding.num_embeddings
            raise DataError(f"token id {int(tokens_T.max())}, but the vocabulary has {known}") from None
        if encoding is not None:
            x_TD = x_TD + encoding(positions_T, longest, x_TD.dtype)
        out: Tensor = self.dropout(x_TD)
        return out

    @torch.no_grad()
    def start(self, memory: Memory, width: int = 1) -> State:
        """The state before the first token, with `width` hypotheses for each sentence."""
        if width < 1:
            raise RequestError(f"{width} hypotheses a sentence, but there must be at least 1")
        source = memory.source
        found = [[source.pad(x).transpose(1, 2) for x in pair] for pair in self.keys_of_source(memory)]
        source_keys, source_values = (torch.stack(kind) for kind in zip(*found, strict=True))
        rows = len(source) * width

        def nothing_yet(like: Tensor) -> Tensor:
            layers, _, heads, _, each = like.shape
            return like.new_empty(layers, rows, heads, 0, each)

        return State(
            past_keys=nothing_yet(source_keys),
            past_values=nothing_yet(source_values),
            lengths=torch.zeros(rows, dtype=torch.int64, device=source.tokens.device),
            longest=0,
            source_keys=source_keys,
            source_values=source_values,
            source_lengths=source.lengths,
            width=width,
            window=self.config.window,
            start=self.start,
        )

    def keys_of_source(self, memory: Memory) -> Iterator[tuple[Tensor, Tensor]]:
        """The keys [S, H, K] and values [S, H, V] that each decoder layer finds in the encoder's output."""
        layer: DecoderLayer
        for layer in self.decoder:  # type: ignore[assignment]
            yield layer.cross_attention.keys_and_values(memory.hidden)

    @torch.no_grad()
    def step(self, tokens_R: Tensor, state: AnyState) -> tuple[Tensor, AnyState]:
        """Reads one token of each row; gives the logits of what follows it, [R, vocabulary]."""
        if len(tokens_R) != len(state.lengths):
            raise RequestError(f"{len(tokens_R)} tokens, but the state has {len(state.lengths)} rows")
        caches = state.begin_step()
        x_RD = self.embed(
            tokens_R, self.target_embedding, self.target_positions, state.lengths, state.longest + 1
        )
        layer: DecoderLayer
        for layer, cache in zip(self.decoder, caches, strict=True):  # type: ignore[assignment]
            x_RD = layer.step(x_RD, cache)
        state.end_step()
        return project(self.decoder_norm(x_RD), self.output), state


def tie(source: nn.Embedding, target: nn.Embedding, output: nn.Linear, config: ModelConfig) -> None:
    """The paper's one matrix for all three (3.4), or fewer shared."""
    if config.ties != "none":
        output.weight = target.weight
    if config.ties == "three-way":
        source.weight = target.weight


FEW_ROWS = 64


def project(x_RD: Tensor, output: nn.Linear) -> Tensor:
    """The output projection of a decoding step. [R, vocabulary]

    On a CPU a tall matrix times few columns is quicker than few rows times a wide one.
    """
    if kernels.serve(x_RD):  # rounded logits would decide between like words
        exact = torch.mm(x_RD, output.weight.T.to(x_RD.dtype), out_dtype=torch.float32)
        return exact if output.bias is None else exact + output.bias
    if x_RD.is_cuda or len(x_RD) > FEW_ROWS:
        logits: Tensor = output(x_RD)
        return logits
    logits = (output.weight @ x_RD.T).T.contiguous()
    return logits if output.bias is None else logits + output.bias


def final_norm(config: ModelConfig) -> nn.Module:
    """Post-norm ends normalised; pre-norm needs one more at the end of each stack."""
    return normalisation(config) if config.norm == "pre" else nn.Identity()


def initialise(model: Transformer) -> None:
    """Every initial weight, which the paper does not give.

    Xavier for what multiplies vectors; for what is looked up a deviation of d_model^-0.5, which the factor
    sqrt(d_model) of the embeddings (3.4) brings to 1.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.output:
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if isinstance(module, MultiHeadAttention) and module.energy is not None:
            nn.init.normal_(module.energy, std=module.energy.shape[1] ** -0.5)
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
            module.reset_parameters()  # ones and zeros
    if model.output.bias is not None:
        nn.init.zeros_(model.output.bias)
    looked_up = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    for table in dict.fromkeys([*looked_up, model.output.weight]):  # once each, tied or not
        nn.init.normal_(table, std=model.config.d_model**-0.5)


def new_maps(kind: list[list[Tensor]] | None) -> list[Tensor] | None:
    """An empty list for the maps of one layer, already in its place in the trace."""
    if kind is None:
        return None
    maps: list[Tensor] = []
    kind.append(maps)
    return maps


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """In all and by part; no memory is taken for weights, so that the largest model is counted at once."""
    with torch.device("meta"):
        model = Transformer(config)

    def size(*parts: nn.Module) -> int:
        return sum({p: p.numel() for part in parts for p in part.parameters()}.values())

    sizes = {
        "embeddings_and_output": size(model.source_embedding, model.target_embedding, model.output),
        "encoder": size(model.encoder, model.encoder_norm),
        "decoder": size(model.decoder, model.decoder_norm),
    }
    learned = [part for part in (model.source_positions, model.target_positions) if part is not None]
    if size(*learned):
        sizes["positions"] = size(*learned)
    return {"total": size(model), **sizes}
