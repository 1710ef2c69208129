"""The queue of requests.

The event loop holds the waiting requests, and other threads run the models, so that all other requests are
answered meanwhile. Translations join a batch that is running (continuous.py) where the engine can do that.
Other tasks are run in batches: whenever a worker is free, it takes the oldest request and those behind it
with an equal task, up to a number of tokens. A request whose client disconnects, or that times out, leaves
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
from typing import Any

from manyheads.serve.continuous import ContinuousBatcher, Outcome
from manyheads.serve.jobs import BatchStats, BatchTask, Job, run_jobs
from manyheads.serve.limits import ServerLimits

LOG = logging.getLogger("manyheads.serve")
MAX_RETRY_AFTER = 60  # seconds
MAX_BATCH_TOKENS = 1024  # of a batch that no other request can join


class QueueFull(Exception):
    """The queue has as many jobs as its limit allows."""


class JobQueue:
    """The waiting jobs, and the threads that run them."""

    def __init__(
        self,
        limits: ServerLimits,
        on_batch: Callable[[BatchStats], None] = lambda batch: None,
        num_workers: int = 1,
    ) -> None:
        self.limits, self.on_batch, self.num_workers = limits, on_batch, num_workers
        self.waiting: dict[Job, None] = {}  # in order of arrival
        self.unjoined: dict[Job, None] = {}  # those of them that are run in batches
        self.incoming = 0  # requests that were received, but not parsed yet
        self.seconds_per_job = 0.0  # moving average
        self.has_jobs = asyncio.Event()
        self.executor = ThreadPoolExecutor(num_workers, "manyheads-worker")
        self.continuous = ContinuousBatcher(
            limits.batch_tokens, self._start_joining, self._resolve, self._record_steps
        )

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
        if task.can_join:
            self.continuous.submit(job)
        else:
            self.unjoined[job] = None
            job.future.add_done_callback(lambda _: self.unjoined.pop(job, None))
            self.has_jobs.set()
        return job

    # ---- jobs that join a running batch

    def _start_joining(self, job: Job) -> None:
        self.waiting.pop(job, None)

    def _record_steps(self, steps: BatchStats) -> None:
        self._average(steps)
        self.on_batch(steps)

    def _average(self, batch: BatchStats) -> None:
        if batch.num_done:
            self.seconds_per_job += 0.2 * (batch.seconds / batch.num_done - self.seconds_per_job)

    @staticmethod
    def _resolve(outcome: Outcome) -> None:
        """Give a job its results or its error, unless its client has disconnected."""
        job, result = outcome
        if job.future.done():
            return
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)

    # ---- jobs that run in batches

    async def run(self) -> None:
        """Run batches until canceled: several at once where there are several workers."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                await self.has_jobs.wait()
                await asyncio.sleep(self.limits.batch_wait)
                batch = await self._next_batch()
                running.add(asyncio.create_task(self._run_batch(batch)))
                if len(running) >= self.num_workers:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if not self.unjoined:
                    self.has_jobs.clear()
        finally:
            self.executor.shutdown(wait=False)
            self.continuous.shutdown()

    async def _run_batch(self, batch: list[Job]) -> None:
        """An error reaches the jobs of its batch, and not those that come after."""
        try:
            await self._execute(batch)
        except Exception as error:
            location = "".join(traceback.format_tb(error.__traceback__))
            LOG.error("%s in the queue\n%s", type(error).__name__, location)  # its message may quote a text
            for job in batch:
                if not job.future.done():
                    job.future.set_exception(error)

    async def _next_batch(self) -> list[Job]:
        """Take the oldest job and those with an equal task that fit into a batch with it."""
        first = next(iter(self.unjoined), None)
        if first is None:
            return []
        max_tokens = min(self.limits.batch_tokens, MAX_BATCH_TOKENS)
        candidates = [job for job in self.unjoined if job.task == first.task][:max_tokens]
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
            del self.waiting[job], self.unjoined[job]
        return batch

    async def _execute(self, batch: list[Job]) -> None:
        if not batch:
            return
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self.executor, run_jobs, batch)
        seconds, num_tokens = time.monotonic() - start, sum(job.num_tokens or 0 for job in batch)
        wait_seconds = [start - job.arrived_at for job in batch]
        stats = BatchStats(len(batch), num_tokens, seconds, wait_seconds, len(batch))
        self._average(stats)
        self.on_batch(stats)
        for outcome in zip(batch, results, strict=True):
            self._resolve(outcome)


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
