"""Chunks on worker processes: the same lines in order, whatever becomes of the workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manyheads.bulk import coordinator
from manyheads.bulk.chunks import Block, RowChunk, group_into_chunks
from manyheads.bulk.coordinator import CHUNKS_HELD, Coordinator
from manyheads.bulk.executor import ChunkRead, EventQueue, ReadingEnded, WorkerReady, WorkerReply
from manyheads.bulk.jobs import BulkJob
from manyheads.bulk.local_workers import LocalWorkers
from manyheads.errors import BulkJobError, NoWorkersError

FAKE_WORKER = (sys.executable, "-m", "support.fake_bulk_worker")
TESTS = str(Path(__file__).parents[1])


def create_workers(count: int = 2, **options: object) -> LocalWorkers:
    environment = {"PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])}
    return LocalWorkers(BulkJob("translate", [], options=options), [environment] * count, FAKE_WORKER)


def make_chunks(rows: list[str], size: int = 10) -> Iterator[RowChunk]:
    for index, start in enumerate(range(0, len(rows), size)):
        yield RowChunk(index, [Block(0, "text", start + 1, rows[start : start + size])])


def run(rows: list[str], workers: LocalWorkers) -> list[str]:
    results = Coordinator(workers, make_chunks(rows)).run()
    return [line for _, columns in results for line in columns["translation"]]


class InstantExecutor:
    """Answers at once, the chunks of a group of three in reverse."""

    num_workers, starts_alone = 1, False

    def __init__(self) -> None:
        self.chunks: list[RowChunk] = []
        self.is_closed = False

    def start_worker(self, worker: int, events: EventQueue) -> None:
        self.events = events
        events.put(WorkerReady(worker))

    def send(self, worker: int, chunk: RowChunk) -> None:
        message = {"chunk": chunk.index, "columns": {"translation": chunk.rows}, "counts": {}, "warnings": []}
        self.events.put(WorkerReply(worker, message))

    def find_lost_seconds(self) -> float:
        return 0.0

    def close(self) -> None:
        self.is_closed = True


def test_results_come_in_order_from_several_processes() -> None:
    rows = [f"sleep {0.02 if number % 40 == 0 else 0}" for number in range(95)] + [f"a{n}" for n in range(8)]
    assert run(rows, create_workers(3)) == [row.upper() for row in rows]


def test_a_killed_worker_is_replaced_and_its_chunks_run_again(tmp_path: Path) -> None:
    rows = [f"line {number}" for number in range(100)]
    rows[35] = f"die-once {tmp_path / 'first'}"
    rows[77] = f"die-once {tmp_path / 'second'}"
    with pytest.warns(UserWarning, match="a worker was killed by SIGKILL, as the system does") as caught:
        assert run(rows, create_workers()) == [row.upper() for row in rows]
    assert len(caught) == 2


def test_a_chunk_that_kills_every_worker_ends_the_job() -> None:
    rows = ["line"] * 25
    rows[12] = "die"
    with (
        pytest.warns(UserWarning, match="another one takes"),
        pytest.raises(
            BulkJobError, match="text, lines 11 to 20: 3 workers died with these lines, the last was"
        ),
    ):
        run(rows, create_workers())


@pytest.mark.parametrize(
    ("row", "message", "code"),
    [("refuse", "text, lines 11 to 20: a row that cannot be used", 3), ("fail", "ValueError: a bug", 1)],
)
def test_a_row_that_cannot_be_used_ends_the_job_at_once(row: str, message: str, code: int) -> None:
    workers = create_workers()
    with pytest.raises(BulkJobError, match=message) as caught:
        run(["line"] * 15 + [row] + ["line"] * 30, workers)
    assert caught.value.exit_code == code
    assert not workers._workers


@pytest.mark.parametrize(
    ("option", "message"),
    [("refuse", "no model here"), ("die at start", "a worker was killed by SIGKILL.* while it loaded")],
)
def test_a_job_that_no_worker_can_open_ends(option: str, message: str) -> None:
    with pytest.raises(BulkJobError, match=message):
        run(["line"], create_workers(2, **{option: True}))


def test_warnings_of_workers_are_shown_here() -> None:
    with pytest.warns(UserWarning, match="a long line"):
        run(["warn a long line"] * 3, create_workers(1))


def test_an_input_without_lines_starts_no_worker() -> None:
    workers = LocalWorkers(BulkJob("translate", []), [{}], ("no such command",))
    assert run([], workers) == []


def test_errors_of_reading_end_the_job() -> None:
    def fail() -> Iterator[RowChunk]:
        yield from make_chunks(["a"])
        raise OSError("disk unplugged")

    executor = InstantExecutor()
    with pytest.raises(OSError, match="disk unplugged"):
        list(Coordinator(executor, fail()).run())
    assert executor.is_closed


def test_no_more_is_read_than_the_memory_bound_allows() -> None:
    num_read = 0

    def count() -> Iterator[RowChunk]:
        nonlocal num_read
        for chunk in make_chunks(["a"] * 1000, size=1):
            num_read += 1
            yield chunk

    results = Coordinator(InstantExecutor(), count()).run()
    for number in range(1, 50):
        next(results)
        time.sleep(0.001)
        assert num_read <= number + CHUNKS_HELD
    results.close()


def test_a_job_ends_when_its_cluster_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never gets ready is waited for as long as there is a node that it could start on."""
    monkeypatch.setattr(coordinator, "CHECK_SECONDS", 0.01)

    class LostCluster(InstantExecutor):
        num_checks = 0

        def start_worker(self, worker: int, events: EventQueue) -> None:
            pass

        def find_lost_seconds(self) -> float:
            self.num_checks += 1
            return 20.0 * self.num_checks

    executor = LostCluster()
    with pytest.raises(NoWorkersError, match="for 80 seconds no node of the cluster"):
        list(Coordinator(executor, make_chunks(["a"])).run())
    assert executor.is_closed
    assert executor.num_checks == 4


def test_all_workers_end_with_the_iterator() -> None:
    workers = create_workers()
    results = Coordinator(workers, make_chunks(["sleep 0.01"] * 200)).run()
    next(results)
    processes = [worker.process for worker in workers._workers.values()]
    assert processes
    results.close()
    assert all(process.returncode == -signal.SIGKILL for process in processes)


def test_a_worker_ends_when_its_coordinator_dies() -> None:
    """Even in the middle of a chunk: a killed coordinator leaves no process behind."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from bulk.test_coordinator import create_workers, make_chunks\n"
        "from manyheads.bulk.coordinator import Coordinator\n"
        "workers = create_workers(1)\n"
        "results = Coordinator(workers, make_chunks(['a'] * 10 + ['sleep 60'] * 20)).run()\n"
        "next(results)\n"
        "print(*[worker.process.pid for worker in workers._workers.values()], flush=True)\n"
        "next(results)\n"
    )
    command = [sys.executable, "-c", code, TESTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 10
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a zombie waits for a parent to read its exit code


def test_the_last_chunks_go_to_idle_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two workers and three chunks, the third waits for whoever is done first."""
    sent: list[tuple[int, int]] = []

    class TwoWorkers(InstantExecutor):
        num_workers = 2

        def send(self, worker: int, chunk: RowChunk) -> None:
            sent.append((worker, chunk.index))
            if len(sent) == 2:  # the second worker answers first
                self.answer(1, 1)
            if len(sent) == 3:
                self.answer(1, 2)
                self.answer(0, 0)

        def answer(self, worker: int, index: int) -> None:
            message = {"chunk": index, "columns": {"translation": ["a"]}, "counts": {}, "warnings": []}
            self.events.put(WorkerReply(worker, message))

    instance = Coordinator(TwoWorkers(), make_chunks(["a"] * 3, size=1))
    thread_started = threading.Event()
    monkeypatch.setattr(coordinator.Coordinator, "_read_chunks", lambda self: thread_started.set())
    for chunk in make_chunks(["a"] * 3, size=1):
        instance._events.put(ChunkRead(chunk))
    instance._events.put(ReadingEnded())
    assert len(list(instance.run())) == 3
    assert sent == [(0, 0), (1, 1), (1, 2)]


def test_chunks_grow_and_hold_several_small_shards() -> None:
    blocks = [Block(0, "a", 1 + 1000 * n, ["x"] * 1000, is_last=n == 11) for n in range(12)]
    blocks += [Block(n, f"b{n}", 1, ["y"] * 10, is_last=True) for n in range(1, 6)]
    chunks = list(group_into_chunks(blocks, 4000, num_workers=2))
    assert [len(chunk.rows) for chunk in chunks] == [1000, 1000, 2000, 2000, 4000, 2050]
    assert [chunk.index for chunk in chunks] == list(range(6))
    assert chunks[2].describe() == "a, lines 2,001 to 4,000"
    assert chunks[5].describe() == "a, line 10,001, to b5, line 10"
