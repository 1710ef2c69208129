"""Processes of our own: how they are started, and pools that end with the process that started them."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from manyheads.errors import ResourceError

PARENT_CHECK_SECONDS = 0.5


def create_module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of ours. Files of the working directory are not imported."""
    is_here = Path(__file__).resolve().parents[1] == Path.cwd()  # where the package itself is
    return (sys.executable, *([] if is_here else ["-P"]), "-m", module)


@contextmanager
def create_process_pool(
    num_processes: int,
    start_method: str,
    remedy: str,
    initialize: Callable[..., None] | None = None,
    *arguments: Any,
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes, each of which calls `initialize` first.

    One that is killed, as where memory lacks, raises our error.
    """
    context = get_context(start_method)
    initial = (os.getpid(), initialize, arguments)
    pool = ProcessPoolExecutor(num_processes, context, initialize_process, initial)
    try:
        yield pool
    except BrokenProcessPool:
        raise ResourceError(
            f"one of {num_processes} processes was killed: if memory is short, {remedy}; the same command "
            f"goes on"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def initialize_process(
    parent: int, initialize: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    end_with_parent(parent)
    if initialize:
        initialize(*arguments)


def end_with_parent(parent: int) -> None:
    """Let the process that started this one decide when to stop, and end when it is gone.

    A pool's processes hold both ends of their pipes, and would wait for a killed parent forever.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
