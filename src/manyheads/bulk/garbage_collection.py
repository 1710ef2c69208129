"""Garbage collection beside a stream of texts."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GC_THRESHOLDS = (100_000, 20, 100)  # objects, and collections of younger generations


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Leave the model out of garbage collection, and collect rarely: a stream creates many objects, no cycles.

    The objects left out do not delay the end of the process either.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
