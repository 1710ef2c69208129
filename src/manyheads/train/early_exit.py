"""What happens if a command is stopped in its first moments.

`manyheads train` and `distill` exit with 75, as later. Ctrl-C ends other commands without a traceback of what
they were importing. This module is imported before all other modules of the command line.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from manyheads.train.preemption import exit_on_early_signals

MESSAGES = {
    "train": "train: stopped before the first step; the same command starts it again",
    "distill": "distill: stopped; the same command goes on",
}


def is_command() -> bool:
    """Return whether this process runs `manyheads` or `python -m manyheads`, and does not import it only."""
    path = Path(sys.argv[0])
    return path.stem == "manyheads" or (path.name == "__main__.py" and path.parent.name == "manyheads")


def restore_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, which the command line handles."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, interrupt)


def interrupt(number: int, frame: Any) -> None:
    """Raise KeyboardInterrupt, but exit while torch is imported, whose C++ code aborts at an exception."""
    if is_importing("torch"):
        os._exit(128 + number)
    signal.default_int_handler(number, frame)


def is_importing(name: str) -> bool:
    """Return whether a module is being imported."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


# A spawned process has the arguments of its parent, which decides when it stops.
if sys.argv[1:2] and sys.argv[1] in MESSAGES and "multiprocessing.spawn" not in sys.modules:
    exit_on_early_signals(MESSAGES[sys.argv[1]])
elif is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until restore_interrupts
