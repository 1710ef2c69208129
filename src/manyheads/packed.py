"""A batch without padding: sentences end to end in one row of tokens.

    [[5, 6, 7], [], [8, 9]]   ->   tokens   5 6 7 8 9      [T]
                                   offsets  0 3 3 5        [B + 1]

T: tokens of the batch.  B: sentences.  L: the longest sentence, or an upper bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from manyheads.errors import DataError

MAX_TOKENS = 2**31 - 1  # that 32-bit offsets can count
MAX_TOKEN_ID = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Packed:
    """Tokens and the offset of each sentence. Empty sentences and an empty batch are legal."""

    tokens: Tensor  # [T] int64
    offsets: Tensor  # [B + 1] int32
    max_length: int  # on the host: the longest sentence, or an upper bound

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Pack lists of token ids."""
        offsets = np.cumsum([0, *map(len, sentences)])
        tokens = list(chain.from_iterable(sentences))
        return cls.from_arrays(np.array(tokens) if tokens else np.zeros(0, int), offsets)

    @classmethod
    def from_arrays(cls, tokens: ArrayLike, offsets: ArrayLike) -> Self:
        """Pack an array of token ids and an array of offsets, both on the host; they are copied."""
        ids, bounds = np.asarray(tokens), np.asarray(offsets)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DataError(f"tokens are {ids.dtype} {list(ids.shape)}: they must be one row of integers")
        if len(ids) and not 0 <= ids.min() <= ids.max() <= MAX_TOKEN_ID:
            raise DataError(
                f"token ids from {ids.min()} to {ids.max()}: they must lie in 0 to {MAX_TOKEN_ID}"
            )
        if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not are_valid_offsets(bounds, len(ids)):
            raise DataError(
                f"offsets {bounds.ravel()[:8].tolist()} do not divide {len(ids)} tokens: they must begin "
                f"with 0, never fall, and end with the number of tokens"
            )
        if len(ids) > MAX_TOKENS:
            raise DataError(f"a batch of {len(ids)} tokens, but offsets of 32 bits reach {MAX_TOKENS}")
        return cls(
            torch.from_numpy(ids.astype(np.int64)),
            torch.from_numpy(bounds.astype(np.int32)),
            int(np.diff(bounds).max(initial=0)),
        )

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        return type(self)(
            self.tokens.to(device, non_blocking=non_blocking),
            self.offsets.to(device, non_blocking=non_blocking),
            self.max_length,
        )

    def slice_sentences(self, start: int, end: int) -> Self:
        """Return the sentences from start to end, on the host."""
        first, last = int(self.offsets[start]), int(self.offsets[end])
        offsets = self.offsets[start : end + 1] - first
        max_length = int(offsets.diff().max()) if end > start else 0
        return type(self)(self.tokens[first:last], offsets, max_length)

    def duplicate(self) -> Self:
        """Return the batch with all sentences repeated behind the last."""
        offsets = torch.cat((self.offsets, self.offsets[1:] + len(self.tokens)))
        return type(self)(torch.cat((self.tokens, self.tokens)), offsets, self.max_length)

    def pin_memory(self) -> Self:
        """Return the batch in pinned memory, from which a GPU copies while it computes."""
        return type(self)(self.tokens.pin_memory(), self.offsets.pin_memory(), self.max_length)

    @cached_property
    def lengths(self) -> Tensor:
        """The number of tokens of each sentence. [B] int32"""
        return self.offsets.diff()

    @cached_property
    def sentence_ids(self) -> Tensor:
        """The index of the sentence of each token. [T] int64"""
        indices = torch.arange(self.tokens.shape[0], device=self.tokens.device, dtype=torch.int32)
        return torch.searchsorted(self.offsets[1:], indices, right=True)

    @cached_property
    def positions(self) -> Tensor:
        """The position of each token in its sentence, from 0. [T] int64"""
        indices = torch.arange(self.tokens.shape[0], device=self.tokens.device)
        return indices - self.offsets[self.sentence_ids]

    def split(self, values: Tensor | None = None) -> list[Tensor]:
        """Return the tokens of each sentence, or their values [T, ...]."""
        values = self.tokens if values is None else values
        return list(values.split(self.lengths.tolist()))

    def pad(self, values: Tensor) -> Tensor:
        """Return values [T, ...] as [B, L, ...], zeros after each sentence; L is at least 1."""
        padded: Tensor = torch.ops.manyheads.pad(
            values, self.padded_positions, len(self) * self._padded_length
        )
        return padded.view(len(self), self._padded_length, *values.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """Invert pad."""
        values: Tensor = torch.ops.manyheads.unpad(padded.flatten(0, 1), self.padded_positions)
        return values

    @property
    def _padded_length(self) -> int:
        return max(1, self.max_length)

    @cached_property
    def padded_positions(self) -> Tensor:
        """The index of each token in the flattened padded view. [T] int64"""
        return self.sentence_ids * self._padded_length + self.positions


def are_valid_offsets(bounds: NDArray[np.integer[Any]], tokens: int) -> bool:
    """Return whether these offsets divide this many tokens into sentences."""
    rising = bool((bounds[1:] >= bounds[:-1]).all())
    return len(bounds) > 0 and bounds[0] == 0 and bounds[-1] == tokens and rising


def gather_rows(values: Tensor, indices: Tensor) -> Tensor:
    """Return the rows at these indices, none of which occurs twice. [len(indices), ...]"""
    rows: Tensor = torch.ops.manyheads.unpad(values, indices)
    return rows


# ---- padding as two operators of torch, which torch.compile takes as they are
#
# Each is the derivative of the other. The derivative of torch's own indexing would add values up, which takes
# longer, but no index occurs twice here. torch.library.custom_op would import the compiler at the first call.


def _pad(values: Tensor, indices: Tensor, rows: int) -> Tensor:
    """Return [rows, ...] with the values [T, ...] at these indices, zeros elsewhere."""
    return values.new_zeros(rows, *values.shape[1:]).index_copy_(0, indices, values)


def _unpad(padded: Tensor, indices: Tensor) -> Tensor:
    """Return the rows at these indices. [T, ...]"""
    return padded.index_select(0, indices)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.indices, ctx.rows = inputs[1], inputs[0].shape[0]


def _define_operators() -> torch.library.Library:
    library = torch.library.Library("manyheads", "DEF")
    library.define("pad(Tensor values, Tensor indices, SymInt rows) -> Tensor")
    library.define("unpad(Tensor padded, Tensor indices) -> Tensor")
    library.impl("pad", _pad, "CompositeExplicitAutograd")
    library.impl("unpad", _unpad, "CompositeExplicitAutograd")
    torch.library.register_fake(
        "manyheads::pad", lambda x, _, rows: x.new_empty(rows, *x.shape[1:]), lib=library
    )
    torch.library.register_fake(
        "manyheads::unpad", lambda x, at: x.new_empty(at.shape[0], *x.shape[1:]), lib=library
    )
    ops = torch.ops.manyheads
    torch.library.register_autograd(
        "manyheads::pad",
        lambda ctx, grad: (ops.unpad(grad, ctx.indices), None, None),
        setup_context=_save,
        lib=library,
    )
    torch.library.register_autograd(
        "manyheads::unpad",
        lambda ctx, grad: (ops.pad(grad, ctx.indices, ctx.rows), None),
        setup_context=_save,
        lib=library,
    )
    return library


_LIBRARY = _define_operators()  # the operators exist as long as it does


def round_up(number: int, step: int) -> int:
    """Round up to the next multiple of step."""
    return -(-number // step) * step
