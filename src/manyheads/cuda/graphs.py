"""CUDA graph capture: work on a GPU recorded once and replayed without Python."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def capture(function: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Record a function as a graph; return the graph and the tensors that each replay overwrites.

    Other threads, such as one that prepares the next batch, may use CUDA meanwhile.
    """
    graph = torch.cuda.CUDAGraph()
    with gc_paused(), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = function()
    return graph, result


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection: collecting an older graph during a capture would invalidate the capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
