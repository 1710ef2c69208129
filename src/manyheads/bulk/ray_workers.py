"""Workers that are actors of a Ray cluster, or of a Ray that is started on this machine for the job.

Ray schedules the actors and carries their messages; chunks of lost actors are run again by the coordinator.
The same version of manyheads must be installed on every machine. A model is read from its path if the same
model is there, as on a shared file system, and is otherwise sent through Ray's object store.
"""

import atexit
import importlib.util
import logging
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from manyheads import __version__
from manyheads.bulk.chunks import RowChunk
from manyheads.bulk.executor import EventQueue, WorkerLost, WorkerReady, WorkerReply
from manyheads.bulk.interpreter_settings import stream_settings
from manyheads.bulk.jobs import BulkJob, RowFunction, open_job
from manyheads.bulk.model_files import hash_model, read_model_files, write_model_files
from manyheads.bulk.resources import CORES_PER_WORKER, WorkerResources, can_use_gpu
from manyheads.bulk.worker import answer_chunk, describe_failure
from manyheads.errors import RequestError, install_command
from manyheads.text.subwords import count_cpus

CONNECT_SECONDS = 10
POLL_SECONDS = 5.0  # between looks at the nodes of the cluster
CLOSE_SECONDS = 15.0  # that Ray gets to end actors and connections; a cluster that is gone never does
LOCAL = "local"  # the address that starts a Ray on this machine


class RayWorker:
    """An actor: opens a job, then answers chunks of rows."""

    function: RowFunction

    def open(self, job: dict[str, Any], version: str, models: list[dict[str, Any]]) -> dict[str, Any]:
        """Load the models. Each of `models` has a hash and a list with a reference to its files, or none."""
        try:
            if version != __version__:
                raise RequestError(f"manyheads is {version} here, but {__version__} on a worker's machine")
            with tempfile.TemporaryDirectory(prefix="manyheads-") as temporary:
                pairs = enumerate(zip(job["models"], models, strict=True))
                folders = [
                    find_model(folder, Path(temporary, str(number)), **model)
                    for number, (folder, model) in pairs
                ]
                self.function = open_job(BulkJob(**{**job, "models": folders}))
        except Exception as error:
            return describe_failure(error)
        return {"ready": True}

    def run(self, chunk: int, rows: list[Any]) -> dict[str, Any]:
        with stream_settings():
            return {"chunk": chunk, **answer_chunk(self.function, rows)}


def find_model(folder: str, temporary: Path, sha256: str, files: list[Any]) -> str:
    """Return the folder if it holds this model; otherwise a temporary one with the files that were sent."""
    if hash_model(Path(folder)) == sha256:
        return folder
    if not files:
        raise RequestError(f"{folder}: is another model, or none, on a worker's machine")
    import ray

    write_model_files(temporary, ray.get(files[0]))
    return str(temporary)


class RayWorkers:
    """Starts actors on a Ray cluster."""

    def __init__(self, job: BulkJob, address: str, num_workers: int | None = None) -> None:
        self.starts_alone = job.engine.startswith("ctranslate2")  # the first may have to convert the model
        self._ray = import_ray()
        self._actors: dict[int, tuple[Any, EventQueue]] = {}
        connect(self._ray, address, num_workers)
        try:
            self.resources = plan_ray_workers(self._ray.nodes(), job, num_workers)
            self.num_workers = self.resources.num_workers
            self._job = {
                **job.to_dict(),
                "device": self.resources.device_type,
                "threads": self.resources.threads,
            }
            self._models = [self._describe_model(Path(folder)) for folder in job.models]
            self._watch = ClusterWatch(self._ray.nodes, self.resources)
            # Ray's calls wait for a cluster that is gone, and so are made in a thread.
            self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
            self._caller = threading.Thread(target=self._make_calls, name="manyheads Ray calls", daemon=True)
            self._caller.start()
        except BaseException:
            self._ray.shutdown()
            raise

    def _make_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _describe_model(self, folder: Path) -> dict[str, Any]:
        """Put the files of a model into the object store, unless all workers are on this machine.

        The reference is in a list, so that Ray hands it over as it is.
        """
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        files = [self._ray.put(read_model_files(folder))] if len(nodes) > 1 else []
        return {"sha256": hash_model(folder), "files": files}

    def start_worker(self, worker: int, events: EventQueue) -> None:
        self._calls.put(partial(self._start_worker, worker, events))

    def send(self, worker: int, chunk: RowChunk) -> None:
        self._calls.put(partial(self._send, worker, chunk))

    def _start_worker(self, worker: int, events: EventQueue) -> None:
        resources = self.resources
        amounts = {"num_gpus": 1} if resources.num_gpus else {"num_cpus": resources.threads}
        try:
            actor = self._ray.remote(RayWorker).options(**amounts).remote()
        except Exception as error:
            events.put(WorkerReply(worker, describe_failure(error)))
            return
        self._actors[worker] = actor, events
        self._report(worker, actor.open.remote(self._job, __version__, self._models), events)

    def _send(self, worker: int, chunk: RowChunk) -> None:
        actor, events = self._actors[worker]
        self._report(worker, actor.run.remote(chunk.index, chunk.rows), events)

    def _report(self, worker: int, reference: Any, events: EventQueue) -> None:
        """Report the result of a call when there is one."""

        def report(future: Any) -> None:
            error = future.exception()
            if isinstance(error, self._ray.exceptions.RayActorError):
                events.put(WorkerLost(worker, "was lost by Ray"))
            elif error is not None:
                events.put(WorkerReply(worker, describe_failure(error)))
            elif "ready" in future.result():
                events.put(WorkerReady(worker))
            else:
                events.put(WorkerReply(worker, future.result()))

        reference.future().add_done_callback(report)

    def find_lost_seconds(self) -> float:
        return self._watch.find_lost_seconds()

    def close(self) -> None:
        """End actors and connections, unless Ray waits for a cluster that is gone."""
        self._watch.stop()
        self._calls.put(self._close)
        self._calls.put(None)
        self._caller.join(CLOSE_SECONDS)
        if self._caller.is_alive():
            atexit.unregister(self._ray.shutdown)  # it would wait at exit

    def _close(self) -> None:
        for actor, _ in self._actors.values():
            self._ray.kill(actor)
        self._ray.shutdown()


class ClusterWatch:
    """Looks at the nodes of a cluster in a thread, whose calls may wait for a cluster that is gone."""

    def __init__(self, list_nodes: Callable[[], list[dict[str, Any]]], resources: WorkerResources) -> None:
        self._list_nodes, self._resources = list_nodes, resources
        self._last_seen = time.monotonic()  # a node that a worker can run on
        self._stopped = threading.Event()
        threading.Thread(target=self._poll, name="manyheads cluster watch", daemon=True).start()

    def find_lost_seconds(self) -> float:
        """Return the seconds since a node that a worker can run on was last seen, without those of a poll."""
        return max(0.0, time.monotonic() - self._last_seen - POLL_SECONDS)

    def stop(self) -> None:
        self._stopped.set()

    def _poll(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            with suppress(Exception):  # of Ray: it does not answer
                if can_run_worker(self._list_nodes(), self._resources):
                    self._last_seen = time.monotonic()


def can_run_worker(nodes: list[dict[str, Any]], resources: WorkerResources) -> bool:
    """Return whether a node is alive that has the GPU or the cores of a worker, in use or not."""
    name, amount = ("GPU", 1) if resources.num_gpus else ("CPU", resources.threads)
    return any(node["Alive"] and node["Resources"].get(name, 0) >= amount for node in nodes)


def is_installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise RequestError(f"--ray needs the package ray: {install_command('ray')}") from None
    return ray


def connect(ray: Any, address: str, num_workers: int | None) -> None:
    """Join the cluster at an address, or start a Ray on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        cores = max(count_cpus(), num_workers or 1)
        ray.init(address=LOCAL, num_cpus=cores, include_dashboard=False, **quiet)
        return
    try:
        check_address(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RequestError(
            f"--ray is {address}, but there is no Ray cluster ({reason}): give the host:port that `ray start "
            f"--head` printed, or --ray alone for this machine"
        ) from None


def check_address(address: str) -> None:
    """Raise an error if nobody listens at an address: Ray itself would try for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def plan_ray_workers(nodes: list[dict[str, Any]], job: BulkJob, num_workers: int | None) -> WorkerResources:
    """Divide a cluster: one worker per GPU, or per few cores where there is none."""
    totals = [node["Resources"] for node in nodes if node["Alive"]]
    num_gpus = sum(int(total.get("GPU", 0)) for total in totals) if can_use_gpu(job.engine, job.device) else 0
    if job.device == "cuda" and not num_gpus:
        raise RequestError("--device is cuda, but the cluster has no GPU: --device cpu")
    if num_gpus:
        if num_workers and num_workers > num_gpus:
            raise RequestError(f"--workers is {num_workers}, but the cluster has {num_gpus} GPUs: lower it")
        return WorkerResources(num_workers or num_gpus, num_workers or num_gpus, CORES_PER_WORKER)
    cores = [int(total.get("CPU", 0)) for total in totals]
    if num_workers is None:
        threads = max(1, min(CORES_PER_WORKER, *cores))
        return WorkerResources(sum(count // threads for count in cores), 0, threads)
    for threads in range(max(cores), 0, -1):
        if sum(count // threads for count in cores) >= num_workers:
            return WorkerResources(num_workers, 0, threads)
    raise RequestError(f"--workers is {num_workers}, but the cluster has {sum(cores)} CPUs: lower it")
