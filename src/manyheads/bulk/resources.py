"""How many workers a machine has resources for, and what each of them gets."""

import os
from dataclasses import dataclass

from manyheads.cuda.driver import count_gpus
from manyheads.errors import RequestError
from manyheads.text.subwords import count_cpus

CORES_PER_WORKER = 4  # on a CPU: one process does not use many cores well
MAX_WORKERS_PER_GPU = 3  # one process prepares text more slowly than a GPU translates it


@dataclass(frozen=True)
class WorkerResources:
    """What the workers of a job get."""

    num_workers: int
    num_gpus: int  # that they share; 0: they run on the CPU
    threads: int  # of each

    @property
    def device_type(self) -> str:
        return "cuda" if self.num_gpus else "cpu"

    def list_environments(self) -> list[dict[str, str]]:
        """Return the environment variables of each worker: its GPU, or its number of threads."""
        if not self.num_gpus:
            threads = os.environ.get("OMP_NUM_THREADS") or str(self.threads)
            return [{"OMP_NUM_THREADS": threads}] * self.num_workers
        stated = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = stated.split(",") if stated else [str(index) for index in range(self.num_gpus)]
        return [
            {"CUDA_VISIBLE_DEVICES": visible[worker % self.num_gpus]} for worker in range(self.num_workers)
        ]


def plan_local_workers(
    engine: str, device: str | None, gpus: str | None, workers: int | None
) -> WorkerResources:
    """Divide this machine: a worker per few cores, at most some for each GPU, at least one.

    gpus     a number or "all"; by default all, if the engine can use them
    workers  more than GPUs share them
    """
    can_use_gpus = can_use_gpu(engine, device)
    if gpus is not None and not can_use_gpus:
        reason = f"--device is {device}" if device == "cpu" else f"the engine {engine} runs on the CPU"
        raise RequestError(f"--gpus is {gpus}, but {reason}: leave --gpus away, or use --workers")
    available = count_gpus() if can_use_gpus else 0
    num_gpus = available if gpus in (None, "all") else parse_count("--gpus", gpus)
    if num_gpus > available or (gpus is not None and not available):
        raise RequestError(
            f"--gpus is {gpus}, but this machine has {available or 'none'}: "
            + ("give at most that many" if available else "--workers starts processes on the CPU")
        )
    if device == "cuda" and not num_gpus:
        raise RequestError("--device is cuda, but there is no GPU here: --device cpu")
    cores = count_cpus()
    num_workers = workers or count_workers(cores, num_gpus)
    if num_gpus:
        num_gpus = min(num_gpus, num_workers)
    return WorkerResources(num_workers, num_gpus, max(1, cores // num_workers))


def count_workers(cores: int, num_gpus: int) -> int:
    """Return how many workers keep so many GPUs, or the cores, busy."""
    num_workers = max(1, cores // CORES_PER_WORKER)
    return min(max(num_workers, num_gpus), MAX_WORKERS_PER_GPU * num_gpus) if num_gpus else num_workers


def can_use_gpu(engine: str, device: str | None) -> bool:
    return device != "cpu" and engine.partition(":")[0] == "torch"


def parse_count(option: str, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise RequestError(f'{option} is {text!r}, but must be a number from 1, or "all"')
    return int(text)
