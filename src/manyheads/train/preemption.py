"""Preemption: a run stops cleanly on SIGTERM, as clusters send it, and on Ctrl-C."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from manyheads.errors import EXIT_PREEMPTED
from manyheads.train.launcher import record_exit_code

DUPLICATE_SIGNAL_SECONDS = 0.5  # within which a second signal is the same request, sent to several processes


def exit_on_early_signals(message: str) -> None:
    """Exit on SIGTERM or Ctrl-C with a message, until one of the functions below or the launcher takes over.

    Importing torch and waiting for other ranks can take a while. Nothing has been written until then.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch() -> None:
        receiver.recv(1)
        if record_exit_code(EXIT_PREEMPTED):
            os.write(2, f"manyheads: {message}\n".encode())
        os._exit(EXIT_PREEMPTED)

    threading.Thread(target=watch, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(sender.detach())


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM as on Ctrl-C, in the main thread.

    What `exit_on_early_signals` set does not apply meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    wakeup_fd = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd)


@contextmanager
def watch_stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether SIGTERM or Ctrl-C has come. A second one exits at once.

    Python's own handlers wait until a long call into torch returns, so a thread watches for signals. They
    are only watched in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    times: list[float] = []

    def watch() -> None:
        while receiver.recv(1) != b"":
            times.append(time.monotonic())
            if times[-1] - times[0] > DUPLICATE_SIGNAL_SECONDS:
                record_exit_code(EXIT_PREEMPTED)
                os._exit(EXIT_PREEMPTED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.set_wakeup_fd(sender.fileno())
    try:
        yield lambda: bool(times)
    finally:
        signal.set_wakeup_fd(-1)  # not that of early signals: the run has ended
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sender.close()
        watcher.join()
        receiver.close()
