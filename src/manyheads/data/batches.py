"""Batches (5.1): about N source and N target tokens each, sentences of like length together.

The order of an epoch is a pure function of (seed, epoch): nothing is kept between batches, so a run that
starts at batch k reads what the uninterrupted one would have read. A batch is the same whatever the number of
ranks; each takes every world-th pair of it, and as these are of like length, all have about the same to do.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config import BOS_ID, DataConfig
from manyheads.data import subword_regularization as resplit
from manyheads.data.store import Side, Split
from manyheads.data.subword_regularization import concat_ranges
from manyheads.errors import DataError
from manyheads.packed import Packed
from manyheads.text.subwords import SubwordPair, TokenSequences

PREFETCH_BATCHES = 4  # batches made ready while the model works
RNG_PURPOSES = ("order", "phases")  # of random numbers


@dataclass(frozen=True, eq=False)
class Batch:
    """What a training step reads. Source and labels end with the end token; inputs begin with begin."""

    source: Packed
    inputs: Packed
    labels: Packed
    pairs: NDArray[np.int64]  # which of the split's
    epoch: int
    index: int  # of the epoch

    def to(self, device: torch.device | str) -> "Batch":
        return self._map(lambda packed: packed.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """In page-locked memory, out of which a GPU copies while it computes."""
        return self._map(Packed.pin_memory)

    def split_micro_batches(self, max_tokens: int | None) -> Iterator["Batch"]:
        """The batch in parts of at most so many tokens a side (or a single pair), in its order."""
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

    def _map(self, change: Callable[[Packed], Packed]) -> "Batch":
        source, inputs, labels = change(self.source), change(self.inputs), change(self.labels)
        return replace(self, source=source, inputs=inputs, labels=labels)


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """An epoch: pairs in the order they are read, and where each batch begins."""

    order: NDArray[np.int64]  # [readings]
    bounds: NDArray[np.int64]  # [batches + 1]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def get_pairs(self, index: int) -> NDArray[np.int64]:
        return self.order[self.bounds[index] : self.bounds[index + 1]]


class Batches:
    """The batches of a split, epoch after epoch, for one rank of several.

    `subwords` are needed where the config asks for splitting words anew.
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
    ) -> None:
        if not 0 <= rank < world_size:
            raise DataError(f"rank {rank} of {world_size}: ranks run from 0 to one below their number")
        if seed < 0:
            raise DataError(f"seed {seed}: seeds are not negative")
        self.split, self.config, self.seed, self.rank, self.world_size = split, config, seed, rank, world_size
        self.regularizers = resplit.make_regularizers(subwords, config.subword_regularization, seed)
        longest = min(config.max_length, config.batch_tokens)
        fits = np.maximum(split.source.lengths, split.target.lengths) <= longest
        self.usable = np.flatnonzero(fits)
        self.too_long = np.flatnonzero(~fits)  # pairs that no batch has; the caller reports them
        if not len(self.usable):
            raise DataError(
                f"none of {len(split):,} pairs has at most {longest} tokens a side "
                f"(data.max_length, data.batch_tokens): raise them, or add pairs"
            )
        self.plan = lru_cache(maxsize=2)(self._plan)

    def _plan(self, epoch: int) -> EpochPlan:
        """Pairs are shuffled, sorted by length, cut into batches, and the batches shuffled."""
        chance = self._make_rng("order", epoch)
        readings = self._repeat_by_weight(epoch)
        shuffled = readings[chance.permutation(len(readings))]
        ordered = shuffled[sort_by_length(self.split, shuffled)]
        bounds = find_batch_bounds(self.split, ordered, self.config.batch_tokens)
        return shuffle_batches(ordered, bounds, chance)

    def _make_rng(self, purpose: str, number: int) -> np.random.Generator:
        """Randomness of its own for each purpose, by the seed."""
        key = (RNG_PURPOSES.index(purpose), number)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def _repeat_by_weight(self, epoch: int) -> NDArray[np.int64]:
        """Every pair as often as its input's weight says: n w times in n epochs, rounded either way.

        A pair's phase, fixed by the seed, says in which epochs the fractions add up to a reading.
        """
        edges = np.searchsorted(self.usable, np.cumsum([0, *(pairs for _, _, pairs in self.split.parts)]))
        readings = []
        for number, (_, weight, _) in enumerate(self.split.parts):
            own = self.usable[edges[number] : edges[number + 1]]
            phases = self._make_rng("phases", number).permutation(len(own)) / max(1, len(own))
            times = np.floor((epoch + 1) * weight + phases) - np.floor(epoch * weight + phases)
            readings.append(own if weight == 1 else np.repeat(own, times.astype(np.int64)))
        return np.concatenate(readings)

    def count_batches(self, epoch: int) -> int:
        """Batches of an epoch, the same for every rank."""
        return len(self.plan(epoch))

    def get_batch(self, epoch: int, index: int) -> Batch:
        """This rank's share of a batch."""
        if not (epoch >= 0 and 0 <= index < self.count_batches(epoch)):
            raise DataError(
                f"batch {index} of epoch {epoch}, which has {self.count_batches(max(0, epoch)):,} of them"
            )
        share = self.plan(epoch).get_pairs(index)[self.rank :: self.world_size]
        source = gather_sentences(self.split.source, share)
        target = gather_sentences(self.split.target, share)
        if self.regularizers:
            keys = (epoch << 32) + share
            source, target = (
                side.resample(pieces, keys, self.config.max_length)
                for side, pieces in zip(self.regularizers, (source, target), strict=True)
            )
        labels = Packed.from_arrays(target.ids, target.offsets)
        inputs = Packed(torch.from_numpy(shift_right(target)), labels.offsets, labels.max_length)
        return Batch(Packed.from_arrays(source.ids, source.offsets), inputs, labels, share, epoch, index)

    def stream(self, epoch: int = 0, index: int = 0, *, pin: bool = False) -> "BatchStream":
        """Batches from there on without end, made ready in the background. Pinned memory is for CUDA."""
        return BatchStream(self, epoch, index, pin)


# ---- the order


def sort_by_length(split: Split, pairs: NDArray[np.int64]) -> NDArray[np.intp]:
    """The places of the pairs by source length, then target length; equal ones stay in their shuffled order.

    Two stable sorts over 16 bits, which NumPy does by counting.
    """
    first = np.argsort(clip_lengths(split.target, pairs), kind="stable")
    return first[np.argsort(clip_lengths(split.source, pairs)[first], kind="stable")]


def clip_lengths(side: Side, pairs: NDArray[np.int64]) -> NDArray[np.uint16]:
    return np.minimum(side.lengths[pairs], 0xFFFF).astype(np.uint16)


def find_batch_bounds(split: Split, ordered: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    """Where batches begin: each takes pairs as long as neither side goes beyond `tokens`."""
    sums = [np.cumsum(side.lengths[ordered], dtype=np.int64) for side in (split.source, split.target)]
    bounds = [0]
    while bounds[-1] < len(ordered):
        used = [int(total[bounds[-1] - 1]) if bounds[-1] else 0 for total in sums]
        ends = [
            np.searchsorted(total, past + tokens, side="right")
            for total, past in zip(sums, used, strict=True)
        ]
        bounds.append(int(min(ends)))
    return np.array(bounds, np.int64)


def shuffle_batches(
    ordered: NDArray[np.int64], bounds: NDArray[np.int64], chance: np.random.Generator
) -> EpochPlan:
    sequence = chance.permutation(len(bounds) - 1)
    sizes = np.diff(bounds)[sequence]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return EpochPlan(ordered[concat_ranges(bounds[:-1][sequence], sizes)], starts)


# ---- the tokens


def gather_sentences(side: Side, pairs: NDArray[np.int64]) -> TokenSequences:
    """The sentences of some pairs, laid end to end."""
    starts = np.asarray(side.offsets[pairs])
    sizes = np.asarray(side.offsets[pairs + 1]) - starts
    return TokenSequences(
        side.tokens[concat_ranges(starts, sizes)].astype(np.int64), np.concatenate([[0], np.cumsum(sizes)])
    )


def shift_right(target: TokenSequences) -> NDArray[np.int64]:
    """The decoder's input: begin, then each label but the last (3.1)."""
    inputs = np.empty_like(target.ids)
    inputs[1:] = target.ids[:-1]
    inputs[target.offsets[:-1]] = BOS_ID
    return inputs


# ---- ahead of the model


class BatchStream:
    """Batches from some point on, a few of them ready before they are asked for. Close it, or use `with`."""

    def __init__(self, batches: Batches, epoch: int, index: int, pin: bool) -> None:
        self.queue: BatchQueue = queue.Queue(PREFETCH_BATCHES)
        self.closed = threading.Event()
        # The thread knows the queue and not the stream, which can therefore be forgotten unclosed.
        work = (iterate_batches(batches, epoch, index), pin, self.queue, self.closed)
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


def fill_queue(batches: Iterator[Batch], pin: bool, ready: BatchQueue, closed: threading.Event) -> None:
    """The background thread's work. Its faults belong to whoever asks for the next batch."""
    try:
        for batch in batches:
            put_unless_closed(batch.pin_memory() if pin else batch, ready, closed)
            if closed.is_set():
                return
    except BaseException as fault:
        put_unless_closed(fault, ready, closed)


def put_unless_closed(item: Batch | BaseException, ready: BatchQueue, closed: threading.Event) -> None:
    while not closed.is_set():
        with suppress(queue.Full):
            ready.put(item, timeout=0.1)
            break


def iterate_batches(batches: Batches, epoch: int, index: int) -> Iterator[Batch]:
    for number in count(epoch):
        for place in range(index if number == epoch else 0, batches.count_batches(number)):
            yield batches.get_batch(number, place)
