"""The interface of every architecture: two embeddings, an encoder, a decoder, an output (3.4).

Training, search, scoring and attention pages call this interface only, so they serve the Transformer and the
baselines alike. A model takes token ids and returns logits. It knows no vocabulary, no loss, no file and no
device.

Shapes: S source tokens, T target tokens, D = d_model; R rows of a decoding step.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from manyheads.config import ModelConfig, TransformerConfig
from manyheads.errors import DataError
from manyheads.model.layers import Dropout
from manyheads.model.positions import LearnedPositions, SinusoidalPositions
from manyheads.ops.embedding import embed
from manyheads.packed import Packed


@dataclass
class Trace:
    """The attention maps of the latest call: encoder[layer][sentence] is [heads, queries, keys]."""

    encoder: list[list[Tensor]] = field(default_factory=list)
    decoder: list[list[Tensor]] = field(default_factory=list)
    cross: list[list[Tensor]] = field(default_factory=list)


class EncoderDecoder(nn.Module):
    """A sequence-to-sequence model. Two optional arguments collect what a caller asks for:

    trace       attention maps, empty lists where a model has no such attention
    aux_losses  terms that training adds to the loss, such as the load balance of experts
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.input_vocab_size, config.d_model)
        self.target_embedding = nn.Embedding(config.output_vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.output_vocab_size, bias=config.output_bias)
        tie_embeddings(self.source_embedding, self.target_embedding, self.output, config)
        self.dropout = Dropout(config.dropout)

    @property
    def position_limit(self) -> int | None:
        """The maximum length of a sequence; None if any length will do."""
        return self.config.position_limit

    def forward(
        self,
        source: Packed,
        target: Packed,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the logits of the token after each target token. [T, vocabulary]"""
        logits: Tensor = self.output(self.hidden(source, target, trace, aux_losses))
        return logits

    def hidden(
        self,
        source: Packed,
        target: Packed,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the hidden states before the output projection, which the training loss takes. [T, D]"""
        if len(source) != len(target):
            counts = f"{len(target)} target sentences, but {len(source)} source sentences"
            raise DataError(f"{counts}: give one source per target")
        return self.decode(target, self.encode(source, trace, aux_losses), trace, aux_losses)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Any:
        """Return what the decoder needs of the source: a Memory."""
        raise NotImplementedError

    def decode(
        self, target: Packed, memory: Any, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Tensor:
        """Return the decoder's output for each target token. [T, D]"""
        raise NotImplementedError

    def start(self, memory: Any, beam: int = 1) -> Any:
        """Return the decoding state before the first token, with `beam` hypotheses for each sentence."""
        raise NotImplementedError

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one token of each row; return the logits of the next, [R, vocabulary], and the state."""
        raise NotImplementedError

    def embed(
        self,
        tokens_T: Tensor,
        embedding: nn.Embedding,
        positional_encoding: SinusoidalPositions | LearnedPositions | None,
        positions_T: Tensor,
        max_length: int,
    ) -> Tensor:
        """Return embeddings times sqrt(d_model) plus positional encodings, after dropout (3.4, 3.5, 5.4)."""
        # Post-norm rounds what follows at every norm; the residual stream of pre-norm keeps its precision.
        post_norm = isinstance(self.config, TransformerConfig) and self.config.norm == "post"
        return embed(
            *(tokens_T, embedding, positional_encoding, positions_T, max_length),
            *(math.sqrt(self.config.d_model), self.dropout),
            for_autocast=post_norm,
        )


def tie_embeddings(
    source: nn.Embedding, target: nn.Embedding, output: nn.Linear, config: ModelConfig
) -> None:
    """Share one matrix between all three, as the paper does (3.4), or between target and output."""
    if config.tie_embeddings != "none":
        output.weight = target.weight
    if config.tie_embeddings == "three-way":
        source.weight = target.weight


def append_layer_maps(layers: list[list[Tensor]] | None) -> list[Tensor] | None:
    """Append an empty list for the attention maps of one layer, and return it."""
    if layers is None:
        return None
    maps: list[Tensor] = []
    layers.append(maps)
    return maps
