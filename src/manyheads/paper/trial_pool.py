"""Run trials in several processes: on the cores of a CPU, on one GPU, or on several GPUs."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch

from manyheads.cuda.device import resolve_device
from manyheads.data.store import Store
from manyheads.errors import ConfigError, ManyheadsError, TrainingError
from manyheads.paper.training_cost import measure_matmul_rate
from manyheads.paper.trials import Trial, TrialEnvironment, TrialResult, load_result
from manyheads.progress import Progress
from manyheads.train.preemption import watch_stop_signals

MAX_DEFAULT_JOBS = 8
POLL_SECONDS = 0.2  # between checks for a stop signal
TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)  # a trial is a world of its own


@dataclass(frozen=True)
class TrialResources:
    """The device that trials run on, the number of processes and GPUs, and the threads per process."""

    device: str
    jobs: int
    gpus: int
    threads: int

    @classmethod
    def detect(cls, device: str | None, jobs: int | None, gpus: int | None, trials: int) -> "TrialResources":
        """Fill in defaults: one process per core of a CPU, or one per GPU."""
        device_type = resolve_device(device)
        available = torch.cuda.device_count() if device_type == "cuda" else 0
        if gpus is not None and gpus > available:
            raise ConfigError(f"--gpus is {gpus}, but this machine has {available}: give at most that many")
        used_gpus = gpus or min(1, available)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        num_jobs = jobs or max(1, min(used_gpus or cores, trials, MAX_DEFAULT_JOBS))
        return cls(device_type, num_jobs, used_gpus, max(1, cores // num_jobs))

    @property
    def jobs_per_gpu(self) -> int:
        """Processes per GPU; 1 on a CPU, where each process has its own cores."""
        return -(-self.jobs // self.gpus) if self.gpus else 1

    def environment(self, index: int) -> dict[str, str]:
        """Return the environment variables of a process: the GPU it sees and its number of threads."""
        variables = {name: value for name, value in os.environ.items() if name not in TORCHRUN_VARIABLES}
        variables.setdefault("OMP_NUM_THREADS", str(self.threads))
        if self.gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.gpus)))
            variables["CUDA_VISIBLE_DEVICES"] = visible.split(",")[index % self.gpus]
        return variables


def run_trials(
    trials: Sequence[Trial], folder: Path, store: Store, resources: TrialResources, progress: Progress
) -> list[TrialResult] | None:
    """Run the trials that have no result yet, and return all results. None: stopped by a signal.

    Before any trial starts, all settings are checked against earlier runs in the folder.
    """
    pending = [trial for trial in trials if load_result(folder, trial, store) is None]
    if len(pending) < len(trials):
        progress.message(f"{folder}: {len(trials) - len(pending)} of {len(trials)} runs are already done")
    if pending and not TrialPool(pending, folder, resources, progress).run():
        return None
    results = [load_result(folder, trial, store) for trial in trials]
    return [result for result in results if result is not None]


class TrialPool:
    """Worker processes that take trials from a shared queue until it is empty."""

    def __init__(
        self, trials: Sequence[Trial], folder: Path, resources: TrialResources, progress: Progress
    ) -> None:
        self.trials, self.folder, self.resources, self.progress = trials, folder, resources, progress
        # Longest first, so that none is left over at the end.
        self.pending = deque(sorted(trials, key=estimate_step_cost, reverse=True))
        self.done = 0
        self.events: queue.Queue[tuple[Trial, dict[str, Any]]] = queue.Queue()
        self.failures: list[tuple[Trial, dict[str, Any]]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def run(self) -> bool:
        """Run all trials. False: stopped by a signal."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.progress.update("training", 0, len(self.trials))
        rate = measure_matmul_rate(self.resources.device, self.resources.threads)
        environment = TrialEnvironment(
            self.resources.device, rate, self.resources.jobs, self.resources.jobs_per_gpu
        )
        with watch_stop_signals() as stop_requested:
            threads = [
                self._start_worker(index, environment)
                for index in range(min(self.resources.jobs, len(self.trials)))
            ]
            stopping = False
            while any(thread.is_alive() for thread in threads) or not self.events.empty():
                if stop_requested() and not stopping:
                    stopping = True
                    self._stop_workers()
                with suppress(queue.Empty):
                    self._handle_reply(*self.events.get(timeout=POLL_SECONDS), stopping=stopping)
            if stopping:
                return False
        self._raise_failures()
        return True

    def _start_worker(self, index: int, environment: TrialEnvironment) -> threading.Thread:
        """Start a worker process and the thread that sends it trials."""
        log = (self.folder / f"process-{index + 1}.log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "manyheads.paper.trial_worker"],
            env=self.resources.environment(index),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C reaches only this process, which forwards it
        )
        self.processes.append(process)
        thread = threading.Thread(target=self._feed_worker, args=(process, environment, log), daemon=True)
        thread.start()
        return thread

    def _feed_worker(
        self, process: "subprocess.Popen[str]", environment: TrialEnvironment, log: IO[str]
    ) -> None:
        """Send trials until the queue is empty or the process dies."""
        died = json.dumps({"status": "died", "message": f"its process died; see {log.name}", "code": 1})
        alive = True
        with log, suppress(BrokenPipeError), process:  # a dead process does not read its input
            while alive and self.pending:
                with suppress(IndexError):  # another thread took the last trial
                    trial = self.pending.popleft()
                    request = {
                        "trial": trial.to_dict(),
                        "folder": str(self.folder),
                        "environment": asdict(environment),
                    }
                    reply = send_request(process, json.dumps(request))
                    alive = bool(reply)
                    self.events.put((trial, json.loads(reply or died)))

    def _stop_workers(self) -> None:
        self.pending.clear()
        self.progress.message("stop requested: saving the runs in progress")
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def _handle_reply(self, trial: Trial, reply: dict[str, Any], stopping: bool) -> None:
        if reply["status"] == "done":
            store = Store.open(trial.config.data.folder)
            result = load_result(self.folder, trial, store)
            assert result is not None
            self.progress.message(format_result(result))
        elif not stopping:
            self.progress.message(f"{trial.name}: {reply['message']}")
            self.failures.append((trial, reply))
        self.done += 1
        self.progress.update("training", self.done, len(self.trials))

    def _raise_failures(self) -> None:
        if not self.failures:
            return
        trial, first = self.failures[0]
        others = f", and {len(self.failures) - 1} more" if len(self.failures) > 1 else ""
        error: ManyheadsError = TrainingError(
            f"{trial.name}: {first['message']}{others}; finished runs are kept; repeat the command to "
            f"run the rest"
        )
        error.exit_code = first["code"]
        raise error


def send_request(process: "subprocess.Popen[str]", request: str) -> str:
    """Send a line and return the reply line; an empty string if the process is dead."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(request + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    return ""


def estimate_step_cost(trial: Trial) -> int:
    """Estimate the relative time of a step."""
    model = trial.config.model
    return model.encoder_layers * model.d_model * (2 * model.d_model + model.d_ff)


def format_result(result: TrialResult) -> str:
    """Return a one-line summary of a finished trial."""
    perplexity = "infinite" if result.perplexity is None else f"{result.perplexity:.3f}"
    return (
        f"{result.row}, seed {result.seed}: perplexity {perplexity}, BLEU {result.bleu.value:.2f} on "
        f"{result.split}, {result.steps:,} steps in {result.seconds:.0f} s"
    )
