"""Settings of the Python interpreter while a process translates a stream of texts."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

GC_THRESHOLDS = (100_000, 20, 100)  # objects, and collections of younger generations
SWITCH_SECONDS = 5e-4  # for which a thread may hold the interpreter's lock while another waits


@contextmanager
def stream_settings() -> Iterator[None]:
    """Collect garbage rarely, and let threads take turns quickly.

    A stream creates many objects and no cycles. The model is left out of garbage collection, which would also
    delay the end of the process. The thread that runs the engine gives the lock up at every call of the GPU:
    with Python's 5 ms it would wait longer for the threads beside it than a few decoding steps take.
    """
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
