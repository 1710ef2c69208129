"""Work on a GPU recorded as a graph, which is done again without Python."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def capture(work: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A recording of it, and where its results lie whenever that is replayed.

    What other threads do, such as making the next batch ready, is no business of a recording.
    """
    graph = torch.cuda.CUDAGraph()
    with gc_paused(), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = work()
    return graph, result


@contextmanager
def gc_paused() -> Iterator[None]:
    """An older graph may be among it, and to end one while another is recorded spoils the recording."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
