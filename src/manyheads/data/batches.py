"""Batches (5.1): about N source and N target tokens each, sentences of similar length together.

The order of an epoch is a pure function of (seed, epoch). No state is kept between batches, so a run that
starts at batch k reads what an uninterrupted run would have read. A batch is the same for any number of
ranks: each takes every world_size-th pair of it, and as lengths are similar, all have about the same work.
"""

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, starmap
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config import BOS_ID, AugmentationConfig, DataConfig
from manyheads.data.augmentation import SourceAugmenter, make_augmenter
from manyheads.data.parallel_augmentation import ParallelAugmenter, start_augmenters
from manyheads.data.store import Side, Split, gather_sentences
from manyheads.data.subword_regularization import concat_ranges, make_regularizers
from manyheads.errors import DataError
from manyheads.packed import Packed
from manyheads.text.subwords import SubwordPair, TokenSequences

PREFETCH_BATCHES = 4
RNG_PURPOSES = ("order", "phases")


@dataclass(frozen=True, eq=False)
class Batch:
    """The input of a training step. Source and labels end with the end token; inputs start with begin."""

    source: Packed
    inputs: Packed
    labels: Packed
    pairs: NDArray[np.int64]  # indices into the split
    epoch: int
    index: int  # within the epoch

    def to(self, device: torch.device | str) -> "Batch":
        return self._map(lambda packed: packed.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Copy to page-locked memory, which a GPU reads while it computes."""
        return self._map(Packed.pin_memory)

    def split_micro_batches(self, max_tokens: int | None) -> Iterator["Batch"]:
        """Split the batch, in order, into parts of at most `max_tokens` a side, or a single pair."""
        if max_tokens is None:
            yield self
            return
        sides = [self.source.offsets.numpy(), self.labels.offsets.numpy()]
        start = 0
        while start < len(self.source) or start == 0:
            fits = [np.searchsorted(side, side[start] + max_tokens, side="right") - 1 for side in sides]
            end = max(int(min(fits)), min(start + 1, len(self.source)))
            yield self._map(partial(Packed.slice_sentences, start=start, end=end))
            start = max(end, 1)

    def _map(self, function: Callable[[Packed], Packed]) -> "Batch":
        source, inputs, labels = function(self.source), function(self.inputs), function(self.labels)
        return replace(self, source=source, inputs=inputs, labels=labels)


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The pairs of an epoch in order, and the bounds of its batches."""

    order: NDArray[np.int64]  # [pairs, repeated by weight]
    bounds: NDArray[np.int64]  # [batches + 1]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def get_pairs(self, index: int) -> NDArray[np.int64]:
        return self.order[self.bounds[index] : self.bounds[index + 1]]


class Batches:
    """The batches of a split, epoch after epoch, for one rank of several.

    `subwords` are needed for augmentation and subword regularization.
    """

    def __init__(
        self,
        split: Split,
        config: DataConfig,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        subwords: SubwordPair | None = None,
        augmentation: AugmentationConfig | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise DataError(f"rank {rank} of {world_size}: the rank must be from 0 to {world_size - 1}")
        if seed < 0:
            raise DataError(f"seed {seed}: the seed must not be negative")
        self.split, self.config, self.seed, self.rank, self.world_size = split, config, seed, rank, world_size
        self.augmenter: SourceAugmenter | ParallelAugmenter | None = make_augmenter(
            subwords, augmentation or AugmentationConfig(), seed, split
        )
        self.regularizers = make_regularizers(subwords, config.subword_regularization, seed)
        max_length = min(config.max_length, config.batch_tokens)
        fits = np.maximum(split.source.lengths, split.target.lengths) <= max_length
        self.usable = np.flatnonzero(fits)
        self.too_long = np.flatnonzero(~fits)  # in no batch; the caller reports them
        if not len(self.usable):
            raise DataError(
                f"none of {len(split):,} pairs has at most {max_length} tokens a side "
                f"(data.max_length, data.batch_tokens): raise them, or add pairs"
            )
        self.plan = lru_cache(maxsize=2)(self._plan)

    def _plan(self, epoch: int) -> EpochPlan:
        """Shuffle the pairs, sort them by length, cut them into batches, and shuffle the batches."""
        rng = self._make_rng("order", epoch)
        pairs = self._repeat_by_weight(epoch)
        shuffled = pairs[rng.permutation(len(pairs))]
        ordered = shuffled[sort_by_length(self.split, shuffled)]
        bounds = find_batch_bounds(self.split, ordered, self.config.batch_tokens)
        return shuffle_batches(ordered, bounds, rng)

    def _make_rng(self, purpose: str, number: int) -> np.random.Generator:
        """Return an independent generator for each purpose."""
        key = (RNG_PURPOSES.index(purpose), number)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def _repeat_by_weight(self, epoch: int) -> NDArray[np.int64]:
        """Return the usable pairs, repeated by the weight w of their input: n w times in n epochs, rounded.

        The phase of a pair, fixed by the seed, determines in which epochs the fractions add up to one.
        """
        bounds = np.searchsorted(
            self.usable, np.cumsum([0, *(num_pairs for _, _, num_pairs in self.split.parts)])
        )
        repeated = []
        for number, (_, weight, _) in enumerate(self.split.parts):
            pairs = self.usable[bounds[number] : bounds[number + 1]]
            phases = self._make_rng("phases", number).permutation(len(pairs)) / max(1, len(pairs))
            times = np.floor((epoch + 1) * weight + phases) - np.floor(epoch * weight + phases)
            repeated.append(pairs if weight == 1 else np.repeat(pairs, times.astype(np.int64)))
        return np.concatenate(repeated)

    def count_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, which is the same for every rank."""
        return len(self.plan(epoch))

    def get_batch(self, epoch: int, index: int) -> Batch:
        """Return this rank's share of a batch."""
        if not (epoch >= 0 and 0 <= index < self.count_batches(epoch)):
            num_batches = self.count_batches(max(0, epoch))
            raise DataError(f"batch {index} of epoch {epoch}, which has {num_batches:,} batches")
        share = self.plan(epoch).get_pairs(index)[self.rank :: self.world_size]
        source = gather_sentences(self.split.source, share)
        target = gather_sentences(self.split.target, share)
        keys = (epoch << 32) + share
        if self.augmenter:
            source, target = self.augmenter.augment(source, target, keys, self.config.max_length)
        if self.regularizers:
            source, target = (
                regularizer.resample(side, keys, self.config.max_length)
                for regularizer, side in zip(self.regularizers, (source, target), strict=True)
            )
        labels = Packed.from_arrays(target.ids, target.offsets)
        inputs = Packed(torch.from_numpy(shift_right(target)), labels.offsets, labels.max_length)
        return Batch(Packed.from_arrays(source.ids, source.offsets), inputs, labels, share, epoch, index)

    @contextmanager
    def augment_in_processes(self, num_processes: int) -> Iterator[None]:
        """Augment in other processes meanwhile. Several threads may call `get_batch` then."""
        augmenter = self.augmenter
        if not isinstance(augmenter, SourceAugmenter):
            yield
            return
        with start_augmenters(augmenter, num_processes) as self.augmenter:
            try:
                yield
            finally:
                self.augmenter = augmenter

    def stream(
        self, epoch: int = 0, index: int = 0, *, pin: bool = False, num_processes: int = 0
    ) -> "BatchStream":
        """Return an endless stream of prefetched batches from there on. Pinned memory is for CUDA.

        With `num_processes`, texts are changed in so many processes instead of the stream's own thread.
        """
        return BatchStream(self, epoch, index, pin, num_processes)


# ---- the order


def sort_by_length(split: Split, pairs: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order by source length, then target length. Equal pairs stay in their shuffled order.

    These are two stable sorts of 16-bit keys, which NumPy does in linear time.
    """
    by_target = np.argsort(clip_lengths(split.target, pairs), kind="stable")
    return by_target[np.argsort(clip_lengths(split.source, pairs)[by_target], kind="stable")]


def clip_lengths(side: Side, pairs: NDArray[np.int64]) -> NDArray[np.uint16]:
    return np.minimum(side.lengths[pairs], 0xFFFF).astype(np.uint16)


def find_batch_bounds(split: Split, ordered: NDArray[np.int64], max_tokens: int) -> NDArray[np.int64]:
    """Return where batches begin. Each takes pairs while neither side exceeds `max_tokens`."""
    sums = [np.cumsum(side.lengths[ordered], dtype=np.int64) for side in (split.source, split.target)]
    bounds = [0]
    while bounds[-1] < len(ordered):
        used = [int(total[bounds[-1] - 1]) if bounds[-1] else 0 for total in sums]
        ends = [
            np.searchsorted(total, before + max_tokens, side="right")
            for total, before in zip(sums, used, strict=True)
        ]
        bounds.append(int(min(ends)))
    return np.array(bounds, np.int64)


def shuffle_batches(
    ordered: NDArray[np.int64], bounds: NDArray[np.int64], rng: np.random.Generator
) -> EpochPlan:
    sequence = rng.permutation(len(bounds) - 1)
    sizes = np.diff(bounds)[sequence]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return EpochPlan(ordered[concat_ranges(bounds[:-1][sequence], sizes)], starts)


# ---- the tokens


def shift_right(target: TokenSequences) -> NDArray[np.int64]:
    """Return the decoder input: begin, then each label but the last (3.1)."""
    inputs = np.empty_like(target.ids)
    inputs[1:] = target.ids[:-1]
    inputs[target.offsets[:-1]] = BOS_ID
    return inputs


# ---- prefetching


class BatchPlan(Protocol):
    """Batches by epoch and index: Batches, or those with general text (replay.py)."""

    def count_batches(self, epoch: int) -> int: ...

    def get_batch(self, epoch: int, index: int) -> Batch: ...

    def augment_in_processes(self, num_processes: int) -> AbstractContextManager[None]: ...


class BatchStream:
    """An endless iterator over batches, prefetched by a thread. Close it, or use `with`."""

    def __init__(
        self, batches: "BatchPlan", epoch: int, index: int, pin: bool, num_processes: int = 0
    ) -> None:
        self.queue: BatchQueue = queue.Queue(PREFETCH_BATCHES)
        self.closed = threading.Event()
        # The thread refers to the queue, not to the stream: an unclosed stream can be garbage collected.
        work = (iterate_batches(batches, epoch, index, num_processes), pin, self.queue, self.closed)
        self.thread = threading.Thread(target=fill_queue, args=work, daemon=True)
        self.thread.start()
        weakref.finalize(self, self.closed.set)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.closed.is_set():
            raise StopIteration
        item = self.queue.get()
        if isinstance(item, BaseException):
            self.queue.put(item)
            raise item
        return item

    def __enter__(self) -> "BatchStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed.set()
        self.thread.join()


BatchQueue = queue.Queue[Batch | BaseException]


def fill_queue(
    batches: Generator[Batch], pin: bool, batch_queue: BatchQueue, closed: threading.Event
) -> None:
    """Run in the background thread. Errors are passed on to the reader of the next batch."""
    try:
        with closing(batches):  # ends its processes
            for batch in batches:
                put_unless_closed(batch.pin_memory() if pin else batch, batch_queue, closed)
                if closed.is_set():
                    return
    except BaseException as error:
        put_unless_closed(error, batch_queue, closed)


def put_unless_closed(item: Batch | BaseException, batch_queue: BatchQueue, closed: threading.Event) -> None:
    while not closed.is_set():
        with suppress(queue.Full):
            batch_queue.put(item, timeout=0.1)
            break


def iterate_batches(batches: "BatchPlan", epoch: int, index: int, num_processes: int = 0) -> Generator[Batch]:
    """Yield batches without end. With processes, twice as many batches are in work at the same time."""
    positions = iterate_positions(batches, epoch, index)
    if not num_processes:
        yield from starmap(batches.get_batch, positions)
        return
    with batches.augment_in_processes(num_processes), ThreadPoolExecutor(2 * num_processes) as threads:
        pending: deque[Future[Batch]] = deque()
        for position in positions:
            pending.append(threads.submit(batches.get_batch, *position))
            if len(pending) == 2 * num_processes:
                yield pending.popleft().result()


def iterate_positions(batches: "BatchPlan", epoch: int, index: int) -> Iterator[tuple[int, int]]:
    for number in count(epoch):
        start = index if number == epoch else 0
        for position in range(start, batches.count_batches(number)):
            yield number, position
