"""What every kind of model is: two embeddings, an encoder, a decoder, an output (3.4), behind the same calls.

Training, search, scores and attention pages are written for these calls, and so serve the Transformer and
the systems that it is compared with alike. A model takes token ids and returns logits. It knows no
vocabulary, no loss, no file and no device.

Shapes: S source tokens, T target tokens, D = d_model; R rows of a decoding step.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from manyheads.config import ModelConfig, TransformerConfig
from manyheads.errors import DataError
from manyheads.model.baselines.convolution import Convolution
from manyheads.model.layers import Dropout
from manyheads.model.positions import LearnedPositions, SinusoidalPositions
from manyheads.ops import dispatch as kernels
from manyheads.packed import Packed


@dataclass
class Trace:
    """Holds every attention map of the latest call: kind[layer][sentence] is [heads, queries, keys]."""

    encoder: list[list[Tensor]] = field(default_factory=list)
    decoder: list[list[Tensor]] = field(default_factory=list)
    cross: list[list[Tensor]] = field(default_factory=list)


class EncoderDecoder(nn.Module):
    """The calls, and what all kinds have in common. `trace` and `losses` collect what a caller asks for:

    trace   attention maps, empty lists where a model has no such attention
    losses  what training adds to the loss, such as the balance of experts
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.input_vocab_size, config.d_model)
        self.target_embedding = nn.Embedding(config.output_vocab_size, config.d_model)
        self.output = nn.Linear(config.d_model, config.output_vocab_size, bias=config.output_bias)
        tie_embeddings(self.source_embedding, self.target_embedding, self.output, config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        source: Packed,
        target: Packed,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        """The logits of what follows each target token. [T, vocabulary]"""
        logits: Tensor = self.output(self.hidden(source, target, trace, aux_losses))
        return logits

    def hidden(
        self,
        source: Packed,
        target: Packed,
        trace: Trace | None = None,
        aux_losses: list[Tensor] | None = None,
    ) -> Tensor:
        """The same before the output projection: what the training loss takes. [T, D]"""
        if len(source) != len(target):
            raise DataError(f"{len(target)} sentences look at {len(source)}: give as many sources as targets")
        return self.decode(target, self.encode(source, trace, aux_losses), trace, aux_losses)

    def encode(
        self, source: Packed, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Any:
        """What the decoder needs of the source: a Memory."""
        raise NotImplementedError

    def decode(
        self, target: Packed, memory: Any, trace: Trace | None = None, aux_losses: list[Tensor] | None = None
    ) -> Tensor:
        """The decoder's output for each target token. [T, D]"""
        raise NotImplementedError

    def start(self, memory: Any, beam: int = 1) -> Any:
        """The state before the first token, with `width` hypotheses for each sentence."""
        raise NotImplementedError

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one token of each row; gives the logits of what follows it, [R, vocabulary]."""
        raise NotImplementedError

    def embed(
        self,
        tokens_T: Tensor,
        embedding: nn.Embedding,
        positional_encoding: SinusoidalPositions | LearnedPositions | None,
        positions_T: Tensor,
        max_length: int,
    ) -> Tensor:
        """Embeddings times sqrt(d_model), plus the encoding of positions, then dropout (3.4, 3.5, 5.4)."""
        x_TD = embed_tokens(tokens_T, embedding) * math.sqrt(self.config.d_model)
        if positional_encoding is not None:
            x_TD = x_TD + positional_encoding(positions_T, max_length, x_TD.dtype)
        out: Tensor = self.dropout(x_TD)
        return out


def embed_tokens(tokens_T: Tensor, embedding: nn.Embedding) -> Tensor:
    try:
        found: Tensor = embedding(tokens_T)
    except IndexError:  # on a CPU; a GPU reports it in its own way, and later
        known = embedding.num_embeddings
        raise DataError(f"token id {int(tokens_T.max())}, but the vocabulary has {known}") from None
    return found


def tie_embeddings(
    source: nn.Embedding, target: nn.Embedding, output: nn.Linear, config: ModelConfig
) -> None:
    """The paper's one matrix for all three (3.4), or fewer shared."""
    if config.tie_embeddings != "none":
        output.weight = target.weight
    if config.tie_embeddings == "three-way":
        source.weight = target.weight


FEW_ROWS = 64


def project_logits(x_RD: Tensor, output: nn.Linear) -> Tensor:
    """The output projection of a decoding step. [R, vocabulary]

    On a CPU a tall matrix times few columns is quicker than few rows times a wide one.
    """
    if kernels.use_kernels(x_RD):  # rounded logits would decide between like words
        exact = torch.mm(x_RD, output.weight.T.to(x_RD.dtype), out_dtype=torch.float32)
        return exact if output.bias is None else exact + output.bias
    if x_RD.is_cuda or len(x_RD) > FEW_ROWS:
        logits: Tensor = output(x_RD)
        return logits
    logits = (output.weight @ x_RD.T).T.contiguous()
    return logits if output.bias is None else logits + output.bias


def init_weights(model: EncoderDecoder) -> None:
    """Every initial weight, which the paper does not give.

    Xavier for what multiplies vectors, or less of it: large sub-layers drown what a token is and where it
    stands. For what is looked up a deviation of d_model^-0.5, which the factor sqrt(d_model) of the
    embeddings (3.4) brings to 1.
    """
    gain = model.config.init_gain if isinstance(model.config, TransformerConfig) else 1.0
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.output:
            nn.init.xavier_uniform_(module.weight, gain)
            nn.init.zeros_(module.bias)
        if isinstance(energy := getattr(module, "energy", None), nn.Parameter):
            nn.init.normal_(energy, std=energy.shape[1] ** -0.5)
        if isinstance(module, nn.RNNBase):
            init_recurrent_weights(module)
        if isinstance(module, Convolution):
            module.reset_parameters()
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
            module.reset_parameters()  # ones and zeros
    if model.output.bias is not None:
        nn.init.zeros_(model.output.bias)
    looked_up = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    for table in dict.fromkeys([*looked_up, model.output.weight]):  # once each, tied or not
        nn.init.normal_(table, std=model.config.d_model**-0.5)


def init_recurrent_weights(cells: nn.RNNBase) -> None:
    """Gate by gate: Xavier for what is read, orthogonal for what is remembered, which an LSTM begins with."""
    for name, parameter in cells.named_parameters():
        for gate in parameter.detach().split(cells.hidden_size):
            if name.startswith("bias"):
                nn.init.zeros_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.orthogonal_(gate)
        if isinstance(cells, nn.LSTM) and name.startswith("bias_ih"):
            nn.init.ones_(parameter.detach()[cells.hidden_size : 2 * cells.hidden_size])


def append_layer_maps(kind: list[list[Tensor]] | None) -> list[Tensor] | None:
    """An empty list for the maps of one layer, already in its place in the trace."""
    if kind is None:
        return None
    maps: list[Tensor] = []
    kind.append(maps)
    return maps
