"""Requests to the model: their tasks, and what a batch of them is run by."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class BatchTask(Protocol):
    """What to do with items. Items of equal tasks can be run in one batch."""

    @property
    def can_join(self) -> bool:
        """Whether its items can join a batch that is running (continuous.py)."""
        ...

    def size(self, items: Sequence[Any]) -> "JobSize":
        """Return how much there is to compute."""
        ...

    def run(self, items: Sequence[Any], check_canceled: Callable[[], None]) -> list[Any]:
        """Return one result per item. `check_canceled` is called now and then, and raises JobCanceled."""
        ...


class JobSize(NamedTuple):
    """How much a job computes."""

    num_tokens: int
    num_sentences: int = 1
    num_hypotheses: int = 1


class JobCanceled(Exception):
    """Nobody waits for the results of any job of a batch."""


@dataclass(eq=False)
class Job:
    """The items of one request."""

    task: BatchTask
    items: Sequence[Any]
    future: "asyncio.Future[list[Any]]"
    client: str = ""  # its address
    arrived_at: float = field(default_factory=time.monotonic)
    num_tokens: int | None = None  # counted shortly before it runs
    num_beam_tokens: int = 0  # times the hypotheses of the search, counted then


@dataclass(frozen=True)
class BatchStats:
    """Measurements of a batch that has run, or of some steps of one that is running."""

    num_jobs: int
    num_tokens: int
    seconds: float
    wait_seconds: list[float]  # of each job
    num_done: int = 0  # jobs


def run_jobs(batch: Sequence[Job]) -> list[list[Any] | Exception]:
    """Return the results of each job, or its error. After an error each job runs alone."""

    def check_canceled() -> None:
        if all(job.future.done() for job in batch):
            raise JobCanceled

    try:
        results = iter(batch[0].task.run([item for job in batch for item in job.items], check_canceled))
        return [[next(results) for _ in job.items] for job in batch]
    except StopIteration:
        return [RuntimeError("fewer results than items")] * len(batch)
    except JobCanceled as error:
        return [error] * len(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
    return [result for job in batch for result in run_jobs([job])]
