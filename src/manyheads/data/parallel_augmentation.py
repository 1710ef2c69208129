"""Augmentation in other processes: one process changes texts more slowly than a GPU trains a small model.

What a pair becomes is a function of its key, so the number of processes changes nothing.
"""

import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from manyheads.data.augmentation import SourceAugmenter
from manyheads.data.subword_regularization import Ints
from manyheads.text.subwords import TokenSequences
from manyheads.worker_processes import create_process_pool

Sides = tuple[TokenSequences, TokenSequences]


class ParallelAugmenter:
    """Passes batches to a pool. May be called by several threads, each of which waits for its batch.

    If the processes cannot run or are killed, it goes on in this process.
    """

    def __init__(self, augmenter: SourceAugmenter, pool: ProcessPoolExecutor) -> None:
        self.augmenter = augmenter
        self.pool: ProcessPoolExecutor | None = pool
        self.lock = threading.Lock()

    def augment(self, source: TokenSequences, target: TokenSequences, keys_B: Ints, max_length: int) -> Sides:
        if pool := self.pool:  # another thread may give up meanwhile
            try:
                return pool.submit(augment_in_worker, source, target, keys_B, max_length).result()
            except BrokenProcessPool:
                self._give_up()
        with self.lock:
            return self.augmenter.augment(source, target, keys_B, max_length)

    def _give_up(self) -> None:
        with self.lock:
            is_first, self.pool = self.pool is not None, None
        if is_first:
            warnings.warn(
                "the processes that augment the training text ended: augmenting in the training process, "
                "which may be slower",
                stacklevel=2,
            )


@contextmanager
def start_augmenters(augmenter: SourceAugmenter, num_processes: int) -> Iterator[ParallelAugmenter]:
    """Yield an augmenter that uses a pool. Processes are spawned: a process that uses a GPU cannot fork."""
    remedy = "use fewer processes"  # not shown: the augmenter itself goes on without a pool that broke
    with create_process_pool(num_processes, "spawn", remedy, set_worker_augmenter, augmenter) as pool:
        yield ParallelAugmenter(augmenter, pool)


# ---- in the processes

_worker_augmenter: list[SourceAugmenter] = []


def set_worker_augmenter(augmenter: SourceAugmenter) -> None:
    _worker_augmenter[:] = [augmenter]


def augment_in_worker(source: TokenSequences, target: TokenSequences, keys_B: Ints, max_length: int) -> Sides:
    (augmenter,) = _worker_augmenter
    return augmenter.augment(source, target, keys_B, max_length)
