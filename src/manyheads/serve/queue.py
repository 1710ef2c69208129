"""The queue of requests.

The event loop holds the waiting requests, and other threads run the models, so that all other requests are
answered meanwhile. Translations join a batch that is running (continuous.py) where the engine can do that.
Other tasks are run in batches: whenever a worker is free, it takes the oldest request and those behind it
with an equal task, up to a number of tokens; a request that fills a batch alone waits for smaller ones. A
request whose client disconnects, or that times out, leaves the queue at once, and its decoding stops.
"""

import asyncio
import logging
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from manyheads.errors import RequestError
from manyheads.serve.continuous import ContinuousBatcher, CreateScheduler, Outcome
from manyheads.serve.jobs import BatchStats, BatchTask, Job, run_jobs
from manyheads.serve.limits import ServerLimits

LOG = logging.getLogger("manyheads.serve")
MAX_RETRY_AFTER = 60  # seconds
MAX_BATCH_TOKENS = 1024  # of a batch that no other request can join
LARGE_BEAM_TOKENS = 2048  # tokens times hypotheses of a request that fills a batch alone
BUSY_SECONDS = 0.01  # between two looks for a request that may run
LARGE_JOB_PATIENCE = 2.0  # seconds for which smaller requests go before one that fills a batch alone


class QueueFull(Exception):
    """The queue has as many jobs as its limit allows."""


class ShareExceeded(QueueFull):
    """A client has its share of the queue; others may still enter."""


class JobQueue:
    """The waiting jobs, and the threads that run them."""

    def __init__(
        self,
        limits: ServerLimits,
        on_batch: Callable[[BatchStats], None] = lambda batch: None,
        num_workers: int = 1,
        create_scheduler: CreateScheduler | None = None,
    ) -> None:
        self.limits, self.on_batch, self.num_workers = limits, on_batch, num_workers
        self.waiting: dict[Job, None] = {}  # in order of arrival
        self.unjoined: dict[Job, None] = {}  # those of them that are run in batches
        self.incoming = 0  # requests that were received, but not parsed yet
        self.seconds_per_job = 0.0  # moving average
        self.num_large = 0  # jobs that run and fill a batch alone
        self.has_jobs = asyncio.Event()
        self.executor = ThreadPoolExecutor(num_workers, "manyheads-worker")
        self.continuous = ContinuousBatcher(
            limits, self._start_joining, self._resolve, self._record_steps, create_scheduler
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

    def submit(self, task: BatchTask, items: Sequence[Any], client: str = "") -> Job:
        """Add a job of a client. Canceling its future removes it."""
        if len(self.waiting) >= self.limits.queue_size:
            raise QueueFull
        if self._exceeds_share(client):
            raise ShareExceeded
        job = Job(task, items, asyncio.get_running_loop().create_future(), client)
        self.waiting[job] = None
        job.future.add_done_callback(lambda _: self.waiting.pop(job, None))
        if task.can_join:
            self.continuous.submit(job)
        else:
            self.unjoined[job] = None
            job.future.add_done_callback(lambda _: self.unjoined.pop(job, None))
            self.has_jobs.set()
        return job

    def _exceeds_share(self, client: str) -> bool:
        """Return whether a client has its share of the queue: half if others wait, else three quarters."""
        size = self.limits.queue_size
        if len(self.waiting) < size // 2:
            return False
        num_own = sum(job.client == client for job in self.waiting)
        share = math.ceil(3 * size / 4) if num_own == len(self.waiting) else max(1, size // 2)
        return num_own >= share

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
                if batch := await self._next_batch():
                    running.add(asyncio.create_task(self._run_batch(batch)))
                elif running:  # only large ones wait, and no worker is left for them
                    _, running = await asyncio.wait(running, timeout=BUSY_SECONDS)
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
        """Take the oldest job and those with an equal task that fit into a batch with it.

        Jobs that fill a batch alone come after all others, unless they have waited for long. Where there are
        several workers, one is left for the others.
        """
        loop = asyncio.get_running_loop()
        refused = await loop.run_in_executor(self.executor, measure_jobs, list(self.unjoined), self.limits)
        for outcome in refused:
            self._resolve(outcome)
        measured = take_turns(
            [job for job in self.unjoined if job.num_tokens is not None and not job.future.done()]
        )
        large = [job for job in measured if is_large(job)]
        small = [job for job in measured if not is_large(job)]
        oldest = min([job.arrived_at for job in large], default=math.inf)
        is_due = large and (not small or time.monotonic() - oldest > LARGE_JOB_PATIENCE)
        if is_due and self.num_large < max(1, self.num_workers - 1):
            batch = large[:1]
        else:
            batch = select_equal(small, min(self.limits.batch_tokens, MAX_BATCH_TOKENS))
        for job in batch:
            del self.waiting[job], self.unjoined[job]
        return batch

    async def _execute(self, batch: list[Job]) -> None:
        if not batch:
            return
        start = time.monotonic()
        loop = asyncio.get_running_loop()
        self.num_large += is_large(batch[0])
        try:
            results = await loop.run_in_executor(self.executor, run_jobs, batch)
        finally:
            self.num_large -= is_large(batch[0])
        seconds, num_tokens = time.monotonic() - start, sum(job.num_tokens or 0 for job in batch)
        wait_seconds = [start - job.arrived_at for job in batch]
        stats = BatchStats(len(batch), num_tokens, seconds, wait_seconds, len(batch))
        self._average(stats)
        self.on_batch(stats)
        for outcome in zip(batch, results, strict=True):
            self._resolve(outcome)


def is_large(job: Job) -> bool:
    return (job.num_tokens or 0) > MAX_BATCH_TOKENS or job.num_beam_tokens > LARGE_BEAM_TOKENS


def take_turns(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs with the first of each client before the second of any, each time in order of arrival."""
    counts: Counter[str] = Counter()
    ranks: dict[Job, int] = {}
    for job in jobs:
        ranks[job] = counts[job.client]
        counts[job.client] += 1
    return sorted(jobs, key=lambda job: ranks[job])


def select_equal(jobs: Sequence[Job], max_tokens: int) -> list[Job]:
    """Return the first job and those after it with an equal task, as far as they fit into a batch."""
    batch: list[Job] = []
    total = 0
    for job in jobs:
        if batch and job.task != batch[0].task:
            continue
        total += job.num_tokens or 0
        if batch and total > max_tokens:
            break
        batch.append(job)
    return batch


def measure_jobs(jobs: Sequence[Job], limits: ServerLimits) -> list[Outcome]:
    """Count the tokens of jobs, each once. Return those that are too large, with the error."""
    refused: list[Outcome] = []
    for job in jobs:
        if job.num_tokens is None:
            job.num_tokens = 1  # an error of counting comes up again when the job runs
            with suppress(Exception):
                size = job.task.size(job.items)
                job.num_tokens = max(1, size.num_tokens)
                job.num_beam_tokens = size.num_tokens * size.num_hypotheses
                try:
                    limits.check_work(size)
                except RequestError as error:
                    refused.append((job, error))
    return refused
