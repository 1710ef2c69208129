"""Work that goes on beside the training: a checkpoint on its way to the disk."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class AsyncWriter:
    """A thread that does one piece of work at a time. What goes wrong in it is raised by whoever asks."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="manyheads-background")
        self.pending: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """After what was begun before."""
        self.wait()
        self.pending = self.executor.submit(work)

    def raise_if_failed(self) -> None:
        """Raises what went wrong, if that is known by now."""
        if self.pending is not None and self.pending.done():
            self.wait()

    def wait(self) -> None:
        """Until it is done, and raises what went wrong."""
        under_way, self.pending = self.pending, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """Until it is done, well or not."""
        self.executor.shutdown()
