"""Replay: batches of new text, each with some general text, so that a model does not forget it.

The part of general text is a function of (epoch, index), as the part of new text is: a resumed run reads what
an uninterrupted one would have read.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.data.batches import Batch, Batches, BatchStream
from manyheads.packed import Packed


class ReplayBatches:
    """The batches of a corpus with those of general text appended. An epoch is one of the corpus."""

    def __init__(self, new: Batches, general: Batches) -> None:
        self.new, self.general = new, general

    @property
    def too_long(self) -> NDArray[np.int64]:
        """The pairs of the corpus that are in no batch."""
        return self.new.too_long

    def count_batches(self, epoch: int) -> int:
        return self.new.count_batches(epoch)

    def get_batch(self, epoch: int, index: int) -> Batch:
        """Return this rank's share of a batch. Its `pairs` are those of the corpus."""
        batch = self.new.get_batch(epoch, index)
        position = epoch * self.new.count_batches(0) + index  # batches of general text that came before
        general_epoch, general_index = divmod(position, self.general.count_batches(0))
        general_index %= self.general.count_batches(general_epoch)  # epochs may differ in length
        general = self.general.get_batch(general_epoch, general_index)
        return replace(
            batch,
            source=concat_packed([batch.source, general.source]),
            inputs=concat_packed([batch.inputs, general.inputs]),
            labels=concat_packed([batch.labels, general.labels]),
        )

    @contextmanager
    def augment_in_processes(self, num_processes: int) -> Iterator[None]:
        """Augment the corpus in other processes meanwhile; general text is little."""
        with self.new.augment_in_processes(num_processes):
            yield

    def stream(
        self, epoch: int = 0, index: int = 0, *, pin: bool = False, num_processes: int = 0
    ) -> BatchStream:
        """Return an endless stream of prefetched batches from there on. Pinned memory is for CUDA."""
        return BatchStream(self, epoch, index, pin, num_processes)


def concat_packed(parts: Iterable[Packed]) -> Packed:
    """Return the sentences of all parts, which are on the host."""
    parts = list(parts)
    starts = np.cumsum([0, *(len(part.tokens) for part in parts)])
    offsets = [part.offsets[1:] + int(start) for part, start in zip(parts, starts, strict=False)]
    return Packed(
        torch.cat([part.tokens for part in parts]),
        torch.cat([parts[0].offsets[:1], *offsets]),
        max(part.max_length for part in parts),
    )
