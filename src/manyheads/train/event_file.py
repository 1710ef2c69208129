"""Event files of TensorBoard.

They are written by the thread that logs. TensorBoard's own writer has a thread, which prints a traceback if
the disk is full or the folder was moved.
"""

import itertools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

file_numbers = itertools.count()  # of this process, as a log that is rewound has several files


class EventFile:
    """Appends scalars to a new event file. ImportError where TensorBoard is not installed."""

    def __init__(self, folder: Path, purge_step: int) -> None:
        """Entries of `purge_step` and later, of the files before, are hidden."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.Event, self.Summary = Event, Summary
        folder.mkdir(exist_ok=True)
        seconds, number = int(time.time()), next(file_numbers)
        name = f"events.out.tfevents.{seconds:010d}.{socket.gethostname()}.{os.getpid()}.{number}"
        self.records = RecordWriter((folder / name).open("xb"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=purge_step, session_log=start))

    def add_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        values = [self.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._write(self.Event(wall_time=time.time(), step=step, summary=self.Summary(value=values)))

    def _write(self, event: object) -> None:
        self.records.write(event.SerializeToString())  # type: ignore[attr-defined]
        self.records.flush()

    def close(self) -> None:
        self.records.close()
