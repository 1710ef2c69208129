"""Embeddings with positional encodings and dropout (3.4, 3.5, 5.4).

Shapes: T tokens, D = d_model.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from manyheads.errors import DataError
from manyheads.ops import dispatch

# Takes positions, all below a maximum length, and a dtype; returns their encodings [T, D].
PositionalEncoding = Callable[[Tensor, int, torch.dtype], Tensor]


def embed(
    tokens_T: Tensor,
    embedding: nn.Embedding,
    encoding: PositionalEncoding | None,
    positions_T: Tensor,
    max_length: int,
    scale: float,
    dropout: nn.Dropout,
    *,
    for_autocast: bool = False,
) -> Tensor:
    """Return embeddings times scale plus positional encodings, after dropout. [T, D]

    With `for_autocast` the result may be in the dtype of autocast already.
    """
    weight = embedding.weight
    if encoding is not None and dispatch.use_embedding_kernel(weight):
        table_LD = encoding(torch.arange(max_length, device=weight.device), max_length, weight.dtype)
        if not table_LD.requires_grad:
            from manyheads.ops import embedding_triton

            rate = dropout.p if dropout.training else 0.0
            dtype = dispatch.embedding_dtype(weight, for_autocast)
            return embedding_triton.embed_tokens(tokens_T, weight, positions_T, table_LD, scale, rate, dtype)
    x_TD = embed_tokens(tokens_T, embedding) * scale
    if encoding is not None:
        x_TD = x_TD + encoding(positions_T, max_length, x_TD.dtype)
    out: Tensor = dropout(x_TD)
    return out


def embed_tokens(tokens_T: Tensor, embedding: nn.Embedding) -> Tensor:
    """Return the embedding of each token. [T, D]"""
    try:
        embedded: Tensor = embedding(tokens_T)
    except IndexError:  # on a CPU; a GPU reports it later, in its own way
        size = embedding.num_embeddings
        raise DataError(f"token id {int(tokens_T.max())}, but the vocabulary has {size}") from None
    return embedded
