"""Positional encoding (3.5): what tells the model the order of its tokens.

PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
"""

import torch
from torch import Tensor, nn

from manyheads.config import PositionalConfig
from manyheads.errors import DataError


def sinusoidal_encoding(positions: Tensor, d_model: int) -> Tensor:
    """The encoding of each position, sines and cosines interleaved. [..., d_model] float64"""
    even = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None] / 10000 ** (even / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def build_positional_encoding(config: PositionalConfig) -> "SinusoidalPositions | LearnedPositions | None":
    if config.positions == "none":
        return None
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model)
    return SinusoidalPositions(config.d_model)


class SinusoidalPositions(nn.Module):
    """Positions of any length, computed and never stored."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, positions_T: Tensor, max_length: int, dtype: torch.dtype) -> Tensor:
        """For tokens that stand at these positions, all of them below `longest`. [T, d_model]"""
        if len(positions_T) <= max_length:
            return sinusoidal_encoding(positions_T, self.d_model).to(dtype)
        table = sinusoidal_encoding(torch.arange(max_length, device=positions_T.device), self.d_model)
        return table.to(dtype)[positions_T]


class LearnedPositions(nn.Module):
    """A vector learned for each position (Table 3, row E), up to a length that the config sets."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.table = nn.Embedding(max_positions, d_model)

    def forward(self, positions_T: Tensor, max_length: int, dtype: torch.dtype) -> Tensor:
        if max_length > self.table.num_embeddings:
            raise DataError(
                f"sentences of up to {max_length} tokens, but learned positions reach "
                f"{self.table.num_embeddings}: shorten them, raise model.max_positions, "
                f'or set model.positions = "sinusoid"'
            )
        found: Tensor = self.table(positions_T).to(dtype)
        return found
