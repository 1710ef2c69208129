"""The job queue: batches, order, limits, cancellation and errors."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from manyheads.serve.jobs import BatchStats, JobSize
from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import JobQueue, QueueFull, ShareExceeded


@dataclass(frozen=True)
class DoubleTask:
    """Doubles numbers; each has as many tokens as its value."""

    name: str = ""
    log: list[list[int]] = field(default_factory=list, compare=False)
    seconds: float = 0.02
    can_join: bool = False

    def size(self, items: Sequence[int]) -> JobSize:
        return JobSize(sum(items))

    def run(self, items: Sequence[int], check_canceled: Callable[[], None]) -> list[int]:
        self.log.append(list(items))
        time.sleep(self.seconds)
        if 13 in items:
            raise ValueError("thirteen")
        return [2 * item for item in items]


def run(queue: JobQueue, scenario: Coroutine[Any, Any, None]) -> None:
    async def run_both() -> None:
        worker = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(scenario, 10)
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    asyncio.run(run_both())


def test_jobs_that_arrive_together_run_in_one_batch() -> None:
    batches: list[BatchStats] = []
    queue, task = JobQueue(ServerLimits(), batches.append), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, items) for items in ([1, 2], [3], [4, 5, 6])]
        assert [await job.future for job in jobs] == [[2, 4], [6], [8, 10, 12]]
        assert task.log == [[1, 2, 3, 4, 5, 6]]

    run(queue, scenario())
    assert (batches[0].num_jobs, batches[0].num_tokens, len(batches[0].wait_seconds)) == (3, 21, 3)


def test_batches_are_limited_by_tokens_and_take_the_oldest_first() -> None:
    queue, task = JobQueue(ServerLimits(batch_tokens=10)), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, [size]) for size in (6, 3, 4, 30, 1, 2)]
        await asyncio.gather(*(job.future for job in jobs))
        assert task.log == [[6, 3], [4], [30], [1, 2]]

    run(queue, scenario())


def test_only_equal_tasks_share_a_batch_and_none_starves() -> None:
    queue = JobQueue(ServerLimits())
    log: list[list[int]] = []
    first, second = DoubleTask("first", log), DoubleTask("second", log)

    async def scenario() -> None:
        jobs = [queue.submit(task, [n]) for n, task in enumerate((first, second, first, second), 1)]
        await asyncio.gather(*(job.future for job in jobs))
        assert log == [[1, 3], [2, 4]]

    run(queue, scenario())


def test_a_full_queue_rejects_at_once_with_a_retry_delay() -> None:
    queue, task = JobQueue(ServerLimits(queue_size=3, batch_wait=0)), DoubleTask(seconds=0.2)

    async def scenario() -> None:
        jobs = [queue.submit(task, [1])]
        await asyncio.sleep(0.1)  # it is running, and no longer in the queue
        jobs += [queue.submit(task, [n]) for n in (2, 3, 4)]
        assert queue.is_full
        with pytest.raises(QueueFull):
            queue.submit(task, [5])  # which does not wait
        assert queue.retry_after >= 1
        await asyncio.gather(*(job.future for job in jobs))
        assert not queue.is_full

    run(queue, scenario())


def test_a_canceled_job_leaves_the_queue_and_does_not_run() -> None:
    queue, task = JobQueue(ServerLimits(queue_size=2, batch_wait=0)), DoubleTask(seconds=0.1)

    async def scenario() -> None:
        first = queue.submit(task, [1])
        await asyncio.sleep(0.05)
        canceled, kept = queue.submit(task, [2]), queue.submit(task, [3])
        canceled.future.cancel()
        await asyncio.sleep(0)
        late = queue.submit(task, [4])  # there is a free slot again
        assert [await job.future for job in (first, kept, late)] == [[2], [6], [8]]
        assert task.log == [[1], [3, 4]]

    run(queue, scenario())


def test_a_failing_job_does_not_affect_the_others() -> None:
    queue, task = JobQueue(ServerLimits()), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, [n]) for n in (12, 13, 14)]
        results = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert (results[0], results[2]) == ([24], [28])
        assert isinstance(results[1], ValueError)
        assert await queue.submit(task, [1]).future == [2], "the queue goes on"

    run(queue, scenario())


def test_canceling_a_running_job_is_harmless() -> None:
    queue, task = JobQueue(ServerLimits(batch_wait=0)), DoubleTask(seconds=0.1)

    async def scenario() -> None:
        canceled, kept = queue.submit(task, [1]), queue.submit(task, [2])
        await asyncio.sleep(0.05)
        canceled.future.cancel()
        assert await kept.future == [4]
        assert await queue.submit(task, [3]).future == [6]

    run(queue, scenario())


@dataclass(frozen=True)
class MissingResultTask:
    """Returns one result too few."""

    can_join: bool = False

    def size(self, items: Sequence[int]) -> JobSize:
        return JobSize(len(items))

    def run(self, items: Sequence[int], check_canceled: Callable[[], None]) -> list[int]:
        return list(items)[1:]


def test_an_error_of_the_queue_is_logged_and_the_next_batch_runs(caplog: pytest.LogCaptureFixture) -> None:
    batches: list[BatchStats] = []

    def record(batch: BatchStats) -> None:
        batches.append(batch)
        if len(batches) == 1:
            raise ValueError("".join(["sec", "ret"]))

    queue, task = JobQueue(ServerLimits(), record), DoubleTask()

    async def scenario() -> None:
        with pytest.raises(ValueError, match="secret"):
            await queue.submit(task, [1]).future
        assert await queue.submit(task, [2]).future == [4]
        with pytest.raises(RuntimeError, match="fewer results than items"):
            await queue.submit(MissingResultTask(), [1]).future
        assert await queue.submit(task, [3]).future == [6]

    run(queue, scenario())
    assert "ValueError in the queue" in caplog.text
    assert "secret" not in caplog.text


# ---- large requests and many of them


def test_a_large_request_waits_for_small_ones_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, task = JobQueue(ServerLimits()), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, [size]) for size in (5000, 1, 2)]
        await asyncio.gather(*(job.future for job in jobs))
        assert task.log == [[1, 2], [5000]]
        monkeypatch.setattr("manyheads.serve.queue.LARGE_JOB_PATIENCE", 0.0)
        jobs = [queue.submit(task, [size]) for size in (5000, 1, 2)]
        await asyncio.gather(*(job.future for job in jobs))
        assert task.log[2:] == [[5000], [1, 2]]

    run(queue, scenario())


def record(number: int, order: list[int]) -> Callable[[object], None]:
    return lambda _: order.append(number)


def test_a_request_with_many_hypotheses_is_large() -> None:
    @dataclass(frozen=True)
    class WideTask(DoubleTask):
        def size(self, items: Sequence[int]) -> JobSize:
            return JobSize(sum(items), num_hypotheses=4)

    queue, task, wide = JobQueue(ServerLimits()), DoubleTask(), WideTask()

    async def scenario() -> None:
        jobs = [queue.submit(wide, [600]), queue.submit(task, [1]), queue.submit(wide, [500])]
        order: list[int] = []
        for number, job in enumerate(jobs):
            job.future.add_done_callback(record(number, order))
        await asyncio.gather(*(job.future for job in jobs))
        assert order == [1, 2, 0]

    run(queue, scenario())


def test_batches_take_a_request_of_each_client_in_turn() -> None:
    queue, task = JobQueue(ServerLimits(batch_tokens=10)), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, [size], "a") for size in (5, 6, 7, 8)]
        jobs += [queue.submit(task, [2], "b"), queue.submit(task, [3], "c")]
        await asyncio.gather(*(job.future for job in jobs))
        assert task.log == [[5, 2, 3], [6], [7], [8]]

    run(queue, scenario())


def test_one_worker_is_left_for_small_requests() -> None:
    queue, task = JobQueue(ServerLimits(), num_workers=2), DoubleTask(seconds=0.2)

    async def scenario() -> None:
        large = [queue.submit(task, [5000]) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert await queue.submit(task, [1]).future == [2]
        assert not large[1].future.done()
        await asyncio.gather(*(job.future for job in large))
        assert task.log == [[5000], [1], [5000]]

    run(queue, scenario())


def test_a_request_that_nobody_waits_for_stops_while_it_runs() -> None:
    steps: list[int] = []

    @dataclass(frozen=True)
    class LongTask(DoubleTask):
        def run(self, items: Sequence[int], check_canceled: Callable[[], None]) -> list[int]:
            for step in range(1000):
                steps.append(step)
                time.sleep(0.005)
                check_canceled()
            return list(items)

    queue = JobQueue(ServerLimits())

    async def scenario() -> None:
        job = queue.submit(LongTask(), [1])
        while not steps:
            await asyncio.sleep(0.001)
        job.future.cancel()
        assert await queue.submit(DoubleTask(), [2]).future == [4]

    run(queue, scenario())
    assert len(steps) < 100


def test_a_client_with_half_of_the_queue_leaves_the_rest_to_others() -> None:
    queue, task = JobQueue(ServerLimits(queue_size=8)), DoubleTask()

    async def scenario() -> None:
        jobs = [queue.submit(task, [1], "a") for _ in range(4)]
        jobs += [queue.submit(task, [1], "b")]
        with pytest.raises(ShareExceeded):
            queue.submit(task, [1], "a")
        jobs += [queue.submit(task, [1], client) for client in "bcd"]
        with pytest.raises(QueueFull) as full:
            queue.submit(task, [1], "e")
        assert full.type is QueueFull
        await asyncio.gather(*(job.future for job in jobs))
        jobs = [queue.submit(task, [1], "a") for _ in range(6)]
        with pytest.raises(ShareExceeded):
            queue.submit(task, [1], "a")  # alone, and yet a quarter is left to those who come
        await queue.submit(task, [1], "b").future
        await asyncio.gather(*(job.future for job in jobs))

    run(queue, scenario())
