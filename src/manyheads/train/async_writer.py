"""Work that goes on beside the training: a checkpoint on its way to the disk."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A thread that does one piece of work at a time. What goes wrong in it is raised by whoever asks."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="manyheads-background")
        self.under_way: Future[None] | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """After what was begun before."""
        self.wait()
        self.under_way = self.thread.submit(work)

    def check(self) -> None:
        """Raises what went wrong, if that is known by now."""
        if self.under_way is not None and self.under_way.done():
            self.wait()

    def wait(self) -> None:
        """Until it is done, and raises what went wrong."""
        under_way, self.under_way = self.under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """Until it is done, well or not."""
        self.thread.shutdown()
