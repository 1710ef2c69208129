"""`manyheads train` that is stopped in its first moments exits with 75, as later.

It is imported before all other modules of the command line.
"""

import sys

from manyheads.train.preemption import exit_on_early_signals

if sys.argv[1:2] == ["train"]:
    exit_on_early_signals("train: stopped before the first step; the same command starts it again")
