"""`manyheads train` or `distill` that is stopped in its first moments exits with 75, as later.

It is imported before all other modules of the command line.
"""

import sys

from manyheads.train.preemption import exit_on_early_signals

MESSAGES = {
    "train": "train: stopped before the first step; the same command starts it again",
    "distill": "distill: stopped; the same command goes on",
}

# A spawned process has the arguments of its parent, which decides when it stops.
if sys.argv[1:2] and sys.argv[1] in MESSAGES and "multiprocessing.spawn" not in sys.modules:
    exit_on_early_signals(MESSAGES[sys.argv[1]])
