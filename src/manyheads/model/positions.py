"""Positional encoding (3.5): what tells the model the order of its tokens.

PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
"""

import torch
from torch import Tensor, nn

from manyheads.errors import DataError
from manyheads.packed import Packed


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """The encoding of each position, sines and cosines interleaved. [..., d_model] float64"""
    even = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None] / 10000 ** (even / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class Sinusoids(nn.Module):
    """Positions of any length, computed and never stored."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, text: Packed) -> Tensor:
        """For each token of a batch. [T, d_model]"""
        table = sinusoids(torch.arange(text.longest, device=text.tokens.device), self.d_model)
        return table.float()[text.positions] if table.numel() else table[text.positions]

    def at(self, positions_R: Tensor, longest: int) -> Tensor:
        """For one token of each row, which stands at the position given. [R, d_model]"""
        return sinusoids(positions_R, self.d_model)


class LearnedPositions(nn.Module):
    """A vector learned for each position (Table 3, row E), up to a length that the config sets."""

    def __init__(self, length: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(length, d_model)

    def forward(self, text: Packed) -> Tensor:
        return self.at(text.positions, text.longest)

    def at(self, positions: Tensor, longest: int) -> Tensor:
        if longest > self.table.num_embeddings:
            raise DataError(
                f"a sentence of {longest} tokens, but learned positions reach "
                f"{self.table.num_embeddings}: shorten it, raise model.learned_length, "
                f'or set model.positions = "sinusoid"'
            )
        found: Tensor = self.table(positions)
        return found
