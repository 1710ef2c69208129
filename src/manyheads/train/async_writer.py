"""Writes checkpoints in a thread, while training goes on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class AsyncWriter:
    """A thread that runs one task at a time. Its errors are raised in the thread that waits for it."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="manyheads-writer")
        self.pending: Future[None] | None = None

    def submit(self, task: Callable[[], None]) -> None:
        """Start a task when the one before is done."""
        self.wait()
        self.pending = self.executor.submit(task)

    def raise_if_failed(self) -> None:
        """Raise the error of a task that has already failed; do not wait."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the task; raise its error."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait for the task, whether it fails or not, and end the thread."""
        self.executor.shutdown()
