"""Requests that arrive together are translated together.

The event loop holds the requests that wait; one thread works, so that everything else is answered meanwhile.
Whenever it is free, the request that waits longest is taken, and with it those behind it that ask for the
same kind of work, up to a number of tokens. A request whose client leaves, or whose time is over, is out of
the queue at once.
"""

import asyncio
import logging
import math
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from manyheads.serve.limits import Limits

LOG = logging.getLogger("manyheads.serve")
LONGEST_RETRY = 60  # seconds that anyone is told to stay away


class Work(Protocol):
    """What is to be done with items. Two that are equal can be done together."""

    def size(self, items: Sequence[Any]) -> int:
        """In tokens."""
        ...

    def run(self, items: Sequence[Any]) -> list[Any]:
        """A result of each item."""
        ...


class QueueFull(Exception):
    """There is no place to wait."""


@dataclass(eq=False)
class Job:
    """What one request wants done."""

    work: Work
    items: Sequence[Any]
    answer: "asyncio.Future[list[Any]]"
    arrived: float = field(default_factory=time.monotonic)
    tokens: int | None = None  # counted when its turn comes near


@dataclass(frozen=True)
class Batch:
    """What is told of some jobs that were done together."""

    jobs: int
    tokens: int
    seconds: float
    waited: list[float]  # seconds, of each job


class Queue:
    """The places to wait, and the thread that works."""

    def __init__(self, limits: Limits, tell: Callable[[Batch], None] = lambda batch: None) -> None:
        self.limits, self.tell = limits, tell
        self.waiting: dict[Job, None] = {}  # in the order of arrival
        self.coming = 0  # requests that are here whole, but not read yet
        self.pace = 0.0  # seconds of work a job, lately
        self.some = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, "translating")

    @property
    def full(self) -> bool:
        return len(self.waiting) + self.coming >= self.limits.queue

    @property
    def retry_after(self) -> int:
        """Seconds in which what waits now should be done."""
        return min(LONGEST_RETRY, max(1, math.ceil(len(self.waiting) * self.pace)))

    def submit(self, work: Work, items: Sequence[Any]) -> Job:
        """A place in the queue. Whoever cancels the job's answer gives it back."""
        if len(self.waiting) >= self.limits.queue:
            raise QueueFull
        job = Job(work, items, asyncio.get_running_loop().create_future())
        self.waiting[job] = None
        job.answer.add_done_callback(lambda _: self.waiting.pop(job, None))
        self.some.set()
        return job

    async def run(self) -> None:
        """Works until it is canceled."""
        try:
            while True:
                await self.some.wait()
                await asyncio.sleep(self.limits.gather)
                await self._round()
                if not self.waiting:
                    self.some.clear()
        finally:
            self.thread.shutdown(wait=False)

    async def _round(self) -> None:
        """Whatever goes wrong is that of the jobs that it was done for, and not of those that come after."""
        first = next(iter(self.waiting), None)
        batch: list[Job] = []
        try:
            batch = await self._next_batch()
            await self._work(batch)
        except Exception as fault:
            where = "".join(traceback.format_tb(fault.__traceback__))
            LOG.error("%s in the queue\n%s", type(fault).__name__, where)  # its message may quote a text
            for job in batch or ([first] if first else []):
                if not job.answer.done():
                    job.answer.set_exception(fault)

    async def _next_batch(self) -> list[Job]:
        """Of the kind of the one that waits longest."""
        first = next(iter(self.waiting), None)
        if first is None:
            return []
        most = self.limits.batch_tokens
        alike = [job for job in self.waiting if job.work == first.work][:most]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.thread, count_tokens, alike, most)
        batch: list[Job] = []
        tokens = 0
        for job in alike:
            if job.answer.done():
                continue
            if job.tokens is None or (batch and tokens + job.tokens > most):
                break
            batch.append(job)
            tokens += job.tokens
            del self.waiting[job]
        return batch

    async def _work(self, batch: list[Job]) -> None:
        if not batch:
            return
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        outcomes = await loop.run_in_executor(self.thread, results, batch)
        seconds = time.monotonic() - start
        self.pace += 0.2 * (seconds / len(batch) - self.pace)
        self.tell(
            Batch(
                len(batch),
                sum(job.tokens or 0 for job in batch),
                seconds,
                [start - job.arrived for job in batch],
            )
        )
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.answer.done():  # its client left meanwhile
                continue
            if isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            else:
                job.answer.set_result(outcome)


def count_tokens(jobs: Sequence[Job], most: int) -> None:
    """Of jobs that were not counted yet, as far as they may go together."""
    total = 0
    for job in jobs:
        if job.tokens is None:
            # What cannot even be counted is found out when its turn comes.
            job.tokens = 1
            with suppress(Exception):
                job.tokens = max(1, job.work.size(job.items))
        total += job.tokens
        if total > most:
            return


def results(batch: Sequence[Job]) -> list[list[Any] | Exception]:
    """Of each job, or why there is none. One that cannot be done does not spoil the others."""
    try:
        done = iter(batch[0].work.run([item for job in batch for item in job.items]))
        return [[next(done) for _ in job.items] for job in batch]
    except StopIteration:
        return [RuntimeError("fewer results than items")] * len(batch)
    except Exception as fault:
        if len(batch) == 1:
            return [fault]
    return [one for job in batch for one in results([job])]
