"""Being asked to stop: by SIGTERM, as a cluster does, or by Ctrl-C."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from manyheads.errors import EXIT_PREEMPTED
from manyheads.train.launcher import record_exit_code

DUPLICATE_SIGNAL_SECONDS = (
    0.5  # seconds within which a second signal is the first one again, sent to several at once
)


@contextmanager
def watch_stop_signals() -> Iterator[Callable[[], bool]]:
    """Whether someone asked us to stop: SIGTERM or Ctrl-C. Asked twice, we leave at once.

    Python's own handlers wait until a long call into torch returns; so a thread watches for signals. Only a
    main thread can be asked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    times: list[float] = []

    def watch() -> None:
        while ears.recv(1) != b"":
            times.append(time.monotonic())
            if times[-1] - times[0] > DUPLICATE_SIGNAL_SECONDS:
                record_exit_code(EXIT_PREEMPTED)
                os._exit(EXIT_PREEMPTED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(mouth.fileno())
    try:
        yield lambda: bool(times)
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        mouth.close()
        watcher.join()
        ears.close()
