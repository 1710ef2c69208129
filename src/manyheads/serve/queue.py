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

from manyheads.serve.limits import ServerLimits

LOG = logging.getLogger("manyheads.serve")
MAX_RETRY_AFTER = 60  # seconds that anyone is told to stay away


class BatchTask(Protocol):
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

    task: BatchTask
    items: Sequence[Any]
    future: "asyncio.Future[list[Any]]"
    arrived_at: float = field(default_factory=time.monotonic)
    num_tokens: int | None = None  # counted when its turn comes near


@dataclass(frozen=True)
class BatchStats:
    """What is told of some jobs that were done together."""

    num_jobs: int
    num_tokens: int
    seconds: float
    wait_seconds: list[float]  # seconds, of each job


class JobQueue:
    """The places to wait, and the thread that works."""

    def __init__(
        self, limits: ServerLimits, on_batch: Callable[[BatchStats], None] = lambda batch: None
    ) -> None:
        self.limits, self.on_batch = limits, on_batch
        self.waiting: dict[Job, None] = {}  # in the order of arrival
        self.incoming = 0  # requests that are here whole, but not read yet
        self.seconds_per_job = 0.0  # seconds of work a job, lately
        self.has_jobs = asyncio.Event()
        self.executor = ThreadPoolExecutor(1, "translating")

    @property
    def is_full(self) -> bool:
        return len(self.waiting) + self.incoming >= self.limits.queue_size

    @property
    def retry_after(self) -> int:
        """Seconds in which what waits now should be done."""
        return min(MAX_RETRY_AFTER, max(1, math.ceil(len(self.waiting) * self.seconds_per_job)))

    def submit(self, task: BatchTask, items: Sequence[Any]) -> Job:
        """A place in the queue. Whoever cancels the job's answer gives it back."""
        if len(self.waiting) >= self.limits.queue_size:
            raise QueueFull
        job = Job(task, items, asyncio.get_running_loop().create_future())
        self.waiting[job] = None
        job.future.add_done_callback(lambda _: self.waiting.pop(job, None))
        self.has_jobs.set()
        return job

    async def run(self) -> None:
        """Works until it is canceled."""
        try:
            while True:
                await self.has_jobs.wait()
                await asyncio.sleep(self.limits.batch_wait)
                await self._run_next_batch()
                if not self.waiting:
                    self.has_jobs.clear()
        finally:
            self.executor.shutdown(wait=False)

    async def _run_next_batch(self) -> None:
        """Whatever goes wrong is that of the jobs that it was done for, and not of those that come after."""
        first = next(iter(self.waiting), None)
        batch: list[Job] = []
        try:
            batch = await self._next_batch()
            await self._execute(batch)
        except Exception as fault:
            where = "".join(traceback.format_tb(fault.__traceback__))
            LOG.error("%s in the queue\n%s", type(fault).__name__, where)  # its message may quote a text
            for job in batch or ([first] if first else []):
                if not job.future.done():
                    job.future.set_exception(fault)

    async def _next_batch(self) -> list[Job]:
        """Of the kind of the one that waits longest."""
        first = next(iter(self.waiting), None)
        if first is None:
            return []
        most = self.limits.batch_tokens
        alike = [job for job in self.waiting if job.task == first.task][:most]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.executor, count_tokens, alike, most)
        batch: list[Job] = []
        tokens = 0
        for job in alike:
            if job.future.done():
                continue
            if job.num_tokens is None or (batch and tokens + job.num_tokens > most):
                break
            batch.append(job)
            tokens += job.num_tokens
            del self.waiting[job]
        return batch

    async def _execute(self, batch: list[Job]) -> None:
        if not batch:
            return
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        outcomes = await loop.run_in_executor(self.executor, run_jobs, batch)
        seconds = time.monotonic() - start
        self.seconds_per_job += 0.2 * (seconds / len(batch) - self.seconds_per_job)
        self.on_batch(
            BatchStats(
                len(batch),
                sum(job.num_tokens or 0 for job in batch),
                seconds,
                [start - job.arrived_at for job in batch],
            )
        )
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.future.done():  # its client left meanwhile
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
            else:
                job.future.set_result(outcome)


def count_tokens(jobs: Sequence[Job], max_tokens: int) -> None:
    """Of jobs that were not counted yet, as far as they may go together."""
    total = 0
    for job in jobs:
        if job.num_tokens is None:
            # What cannot even be counted is found out when its turn comes.
            job.num_tokens = 1
            with suppress(Exception):
                job.num_tokens = max(1, job.task.size(job.items))
        total += job.num_tokens
        if total > max_tokens:
            return


def run_jobs(batch: Sequence[Job]) -> list[list[Any] | Exception]:
    """Of each job, or why there is none. One that cannot be done does not spoil the others."""
    try:
        done = iter(batch[0].task.run([item for job in batch for item in job.items]))
        return [[next(done) for _ in job.items] for job in batch]
    except StopIteration:
        return [RuntimeError("fewer results than items")] * len(batch)
    except Exception as fault:
        if len(batch) == 1:
            return [fault]
    return [one for job in batch for one in run_jobs([job])]
