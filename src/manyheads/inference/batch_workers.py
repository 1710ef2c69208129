"""Threads that decode batches of their own, each on its share of a CPU's cores.

Threads that work on one batch wait for each other at every operation of a step. For the small operations of
a decoding step that takes longer than the work, above all beside other busy processes.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import torch

from manyheads.search.options import Hypothesis

Results = list[tuple[int, list[Hypothesis]]]  # the index of each request, and its hypotheses


class BatchWorkers:
    """Runs batches in threads and collects their results, in the order they are found."""

    def __init__(self, num_workers: int) -> None:
        self.num_batches = 0  # in work or queued
        self._executor = ThreadPoolExecutor(num_workers, "manyheads decoder")
        self._results: SimpleQueue[Results | BaseException | None] = SimpleQueue()  # None: a batch has ended
        self._is_stopped = threading.Event()

    def submit(self, decode: Callable[[], Iterable[Results]]) -> None:
        """Queue a batch."""
        self.num_batches += 1
        self._executor.submit(self._run, decode)

    def wait(self) -> Results:
        """Wait for the next results, which may be none: a batch has ended. Raises what a batch raised."""
        results = self._results.get()
        if isinstance(results, BaseException):
            raise results
        self.num_batches -= results is None
        return results or []

    def check_stopped(self) -> None:
        """End a batch whose results nobody reads any more."""
        if self._is_stopped.is_set():
            raise RuntimeError("the search was stopped")

    def stop(self) -> None:
        """End all batches: those in work at their next step."""
        self._is_stopped.set()
        self._executor.shutdown(cancel_futures=True)

    def _run(self, decode: Callable[[], Iterable[Results]]) -> None:
        try:
            for results in decode():
                self._results.put(results)
            self._results.put(None)
        except BaseException as error:
            self._results.put(error)


class _ThreadLimit:
    """How many searches limit torch's threads now, and how many threads there were before."""

    lock = threading.Lock()
    num_users = 0
    num_threads = 1


@contextmanager
def limit_torch_threads(num_threads: int) -> Iterator[None]:
    """Let an operation of torch use so many threads. The whole process shares the setting."""
    limit = _ThreadLimit
    with limit.lock:
        if not limit.num_users:
            limit.num_threads = torch.get_num_threads()
        limit.num_users += 1
        torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        with limit.lock:
            limit.num_users -= 1
            if not limit.num_users:
                torch.set_num_threads(limit.num_threads)
