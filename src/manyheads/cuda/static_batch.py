"""Batches of static shape, which CUDA graphs need.

A batch is filled up with sentences that do not count to one of a few shapes. It travels as one row of
integers in pinned memory: tokens first, then offsets.

Shapes: S source and T target tokens of a shape, N = max(S, T) sentences at most.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyheads.packed import Packed, round_up

FILLER_LENGTH = 64  # tokens of a sentence that fills up a batch
SIZE_BUCKETS = 64  # token counts of a side, from empty to full
OVERSIZE_BUCKETS = 8  # from full to twice as much
SIZE_MULTIPLE = 128  # tokens: every size is a multiple of it


def pinned_zeros(count: int) -> Tensor:
    """Return a row of zeros in pinned memory, from which a GPU copies while it computes."""
    row = torch.empty(count, dtype=torch.int64, pin_memory=torch.cuda.is_available())
    row.numpy().fill(0)  # torch would start all its threads for it, and wait for the last one
    return row


def count_fillers(missing: int, filler_length: int = FILLER_LENGTH) -> int:
    """Return how many filler sentences this many missing tokens take."""
    return -(-missing // filler_length)


def write_batch_tokens(row: NDArray[np.int64], batch: Packed) -> None:
    """Write the tokens of a batch to the start of a row."""
    row[: len(batch.tokens)] = batch.tokens.numpy()


def write_offsets(
    row: NDArray[np.int64], batch: Packed, missing: int, fillers: int, filler_length: int = FILLER_LENGTH
) -> None:
    """Write the offsets of the sentences, of fillers for the missing tokens, and of empty sentences."""
    offsets = batch.offsets.numpy()
    end = len(offsets) + fillers
    row[: len(offsets)] = offsets
    row[len(offsets) : end] = offsets[-1] + np.minimum(filler_length * np.arange(1, fillers + 1), missing)
    row[end:] = row[end - 1]


@dataclass(frozen=True)
class StaticBatchShape:
    """The token counts that a graph is captured for."""

    source: int
    target: int

    @classmethod
    def for_tokens(cls, source_tokens: int, target_tokens: int, full: int) -> "StaticBatchShape":
        """Return the smallest shape that holds a batch. `full` is the token budget of a side.

        Subword regularization makes batches longer than full, each by another length: few shapes serve them.
        """
        most = round_up(full, SIZE_MULTIPLE)
        below, beyond = (
            max(SIZE_MULTIPLE, round_up(full // buckets, SIZE_MULTIPLE))
            for buckets in (SIZE_BUCKETS, OVERSIZE_BUCKETS)
        )
        excess = [tokens - most for tokens in (source_tokens, target_tokens)]
        return cls(*(max(SIZE_MULTIPLE, most + round_up(n, beyond if n > 0 else below)) for n in excess))

    @property
    def segment_lengths(self) -> list[int]:
        """The lengths of source, inputs and labels, and of the offsets of both sides."""
        sentences = max(self.source, self.target)
        return [self.source, self.target, self.target, sentences + 1, sentences + 1]


def pack_static_batch(
    source: Packed,
    inputs: Packed,
    labels: Packed,
    shape: StaticBatchShape,
    *,
    filler_length: int,
    ignore_index: int,
) -> Tensor:
    """Return source, inputs, labels and both offsets in one pinned row. A filler's label is ignore_index."""
    missing = [shape.source - len(source.tokens), shape.target - len(labels.tokens)]
    fillers = count_fillers(max(missing), filler_length)
    row = pinned_zeros(sum(shape.segment_lengths))
    *tokens, source_offsets, target_offsets = np.split(row.numpy(), np.cumsum(shape.segment_lengths)[:-1])
    tokens[2].fill(ignore_index)
    for segment, batch in zip(tokens, (source, inputs, labels), strict=True):
        write_batch_tokens(segment, batch)
    for segment, batch, lack in zip((source_offsets, target_offsets), (source, labels), missing, strict=True):
        write_offsets(segment, batch, lack, fillers, filler_length)
    return row


def unpack_static_batch(
    row: Tensor, shape: StaticBatchShape, max_length: int
) -> tuple[Packed, Packed, Tensor]:
    """Return the source, the decoder's input and the labels. `max_length` is of any sentence."""
    source, inputs, labels, source_offsets, target_offsets = row.split(shape.segment_lengths)
    return (
        Packed(source, source_offsets.int(), max_length),
        Packed(inputs, target_offsets.int(), max_length),
        labels,
    )
