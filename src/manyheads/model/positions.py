"""Positional encoding (3.5): the order of the tokens, which attention itself does not see.

PE(pos, 2i)     = sin(pos / 10000^(2i / d_model))
PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model))
"""

import torch
from torch import Tensor, nn

from manyheads.config import PositionalConfig
from manyheads.errors import DataError


def sinusoidal_encoding(positions: Tensor, d_model: int) -> Tensor:
    """Return the encoding of each position, sines and cosines interleaved. [..., d_model] float64"""
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
    """Sinusoids for any position, computed when needed."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, positions_T: Tensor, max_length: int, dtype: torch.dtype) -> Tensor:
        """Return the encodings of these positions, all of them below max_length. [T, d_model]"""
        if len(positions_T) <= max_length:
            return sinusoidal_encoding(positions_T, self.d_model).to(dtype)
        table = sinusoidal_encoding(torch.arange(max_length, device=positions_T.device), self.d_model)
        return table.to(dtype)[positions_T]


class LearnedPositions(nn.Module):
    """A learned vector for each position (Table 3, row E), up to model.max_positions."""

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
        encoding: Tensor = self.table(positions_T).to(dtype)
        return encoding
