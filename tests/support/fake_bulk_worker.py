"""A bulk worker that needs no model: it returns rows in capitals, and does what special rows tell it."""

import os
import signal
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from manyheads.bulk.jobs import BulkJob, RowFunction, RowResults
from manyheads.bulk.worker import main
from manyheads.errors import DataError


def open_fake_job(job: BulkJob) -> RowFunction:
    if "refuse" in job.options:
        raise DataError("no model here")
    if "die at start" in job.options:
        os.kill(os.getpid(), signal.SIGKILL)
    print("what a library prints")
    return capitalize


def capitalize(rows: Sequence[str]) -> RowResults:
    for row in rows:
        command, _, value = row.partition(" ")
        if command == "die" or (command == "die-once" and not Path(value).exists()):
            Path(value or os.devnull).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if command == "sleep":
            time.sleep(float(value))
        if command == "refuse":
            raise DataError("a row that cannot be used")
        if command == "fail":
            raise ValueError("a bug")
        if command == "warn":
            warnings.warn(value, stacklevel=2)
    return RowResults({"translation": [row.upper() for row in rows]})


if __name__ == "__main__":
    main(open_fake_job)
