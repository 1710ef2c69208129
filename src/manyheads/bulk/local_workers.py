"""Workers that are processes on this machine, one per GPU or per few cores."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from manyheads.bulk.chunks import RowChunk
from manyheads.bulk.executor import EventQueue, WorkerLost, WorkerReady, WorkerReply
from manyheads.bulk.jobs import BulkJob
from manyheads.bulk.messages import read_messages, write_message
from manyheads.worker_processes import create_module_command

WORKER_COMMAND = create_module_command("manyheads.bulk.worker")


@dataclass
class LocalWorker:
    """A process, and the entry of `environments` that it runs in."""

    process: "subprocess.Popen[bytes]"
    place: int


class LocalWorkers:
    """Starts worker processes, which take messages from pipes."""

    def __init__(
        self,
        job: BulkJob,
        environments: list[dict[str, str]],
        command: tuple[str, ...] = WORKER_COMMAND,
    ) -> None:
        """`environments` has the environment variables of each worker beside those of this process."""
        self.job, self.environments, self.command = job, environments, command
        self.num_workers = len(environments)
        self.starts_alone = job.engine.startswith("ctranslate2")  # the first may have to convert the model
        self._workers: dict[int, LocalWorker] = {}

    def start_worker(self, worker: int, events: EventQueue) -> None:
        used = {other.place for other in self._workers.values()}
        place = next(place for place in range(self.num_workers) if place not in used)
        process = subprocess.Popen(
            self.command,
            env={**os.environ, **self.environments[place]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the workers
        )
        self._workers[worker] = LocalWorker(process, place)
        self._write(process, self.job.to_dict())
        threading.Thread(target=self._listen, args=(worker, process, events), daemon=True).start()

    def send(self, worker: int, chunk: RowChunk) -> None:
        if worker in self._workers:
            self._write(self._workers[worker].process, {"chunk": chunk.index, "rows": chunk.rows})

    def find_lost_seconds(self) -> float:
        return 0.0  # this machine is there

    def close(self) -> None:
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.process.kill()  # it holds nothing that is worth saving
        for worker in workers.values():
            worker.process.wait()

    def _write(self, process: "subprocess.Popen[bytes]", message: dict[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the end of its output says so too
            write_message(process.stdin, message)

    def _listen(self, worker: int, process: "subprocess.Popen[bytes]", events: EventQueue) -> None:
        """Report what a worker writes until it ends."""
        assert process.stdout is not None
        assert process.stdin is not None
        for message in read_messages(process.stdout):
            events.put(WorkerReady(worker) if "ready" in message else WorkerReply(worker, message))
        code = process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
        self._workers.pop(worker, None)
        events.put(WorkerLost(worker, describe_exit(code)))


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"
