"""Together when they come together, the longest-waiting first, and out when nobody waits any more."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import BatchStats, JobQueue, QueueFull


@dataclass(frozen=True)
class Doubling:
    """Numbers that are doubled; each has as many tokens as it is large."""

    name: str = ""
    log: list[list[int]] = field(default_factory=list, compare=False)
    seconds: float = 0.02

    def size(self, items: Sequence[int]) -> int:
        return sum(items)

    def run(self, items: Sequence[int]) -> list[int]:
        self.log.append(list(items))
        time.sleep(self.seconds)
        if 13 in items:
            raise ValueError("thirteen")
        return [2 * item for item in items]


def run(queue: JobQueue, story: Coroutine[Any, Any, None]) -> None:
    async def both() -> None:
        working = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(story, 10)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    asyncio.run(both())


def test_what_arrives_together_is_done_together_and_each_gets_its_own() -> None:
    told: list[BatchStats] = []
    queue, work = JobQueue(ServerLimits(), told.append), Doubling()

    async def story() -> None:
        jobs = [queue.submit(work, items) for items in ([1, 2], [3], [4, 5, 6])]
        assert [await job.future for job in jobs] == [[2, 4], [6], [8, 10, 12]]
        assert work.log == [[1, 2, 3, 4, 5, 6]]

    run(queue, story())
    assert (told[0].num_jobs, told[0].num_tokens, len(told[0].wait_seconds)) == (3, 21, 3)


def test_a_batch_has_only_so_many_tokens_and_takes_the_longest_waiting_first() -> None:
    queue, work = JobQueue(ServerLimits(batch_tokens=10)), Doubling()

    async def story() -> None:
        jobs = [queue.submit(work, [size]) for size in (6, 3, 4, 30, 1, 2)]
        await asyncio.gather(*(job.future for job in jobs))
        assert work.log == [[6, 3], [4], [30], [1, 2]]

    run(queue, story())


def test_only_work_of_one_kind_goes_together_and_no_kind_waits_forever() -> None:
    queue = JobQueue(ServerLimits())
    log: list[list[int]] = []
    first, second = Doubling("first", log), Doubling("second", log)

    async def story() -> None:
        jobs = [queue.submit(work, [n]) for n, work in enumerate((first, second, first, second), 1)]
        await asyncio.gather(*(job.future for job in jobs))
        assert log == [[1, 3], [2, 4]]

    run(queue, story())


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    queue, work = JobQueue(ServerLimits(queue_size=3, batch_wait=0)), Doubling(seconds=0.2)

    async def story() -> None:
        jobs = [queue.submit(work, [1])]
        await asyncio.sleep(0.1)  # it is being done, and waits no more
        jobs += [queue.submit(work, [n]) for n in (2, 3, 4)]
        assert queue.is_full
        start = time.monotonic()
        with pytest.raises(QueueFull):
            queue.submit(work, [5])
        assert time.monotonic() - start < 0.05
        assert queue.retry_after >= 1
        await asyncio.gather(*(job.future for job in jobs))
        assert not queue.is_full

    run(queue, story())


def test_whoever_leaves_frees_a_place_and_is_not_worked_for() -> None:
    queue, work = JobQueue(ServerLimits(queue_size=2, batch_wait=0)), Doubling(seconds=0.1)

    async def story() -> None:
        first = queue.submit(work, [1])
        await asyncio.sleep(0.05)
        leaving, staying = queue.submit(work, [2]), queue.submit(work, [3])
        leaving.future.cancel()
        await asyncio.sleep(0)
        late = queue.submit(work, [4])  # there is a place again
        assert [await job.future for job in (first, staying, late)] == [[2], [6], [8]]
        assert work.log == [[1], [3, 4]]

    run(queue, story())


def test_one_that_fails_does_not_spoil_the_others() -> None:
    queue, work = JobQueue(ServerLimits()), Doubling()

    async def story() -> None:
        jobs = [queue.submit(work, [n]) for n in (12, 13, 14)]
        found = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert (found[0], found[2]) == ([24], [28])
        assert isinstance(found[1], ValueError)
        assert await queue.submit(work, [1]).future == [2], "and it goes on"

    run(queue, story())


def test_one_that_leaves_while_it_is_worked_for_does_no_harm() -> None:
    queue, work = JobQueue(ServerLimits(batch_wait=0)), Doubling(seconds=0.1)

    async def story() -> None:
        leaving, staying = queue.submit(work, [1]), queue.submit(work, [2])
        await asyncio.sleep(0.05)
        leaving.future.cancel()
        assert await staying.future == [4]
        assert await queue.submit(work, [3]).future == [6]

    run(queue, story())


@dataclass(frozen=True)
class Miscounting:
    """One result too few."""

    def size(self, items: Sequence[int]) -> int:
        return len(items)

    def run(self, items: Sequence[int]) -> list[int]:
        return list(items)[1:]


def test_a_round_that_goes_wrong_is_told_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture) -> None:
    told: list[BatchStats] = []

    def tell(batch: BatchStats) -> None:
        told.append(batch)
        if len(told) == 1:
            raise ValueError("".join(["sec", "ret"]))

    queue, work = JobQueue(ServerLimits(), tell), Doubling()

    async def story() -> None:
        with pytest.raises(ValueError, match="secret"):
            await queue.submit(work, [1]).future
        assert await queue.submit(work, [2]).future == [4]
        with pytest.raises(RuntimeError, match="fewer results than items"):
            await queue.submit(Miscounting(), [1]).future
        assert await queue.submit(work, [3]).future == [6]

    run(queue, story())
    assert "ValueError in the queue" in caplog.text
    assert "secret" not in caplog.text
