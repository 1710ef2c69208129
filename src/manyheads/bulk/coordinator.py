"""The coordinator: gives chunks to workers, runs those of lost workers again, returns results in order."""

import queue
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterable

from manyheads.bulk.chunks import RowChunk
from manyheads.bulk.executor import (
    ChunkRead,
    Event,
    EventQueue,
    Executor,
    ReadingEnded,
    WorkerLost,
    WorkerReady,
    WorkerReply,
)
from manyheads.bulk.jobs import Columns
from manyheads.confidence_policy import ConfidenceCounts
from manyheads.errors import BulkJobError, NoWorkersError

CHUNKS_IN_FLIGHT = 2  # per worker: one in work and one waiting, so that a worker never waits
CHUNKS_HELD = 4  # per worker: read and not yet returned; bounds the memory
CHECK_SECONDS = 1.0  # without an event, after which the cluster is checked
MAX_LOST_SECONDS = 60.0  # for which a cluster may be without a node that a worker can start on
MAX_ATTEMPTS = 3  # workers that may die with a chunk, or while they start


class Coordinator:
    """Runs the chunks of a job on the workers of an executor."""

    def __init__(self, executor: Executor, chunks: Iterable[RowChunk]) -> None:
        self.executor = executor
        self.counts = ConfidenceCounts()  # of all chunks that are finished
        self._unread = iter(chunks)
        self._events: EventQueue = EventQueue()
        self._held = threading.Semaphore(CHUNKS_HELD * executor.num_workers)
        self._stopping = False
        self._waiting: deque[RowChunk] = deque()
        self._starting: set[int] = set()
        self._in_flight: dict[int, deque[RowChunk]] = {}  # by worker that is ready
        self._finished: dict[
            int, tuple[RowChunk, Columns]
        ] = {}  # by chunk, until those before it are finished
        self._num_started = self._failed_starts = 0
        self._num_read = self._num_returned = 0
        self._all_read = False

    def run(self) -> Generator[tuple[RowChunk, Columns], None, None]:
        """Yield every chunk and its results, in order. All workers end with the iterator."""
        threading.Thread(target=self._read_chunks, daemon=True).start()
        try:
            while not (self._all_read and self._num_returned == self._num_read):
                self._handle(self._wait_for_event())
                self._send_chunks()
                self._start_workers()
                while self._num_returned in self._finished:
                    yield self._finished.pop(self._num_returned)
                    self._num_returned += 1
                    self._held.release()
        finally:
            self._stopping = True
            self._held.release()
            self.executor.close()

    def _read_chunks(self) -> None:
        """Read the input beside the work, no further than the memory is bounded."""
        try:
            while not self._stopping:
                self._held.acquire()
                if (chunk := next(self._unread, None)) is None:
                    break
                self._events.put(ChunkRead(chunk))
        except BaseException as error:
            self._events.put(ReadingEnded(error))
        else:
            self._events.put(ReadingEnded())

    # ---- workers

    def _start_workers(self) -> None:
        """Start workers while more chunks wait than workers that are starting will take."""
        executor = self.executor
        while len(self._starting) + len(self._in_flight) < executor.num_workers:
            if len(self._waiting) <= len(self._starting):
                return
            if executor.starts_alone and self._starting and not self._in_flight:
                return
            worker = self._num_started
            self._num_started += 1
            self._starting.add(worker)
            executor.start_worker(worker, self._events)

    def _send_chunks(self) -> None:
        """Send chunks to the workers that have the fewest, the last ones only to workers without any."""
        while self._waiting and self._in_flight:
            worker = min(self._in_flight, key=lambda number: len(self._in_flight[number]))
            num_workers = len(self._in_flight) + len(self._starting)
            is_near_end = self._all_read and len(self._waiting) <= num_workers
            if len(self._in_flight[worker]) >= (1 if is_near_end else CHUNKS_IN_FLIGHT):
                return
            chunk = self._waiting.popleft()
            self._in_flight[worker].append(chunk)
            self.executor.send(worker, chunk)

    # ---- events

    def _wait_for_event(self) -> Event:
        """Return the next event. End the job if there is no worker left that could cause one."""
        while True:
            try:
                return self._events.get(timeout=CHECK_SECONDS)
            except queue.Empty:
                lost_seconds = self.executor.find_lost_seconds()
            if lost_seconds > MAX_LOST_SECONDS:
                raise NoWorkersError(
                    f"no worker can start: for {lost_seconds:.0f} seconds no node of the cluster has had the "
                    f"resources of a worker, or has answered"
                )

    def _handle(self, event: Event) -> None:
        match event:
            case ChunkRead(chunk):
                self._num_read += 1
                self._waiting.append(chunk)
            case ReadingEnded(error):
                self._all_read = True
                if error:
                    raise error
            case WorkerReady(worker):
                self._starting.discard(worker)
                self._in_flight[worker] = deque()
                self._failed_starts = 0
            case WorkerReply(worker, message) if worker in self._in_flight:
                chunk = self._in_flight[worker].popleft()
                if "error" in message:
                    raise_failure(f"{chunk.describe()}: {message['error']}", message["exit_code"])
                assert message["chunk"] == chunk.index
                for text in message["warnings"]:
                    warnings.warn(text, stacklevel=2)
                self.counts.merge(ConfidenceCounts(**message["counts"]))
                self._finished[chunk.index] = chunk, message["columns"]
            case WorkerReply(worker, message) if worker in self._starting:
                self._handle_failed_start(worker, message["error"], message["exit_code"])
            case WorkerLost(worker, reason) if worker in self._in_flight:
                self._handle_lost_worker(worker, reason)
            case WorkerLost(worker, reason) if worker in self._starting:
                self._handle_failed_start(worker, f"a worker {reason} while it loaded the model", 1)

    def _handle_lost_worker(self, worker: int, reason: str) -> None:
        """Run the chunks of a lost worker again. The first of them is the one that it died with."""
        chunks = self._in_flight.pop(worker)
        if chunks:
            chunks[0].attempts += 1
            if chunks[0].attempts == MAX_ATTEMPTS:
                raise BulkJobError(
                    f"{chunks[0].describe()}: {MAX_ATTEMPTS} workers died with these lines, the last "
                    f"{reason}: look for lines of extraordinary length, or give each worker more memory"
                )
        self._waiting.extendleft(reversed(chunks))
        lines = sum(len(chunk.rows) for chunk in chunks)
        warnings.warn(f"a worker {reason}; another one takes its {lines:,} lines", stacklevel=2)

    def _handle_failed_start(self, worker: int, reason: str, exit_code: int) -> None:
        """Start another worker if workers have started before; what fails the first will fail them all."""
        self._starting.discard(worker)
        self._failed_starts += 1
        if not self._in_flight or self._failed_starts == MAX_ATTEMPTS:
            raise_failure(reason, exit_code)


def raise_failure(message: str, exit_code: int) -> None:
    error = BulkJobError(message)
    error.exit_code = exit_code
    raise error
