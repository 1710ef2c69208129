"""The queue of requests: those that arrive together are translated together.

The event loop holds the waiting requests, and one worker thread runs the model, so that all other requests
are answered meanwhile. Whenever the worker is free, it takes the oldest request and those behind it with an
equal task, up to a number of tokens. A request whose client disconnects, or that times out, leaves the queue
at once.
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
MAX_RETRY_AFTER = 60  # seconds


class BatchTask(Protocol):
    """What to do with items. Items of equal tasks can be run in one batch."""

    def size(self, items: Sequence[Any]) -> int:
        """Return the number of tokens."""
        ...

    def run(self, items: Sequence[Any]) -> list[Any]:
        """Return one result per item."""
        ...


class QueueFull(Exception):
    """The queue has as many jobs as its limit allows."""


@dataclass(eq=False)
class Job:
    """The items of one request."""

    task: BatchTask
    items: Sequence[Any]
    future: "asyncio.Future[list[Any]]"
    arrived_at: float = field(default_factory=time.monotonic)
    num_tokens: int | None = None  # counted shortly before it runs


@dataclass(frozen=True)
class BatchStats:
    """Measurements of a batch that has run."""

    num_jobs: int
    num_tokens: int
    seconds: float
    wait_seconds: list[float]  # of each job


class JobQueue:
    """The waiting jobs, and the worker thread."""

    def __init__(
        self, limits: ServerLimits, on_batch: Callable[[BatchStats], None] = lambda batch: None
    ) -> None:
        self.limits, self.on_batch = limits, on_batch
        self.waiting: dict[Job, None] = {}  # in order of arrival
        self.incoming = 0  # requests that were received, but not parsed yet
        self.seconds_per_job = 0.0  # moving average
        self.has_jobs = asyncio.Event()
        self.executor = ThreadPoolExecutor(1, "manyheads-worker")

    @property
    def is_full(self) -> bool:
        return len(self.waiting) + self.incoming >= self.limits.queue_size

    @property
    def full_message(self) -> str:
        return f"the queue is full: {self.limits.queue_size} requests are waiting"

    @property
    def retry_after(self) -> int:
        """Seconds in which the waiting jobs should be done."""
        return min(MAX_RETRY_AFTER, max(1, math.ceil(len(self.waiting) * self.seconds_per_job)))

    def submit(self, task: BatchTask, items: Sequence[Any]) -> Job:
        """Add a job. Canceling its future removes it."""
        if len(self.waiting) >= self.limits.queue_size:
            raise QueueFull
        job = Job(task, items, asyncio.get_running_loop().create_future())
        self.waiting[job] = None
        job.future.add_done_callback(lambda _: self.waiting.pop(job, None))
        self.has_jobs.set()
        return job

    async def run(self) -> None:
        """Run batches until canceled."""
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
        """An error reaches the jobs of its batch, and not those that come after."""
        first = next(iter(self.waiting), None)
        batch: list[Job] = []
        try:
            batch = await self._next_batch()
            await self._execute(batch)
        except Exception as error:
            location = "".join(traceback.format_tb(error.__traceback__))
            LOG.error("%s in the queue\n%s", type(error).__name__, location)  # its message may quote a text
            for job in batch or ([first] if first else []):
                if not job.future.done():
                    job.future.set_exception(error)

    async def _next_batch(self) -> list[Job]:
        """Take the oldest job and those with an equal task that fit into a batch with it."""
        first = next(iter(self.waiting), None)
        if first is None:
            return []
        max_tokens = self.limits.batch_tokens
        candidates = [job for job in self.waiting if job.task == first.task][:max_tokens]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.executor, count_tokens, candidates, max_tokens)
        batch: list[Job] = []
        total = 0
        for job in candidates:
            if job.future.done():
                continue
            if job.num_tokens is None or (batch and total + job.num_tokens > max_tokens):
                break
            batch.append(job)
            total += job.num_tokens
            del self.waiting[job]
        return batch

    async def _execute(self, batch: list[Job]) -> None:
        if not batch:
            return
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self.executor, run_jobs, batch)
        seconds = time.monotonic() - start
        self.seconds_per_job += 0.2 * (seconds / len(batch) - self.seconds_per_job)
        num_tokens = sum(job.num_tokens or 0 for job in batch)
        self.on_batch(BatchStats(len(batch), num_tokens, seconds, [start - job.arrived_at for job in batch]))
        for job, result in zip(batch, results, strict=True):
            if job.future.done():  # its client disconnected meanwhile
                continue
            if isinstance(result, Exception):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)


def count_tokens(jobs: Sequence[Job], max_tokens: int) -> None:
    """Count the tokens of jobs, until they fill a batch."""
    total = 0
    for job in jobs:
        if job.num_tokens is None:
            # An error of counting comes up again when the job runs.
            job.num_tokens = 1
            with suppress(Exception):
                job.num_tokens = max(1, job.task.size(job.items))
        total += job.num_tokens
        if total > max_tokens:
            return


def run_jobs(batch: Sequence[Job]) -> list[list[Any] | Exception]:
    """Return the results of each job, or its error. After an error each job runs alone."""
    try:
        results = iter(batch[0].task.run([item for job in batch for item in job.items]))
        return [[next(results) for _ in job.items] for job in batch]
    except StopIteration:
        return [RuntimeError("fewer results than items")] * len(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
    return [result for job in batch for result in run_jobs([job])]
