"""A worker process: opens a job, then answers chunks of rows until its input closes.

`python -m manyheads.bulk.worker` is started by local_workers.py. Ray actors share `answer_chunk`.
"""

import os
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

from manyheads.atomic_io import DISK_FULL_ERRNOS
from manyheads.bulk.interpreter_settings import stream_settings
from manyheads.bulk.jobs import BulkJob, Row, RowFunction, open_job
from manyheads.bulk.messages import read_messages, write_message
from manyheads.errors import ManyheadsError, is_out_of_memory


def main(open_function: Callable[[BulkJob], RowFunction] = open_job) -> None:
    """Serve the coordinator at the other end of stdin and stdout."""
    messages, replies = open_channel()
    try:
        function = open_function(BulkJob(**messages.get()))
    except Exception as error:
        write_message(replies, describe_failure(error))
        os._exit(1)  # the thread that reads would keep an orderly exit from its lock
    write_message(replies, {"ready": True})
    with stream_settings():
        while True:
            message = messages.get()
            write_message(replies, {"chunk": message["chunk"], **answer_chunk(function, message["rows"])})


def open_channel() -> tuple["queue.SimpleQueue[dict[str, Any]]", IO[bytes]]:
    """Return the messages that arrive on stdin, as a thread reads them, and where to write replies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process closes our input
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=read_commands, args=(sys.stdin.buffer, messages), daemon=True).start()
    return messages, replies


def read_commands(stream: IO[bytes], messages: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Read ahead of the work. When the coordinator is done, or dead, end at once."""
    try:
        for message in read_messages(stream):
            messages.put(message)
    finally:
        os._exit(0)


def answer_chunk(function: RowFunction, rows: list[Row]) -> dict[str, Any]:
    """Return the columns and counts of a chunk and the warnings that it caused, or why it failed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=UserWarning)
        try:
            results = function(rows)
        except Exception as error:
            return describe_failure(error)
    assert all(len(values) == len(rows) for values in results.columns.values())
    messages = list(dict.fromkeys(str(entry.message) for entry in caught))
    return {"columns": results.columns, "counts": asdict(results.counts), "warnings": messages}


def describe_failure(error: Exception) -> dict[str, Any]:
    """Return the message and the exit code of an error. One that is not the user's shows a traceback."""
    if isinstance(error, ManyheadsError):
        return {"error": str(error), "exit_code": error.exit_code}
    if is_out_of_memory(error):
        return {"error": f"out of memory ({(str(error) or 'no details').splitlines()[0]})", "exit_code": 4}
    if isinstance(error, OSError):
        path = f"{error.filename}: " if error.filename else ""
        code = 4 if error.errno in DISK_FULL_ERRNOS else 3
        return {"error": f"{path}{error.strerror or error}", "exit_code": code}
    traceback.print_exception(error)
    return {"error": f"{type(error).__name__}: {error}", "exit_code": 1}


if __name__ == "__main__":
    main()
