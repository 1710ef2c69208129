"""How requests are grouped into batches: the speed depends on it, the result of a sentence does not.

A RequestWindow reads a stream a chunk at a time and hands out requests of similar length, the longest first.
It holds two chunks: while the last sentences of one are decoded, those of the next take the free slots, so
that the batch does not drain between chunks. When a chunk is finished, the next is read.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from manyheads.search.options import Request
from manyheads.search.scheduler import QueuedRequest

Accepts = Callable[[Request], bool]

# ---- a stream of requests


@dataclass(frozen=True)
class Group:
    """Requests that are decoded together."""

    key: Hashable  # what they have in common
    max_length: int  # of their sources
    min_length: int


@dataclass
class Chunk:
    """Consecutive requests of the stream: those that wait, the longest first, and how many are unfinished."""

    first_index: int
    last_index: int
    unfinished: int
    waiting: dict[Hashable, list[QueuedRequest]] = field(default_factory=dict)

    def has_waiting(self, group: Group) -> bool:
        waiting = self.waiting.get(group.key, [])
        start = bisect_left(waiting, -group.max_length, key=source_order)
        return start < len(waiting) and len(waiting[start].request.source) >= group.min_length

    def take(self, group: Group, count: int, accepts: Accepts | None) -> list[QueuedRequest]:
        """Remove and return the longest waiting requests of a group that are accepted."""
        waiting = self.waiting.get(group.key, [])
        start = bisect_left(waiting, -group.max_length, key=source_order)
        end = bisect_right(waiting, -group.min_length, key=source_order)
        if accepts is None:
            chosen = waiting[start : min(start + count, end)]
            del waiting[start : start + len(chosen)]
            return chosen
        chosen = list(islice((queued for queued in waiting[start:end] if accepts(queued.request)), count))
        indices = {queued.request_index for queued in chosen}
        waiting[start:end] = [queued for queued in waiting[start:end] if queued.request_index not in indices]
        return chosen


def source_order(queued: QueuedRequest) -> int:
    return -len(queued.request.source)


class RequestWindow:
    """The requests of a stream that are read but not finished.

    `size` bounds the requests from the oldest unfinished one to the newest; None reads the whole stream at
    once. `key` maps a request to what the members of a group share.
    """

    def __init__(
        self, requests: Iterable[Request], size: int | None, key: Callable[[Request], Hashable]
    ) -> None:
        self.requests, self.size, self.key = iter(requests), size, key
        self.chunk_size = None if size is None else max(1, size // 2)
        self.chunks: deque[Chunk] = deque()
        self.num_read = 0
        self.has_ended = False
        self.read_chunks()

    def next_key(self) -> Hashable | None:
        """Return the key of the requests to be decoded next, or None if none wait."""
        for chunk in self.chunks:
            for key, waiting in chunk.waiting.items():
                if waiting:
                    return key
        return None

    def open_group(self, key: Hashable, short_length: int) -> "GroupQueue":
        """Return a queue of the longest requests of this key and of those at least half as long.

        All go together if the longest has at most `short_length` tokens.
        """
        waiting = next(chunk.waiting[key] for chunk in self.chunks if chunk.waiting.get(key))
        longest = len(waiting[0].request.source)
        if longest <= short_length:
            return GroupQueue(self, Group(key, short_length, 0))
        return GroupQueue(self, Group(key, longest, -(-longest // 2)))

    def finish(self, indices: Sequence[int]) -> None:
        """Note that requests have their results, and read on as far as the size allows."""
        last_indices = [chunk.last_index for chunk in self.chunks]
        for number, count in Counter(bisect_left(last_indices, index) for index in indices).items():
            self.chunks[number].unfinished -= count
        self.read_chunks()

    def read_chunks(self) -> None:
        """Forget finished chunks and read new ones as far as the size allows."""
        while self.chunks and not self.chunks[0].unfinished:
            self.chunks.popleft()
        while not self.has_ended and self._has_space():
            requests = list(islice(self.requests, self.chunk_size))
            self.has_ended = self.chunk_size is None or len(requests) < self.chunk_size
            if requests:
                self.chunks.append(self._sort(requests))

    def _has_space(self) -> bool:
        if self.size is None or self.chunk_size is None or not self.chunks:
            return True
        num_held = self.num_read - self.chunks[0].first_index
        return num_held + self.chunk_size <= self.size

    def _sort(self, requests: list[Request]) -> Chunk:
        new = [QueuedRequest(self.num_read + n, request) for n, request in enumerate(requests)]
        self.num_read += len(new)
        chunk = Chunk(new[0].request_index, new[-1].request_index, len(new))
        for queued in sorted(new, key=source_order):
            chunk.waiting.setdefault(self.key(queued.request), []).append(queued)
        return chunk


class GroupQueue:
    """The waiting requests of a group, for a search to take as it has free slots."""

    def __init__(self, window: RequestWindow, group: Group) -> None:
        self.window, self.group = window, group
        self.accepts: Accepts | None = None  # a search of fixed size may not take every request

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return waiting requests, the oldest chunk's first, at most this many."""
        chosen: list[QueuedRequest] = []
        for chunk in self.window.chunks:
            if len(chosen) < count:
                chosen += chunk.take(self.group, count - len(chosen), self.accepts)
        return chosen

    @property
    def is_exhausted(self) -> bool:
        """Whether the group has no waiting request and the stream has ended."""
        return self.window.has_ended and not any(
            chunk.has_waiting(self.group) for chunk in self.window.chunks
        )

    def peek(self) -> list[Request]:
        """Return all waiting requests of the group."""
        group = self.group
        return [
            queued.request
            for chunk in self.window.chunks
            for queued in chunk.waiting.get(group.key, [])
            if group.min_length <= len(queued.request.source) <= group.max_length
        ]


# ---- sentences that are all known


def group_by_tokens(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the indices of sentences of similar length, with about `max_tokens` tokens a group."""
    group: list[int] = []
    num_tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if group and num_tokens + lengths[index] > max_tokens:
            yield group
            group, num_tokens = [], 0
        group.append(index)
        num_tokens += lengths[index]
    if group:
        yield group


def group_in_order(lengths: Sequence[int], max_tokens: int) -> Iterator[slice]:
    """Yield slices of consecutive sentences with at most `max_tokens` tokens; a longer one goes alone."""
    offsets, start = np.cumsum([0, *lengths]), 0
    while start < len(lengths):
        end = int(np.searchsorted(offsets, offsets[start] + max_tokens, "right")) - 1
        end = max(start + 1, end)
        yield slice(start, end)
        start = end


def sort_into_chunks(lengths: Sequence[int], chunk_size: int) -> Iterator[list[int]]:
    """Yield the indices of sentences by length, the shortest first, so many at a time."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for start in range(0, len(order), chunk_size):
        yield order[start : start + chunk_size]
