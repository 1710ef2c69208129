"""A batch without padding: sentences laid end to end in one row of tokens.

    [[5, 6, 7], [], [8, 9]]   ->   tokens   5 6 7 8 9      [T]
                                   offsets  0 3 3 5        [B + 1]

T: tokens in the batch.  B: sentences.  L: the longest sentence, or any bound above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from manyheads.errors import DataError


@dataclass(frozen=True, eq=False)
class Packed:
    """Tokens and where each sentence begins. Empty sentences and an empty batch are legal."""

    tokens: Tensor  # [T] int64
    offsets: Tensor  # [B + 1] int32
    longest: int  # on the host, and a bound from above: a captured graph may keep it fixed

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """From lists of token ids."""
        lengths = [len(sentence) for sentence in sentences]
        tokens = [token for sentence in sentences for token in sentence]
        return cls(
            torch.tensor(tokens, dtype=torch.int64),
            torch.tensor([0, *np.cumsum(lengths, dtype=np.int64).tolist()], dtype=torch.int32),
            max(lengths, default=0),
        )

    @classmethod
    def from_arrays(cls, tokens: Any, offsets: Any) -> Self:
        """From one array of tokens and one of offsets: NumPy's, torch's, or lists."""
        tokens = torch.as_tensor(np.asarray(tokens).astype(np.int64, copy=False))
        bounds = np.asarray(offsets, dtype=np.int64)
        lengths = np.diff(bounds)
        well_formed = bounds.ndim == 1 and len(bounds) > 0 and bounds[0] == 0
        if not well_formed or bounds[-1] != len(tokens) or (lengths < 0).any():
            raise DataError(
                f"offsets {bounds.tolist()[:8]} do not divide {len(tokens)} tokens: they must begin "
                f"with 0, never fall, and end with the number of tokens"
            )
        longest = int(lengths.max(initial=0))
        return cls(tokens, torch.as_tensor(bounds.astype(np.int32)), longest)

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        return type(self)(
            self.tokens.to(device, non_blocking=non_blocking),
            self.offsets.to(device, non_blocking=non_blocking),
            self.longest,
        )

    @cached_property
    def lengths(self) -> Tensor:
        """Tokens of each sentence. [B] int32"""
        return self.offsets.diff()

    @cached_property
    def sentences(self) -> Tensor:
        """The sentence that each token belongs to. [T] int64"""
        places = torch.arange(self.tokens.shape[0], device=self.tokens.device, dtype=torch.int32)
        return torch.searchsorted(self.offsets[1:], places, right=True)

    @cached_property
    def positions(self) -> Tensor:
        """The place of each token in its sentence, from 0. [T] int64"""
        places = torch.arange(self.tokens.shape[0], device=self.tokens.device)
        return places - self.offsets[self.sentences]

    def split(self, values: Tensor | None = None) -> list[Tensor]:
        """Back to sentences: the tokens, or any values [T, ...] that stand in their places."""
        values = self.tokens if values is None else values
        return list(values.split(self.lengths.tolist()))

    def pad(self, values: Tensor) -> Tensor:
        """Values [T, ...] as [B, L, ...] with zeros after each sentence, L at least 1."""
        padded: Tensor = _Pad.apply(values, self._slots, self._padded_shape)  # type: ignore[no-untyped-call]
        return padded

    def unpad(self, padded: Tensor) -> Tensor:
        """The inverse of pad."""
        values: Tensor = _Unpad.apply(padded, self._slots, self._padded_shape)  # type: ignore[no-untyped-call]
        return values

    @property
    def _padded_shape(self) -> tuple[int, int]:
        return len(self), max(1, self.longest)

    @cached_property
    def _slots(self) -> Tensor:
        """Where each token stands in the padded view laid flat. [T] int64"""
        return self.sentences * self._padded_shape[1] + self.positions


class _Pad(torch.autograd.Function):
    """Each is the other's derivative; torch's own for indexing would add where we only move."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, slots: Tensor, shape: tuple[int, int]) -> Tensor:
        ctx.slots, ctx.shape = slots, shape
        flat = values.new_zeros(shape[0] * shape[1], *values.shape[1:])
        return flat.index_copy_(0, slots, values).view(*shape, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Unpad.apply(grad, ctx.slots, ctx.shape), None, None  # type: ignore[no-untyped-call]


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, padded: Tensor, slots: Tensor, shape: tuple[int, int]) -> Tensor:
        ctx.slots, ctx.shape = slots, shape
        return padded.flatten(0, 1).index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Pad.apply(grad, ctx.slots, ctx.shape), None, None  # type: ignore[no-untyped-call]
