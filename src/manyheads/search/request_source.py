"""Where the requests of a stream come from: an iterator, or a feed that other threads fill meanwhile.

An engine takes what is there and goes on with what it has. It waits only when it has nothing else to do.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol, runtime_checkable

from manyheads.search.options import Request


@runtime_checkable
class RequestSource(Protocol):
    """Requests that arrive while others are decoded. They are numbered in the order they are taken in."""

    @property
    def starts_at_once(self) -> bool:
        """Whether a request starts as soon as there is space, instead of with others of its length."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left and nothing more will come."""
        ...

    def take(self, count: int) -> list[Request]:
        """Remove and return what is there now, at most this many. Never waits."""
        ...

    def take_canceled(self) -> list[int]:
        """Return the numbers of requests that were taken and whose results nobody needs any more, once."""
        ...

    def wait(self) -> None:
        """Wait until there is a request, or until there will never be another."""
        ...


class RequestFeed:
    """A RequestSource that other threads put requests into, in the order they are to be numbered in.

    Engines that know iterables only can iterate over it.
    """

    def __init__(self, *, starts_at_once: bool = False) -> None:
        self.starts_at_once = starts_at_once
        self._waiting: deque[Request] = deque()
        self._is_closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, requests: Iterable[Request]) -> None:
        with self._changed:
            self._waiting.extend(requests)
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes. An error is raised where the requests before it have been taken."""
        with self._changed:
            self._is_closed, self._error = True, self._error or error
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_exhausted(self) -> bool:
        return self._is_closed and not self._waiting and self._error is None

    def take(self, count: int) -> list[Request]:
        with self._changed:
            if not self._waiting and self._error is not None:
                error, self._error = self._error, None
                raise error
            return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def take_canceled(self) -> list[int]:
        return []

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)

    def __iter__(self) -> Iterator[Request]:
        while not self.is_exhausted:
            self.wait()
            yield from self.take(1)


class IteratorSource:
    """A RequestSource over an iterable, which blocks while it reads."""

    starts_at_once = False

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self.is_exhausted = False

    def take(self, count: int | None) -> list[Request]:
        """Return so many requests, or all of them. Fewer mean that there are no more."""
        requests = list(islice(self._requests, count))
        self.is_exhausted = count is None or len(requests) < count
        return requests

    def take_canceled(self) -> list[int]:
        return []

    def wait(self) -> None:
        """Nothing to wait for: `take` does."""
