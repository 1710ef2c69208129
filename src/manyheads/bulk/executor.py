"""The interface of everything that runs workers, and the events that it reports."""

import queue
from dataclasses import dataclass
from typing import Any, Protocol

from manyheads.bulk.chunks import RowChunk


@dataclass(frozen=True)
class WorkerReady:
    """A worker has opened the job."""

    worker: int


@dataclass(frozen=True)
class WorkerReply:
    """A worker has finished a chunk, or failed: the message that worker.py describes."""

    worker: int
    message: dict[str, Any]


@dataclass(frozen=True)
class WorkerLost:
    """A worker has died, whatever it was doing."""

    worker: int
    reason: str


@dataclass(frozen=True)
class ChunkRead:
    """The next chunk of the input has been read."""

    chunk: RowChunk


@dataclass(frozen=True)
class ReadingEnded:
    """All of the input has been read, or reading has failed."""

    error: BaseException | None = None


Event = WorkerReady | WorkerReply | WorkerLost | ChunkRead | ReadingEnded
EventQueue = queue.SimpleQueue[Event]


class Executor(Protocol):
    """Starts workers, sends them chunks and reports what becomes of them. Its calls do not wait for work."""

    num_workers: int  # at a time
    starts_alone: bool  # whether the first worker must be ready before the others start

    def start_worker(self, worker: int, events: EventQueue) -> None:
        """Start a worker under a number that was not used before."""
        ...

    def send(self, worker: int, chunk: RowChunk) -> None:
        """Send a chunk to a worker that is ready. A worker answers chunks in their order."""
        ...

    def find_lost_seconds(self) -> float:
        """Return for how long no worker could have been started: the cluster is gone, or does not answer."""
        ...

    def close(self) -> None:
        """End all workers at once."""
        ...
