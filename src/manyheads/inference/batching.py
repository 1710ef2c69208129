"""How requests are grouped into batches: the speed depends on it, the result of a sentence does not.

A RequestWindow reads a stream a chunk at a time and hands out requests of similar length, the longest first
and the oldest chunk first. It reads on when few requests wait, so that the batch is full from the first
sentence to the last, and as far as its bounds allow: results are needed in order, so whatever comes after the
oldest unfinished request is held.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from manyheads.search.options import Request
from manyheads.search.request_source import IteratorSource, RequestSource
from manyheads.search.scheduler import QueuedRequest

MAX_WINDOW_TOKENS = 2**21  # of the sources that are held: with their results, some hundred megabytes
MAX_CHUNK = 1024  # requests read at once: reading more would keep a batch that has free slots waiting
MAX_SOURCE_LENGTH = 2**31  # of a group of all lengths

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
    num_tokens: int  # of the sources
    unfinished: int
    waiting: dict[Hashable, list[QueuedRequest]] = field(default_factory=dict)

    def find(self, group: Group) -> slice:
        """Return where the requests of a group are among those that wait."""
        waiting = self.waiting.get(group.key, [])
        start = bisect_left(waiting, -group.max_length, key=source_order)
        return slice(start, bisect_right(waiting, -group.min_length, start, key=source_order))

    def take(self, group: Group, count: int, accepts: Accepts | None) -> list[QueuedRequest]:
        """Remove and return the longest waiting requests of a group that are accepted."""
        span = self.find(group)
        waiting = self.waiting.get(group.key, [])
        chosen = waiting[span.start : min(span.start + count, span.stop)]
        if accepts is None or all(accepts(queued.request) for queued in chosen):
            del waiting[span.start : span.start + len(chosen)]
            return chosen
        chosen = list(islice((queued for queued in waiting[span] if accepts(queued.request)), count))
        indices = {queued.request_index for queued in chosen}
        waiting[span] = [queued for queued in waiting[span] if queued.request_index not in indices]
        return chosen


def source_order(queued: QueuedRequest) -> int:
    return -len(queued.request.source)


class RequestWindow:
    """The requests of a stream that are read but not finished.

    `size` bounds the requests from the oldest unfinished one to the newest, and `max_tokens` their tokens; a
    size of None reads the whole stream at once. `key` maps a request to what the members of a group share.
    It reads on while fewer than `min_waiting` wait: so many at first, and then twice as many each time, up to
    a quarter of the size. `check` may refuse a request, or return another in its place.
    """

    def __init__(
        self,
        requests: Iterable[Request] | RequestSource,
        size: int | None,
        key: Callable[[Request], Hashable],
        *,
        check: Callable[[Request], Request] | None = None,
        min_waiting: int | None = None,
        max_tokens: int = MAX_WINDOW_TOKENS,
    ) -> None:
        self.is_live = isinstance(requests, RequestSource)
        self.source = requests if isinstance(requests, RequestSource) else IteratorSource(requests)
        self.size, self.key, self.check, self.max_tokens = size, key, check, max_tokens
        self.max_chunk = None if size is None else max(1, min(MAX_CHUNK, size // 4))
        self.min_waiting = min(min_waiting or 2**31, size or 2**31)
        self.chunk_size = self.max_chunk and min(self.min_waiting, self.max_chunk)
        self.chunks: deque[Chunk] = deque()
        self.num_read = self.num_waiting = self.num_tokens = 0
        self.read()

    @property
    def has_ended(self) -> bool:
        return self.source.is_exhausted

    def next_key(self) -> Hashable | None:
        """Return the key of the requests to be decoded next, or None if none wait."""
        for chunk in self.chunks:
            for key, waiting in chunk.waiting.items():
                if waiting:
                    return key
        return None

    def open_group(self, key: Hashable, short_length: int) -> "GroupQueue":
        """Return a queue of the longest requests of this key and of those at least half as long.

        All go together if the longest has at most `short_length` tokens, or if they are to start at once.
        """
        if self.source.starts_at_once:
            return GroupQueue(self, Group(key, MAX_SOURCE_LENGTH, 0))
        waiting = next(chunk.waiting[key] for chunk in self.chunks if chunk.waiting.get(key))
        longest = len(waiting[0].request.source)
        if longest <= short_length:
            return GroupQueue(self, Group(key, short_length, 0))
        return GroupQueue(self, Group(key, longest, -(-longest // 2)))

    def take_batch(
        self, max_requests: Callable[[int], int], num_workers: int
    ) -> tuple[Hashable, list[QueuedRequest]]:
        """Remove and return requests of similar length and their key. All workers share the last ones.

        `max_requests` maps the longest source to the requests of a batch. No requests: none wait.
        """
        key = self.next_key()
        if key is None:
            return None, []
        waiting = [chunk.waiting[key] for chunk in self.chunks if chunk.waiting.get(key)]
        longest, num_waiting = len(waiting[0][0].request.source), sum(map(len, waiting))
        count = min(max_requests(longest), -(-num_waiting // num_workers))
        return key, self.open_group(key, short_length=0).take(max(1, count))

    def finish(self, indices: Sequence[int]) -> None:
        """Note that requests have their results, and read on as far as the bounds allow."""
        last_indices = [chunk.last_index for chunk in self.chunks]
        for number, count in Counter([bisect_left(last_indices, index) for index in indices]).items():
            self.chunks[number].unfinished -= count
        while self.chunks and not self.chunks[0].unfinished:
            self.num_tokens -= self.chunks.popleft().num_tokens
        self.read(0)

    def take_canceled(self) -> list[int]:
        """Drop requests whose results nobody needs any more. Return those that a search has taken already."""
        canceled = self.source.take_canceled()
        if not canceled:
            return []
        in_search = set(canceled)
        for chunk in self.chunks:
            for key, waiting in chunk.waiting.items():
                dropped = {queued.request_index for queued in waiting} & in_search
                if dropped:
                    chunk.waiting[key] = [queued for queued in waiting if queued.request_index not in dropped]
                    in_search -= dropped
                    self.num_waiting -= len(dropped)
        self.finish(canceled)
        return sorted(in_search)

    def read(self, num_free: int = 1) -> None:
        """Read on if few requests wait. A source whose requests start at once is read into free slots."""
        while not self.source.is_exhausted and (count := self._count_to_read()) != 0:
            if count is not None and self.source.starts_at_once:
                count = min(count, max(0, num_free - self.num_waiting))
            requests = self.source.take(count)  # type: ignore[arg-type]  # None reads all, of iterables
            if requests:
                self._add(requests if self.check is None else list(map(self.check, requests)))
            if self.is_live or not requests:
                return

    def _count_to_read(self) -> int | None:
        """Return how many requests to read: None for all, 0 if enough wait or the window is full."""
        if self.size is None or self.max_chunk is None or self.chunk_size is None:
            return 2**31 if self.is_live else None
        if self.num_waiting >= self.min_waiting:
            return 0
        num_held = self.num_read - self.chunks[0].first_index if self.chunks else 0
        if num_held and self.num_tokens >= self.max_tokens:
            return 0
        return min(self.chunk_size, self.size - num_held)

    def _add(self, requests: list[Request]) -> None:
        lengths = [len(request.source) for request in requests]
        first, count = self.num_read, len(requests)
        chunk = Chunk(first, first + count - 1, sum(lengths), count)
        for place in sorted(range(count), key=lengths.__getitem__, reverse=True):
            queued = QueuedRequest(first + place, requests[place])
            chunk.waiting.setdefault(self.key(queued.request), []).append(queued)
        self.chunks.append(chunk)
        self.num_read += count
        self.num_waiting += count
        self.num_tokens += chunk.num_tokens
        if self.chunk_size is not None and self.max_chunk is not None and count >= self.chunk_size:
            self.chunk_size = min(2 * self.chunk_size, self.max_chunk)


class GroupQueue:
    """The waiting requests of a group, for a search to take as it has free slots."""

    def __init__(self, window: RequestWindow, group: Group) -> None:
        self.window, self.group = window, group
        self.accepts: Accepts | None = None  # a search of fixed size may not take every request

    @property
    def starts_at_once(self) -> bool:
        return self.window.source.starts_at_once

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return waiting requests, the oldest chunk's first, at most this many."""
        if self.window.is_live:
            self.window.read(count)
        chosen: list[QueuedRequest] = []
        for chunk in self.window.chunks:
            if len(chosen) < count:
                chosen += chunk.take(self.group, count - len(chosen), self.accepts)
        self.window.num_waiting -= len(chosen)
        return chosen

    def take_canceled(self) -> list[int]:
        return self.window.take_canceled()

    @property
    def is_exhausted(self) -> bool:
        """Whether the group has no waiting request and the stream has ended."""
        if not self.window.has_ended:
            return False
        span = (chunk.find(self.group) for chunk in self.window.chunks)
        return all(part.start == part.stop for part in span)

    def peek(self) -> list[Request]:
        """Return all waiting requests of the group."""
        return [
            queued.request
            for chunk in self.window.chunks
            for queued in chunk.waiting.get(self.group.key, [])[chunk.find(self.group)]
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
