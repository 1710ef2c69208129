"""Trials carried out by several processes at once: on the cores of a CPU, on one GPU, or over several."""

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

from manyheads.data.store import Store
from manyheads.errors import ConfigError, ManyheadsError, TrainingError
from manyheads.inference.torch_engine import resolve_device
from manyheads.paper.training_cost import measure_matmul_rate
from manyheads.paper.trials import Trial, TrialEnvironment, TrialResult, load_result
from manyheads.progress import Progress
from manyheads.train.preemption import watch_stop_signals

MAX_DEFAULT_JOBS = 8  # that are begun unasked
POLL_SECONDS = 0.2  # seconds between looks at whether someone asked to stop
TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)  # a trial is a world of its own


@dataclass(frozen=True)
class TrialResources:
    """What trials run on: a device, so many processes, so many GPUs, so many threads of each process."""

    device: str
    jobs: int
    gpus: int
    threads: int

    @classmethod
    def detect(cls, device: str | None, jobs: int | None, gpus: int | None, trials: int) -> "TrialResources":
        """Without a wish: a process for each core of a CPU, or one for each GPU."""
        known = resolve_device(device)
        there = torch.cuda.device_count() if known == "cuda" else 0
        if gpus is not None and gpus > there:
            raise ConfigError(f"--gpus is {gpus}, but there are {there} here")
        used = gpus or min(1, there)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        wanted = jobs or max(1, min(used or cores, trials, MAX_DEFAULT_JOBS))
        return cls(known, wanted, used, max(1, cores // wanted))

    @property
    def jobs_per_gpu(self) -> int:
        """Processes on one GPU; on a CPU each has cores of its own."""
        return -(-self.jobs // self.gpus) if self.gpus else 1

    def environment(self, index: int) -> dict[str, str]:
        """Of a process: which GPU it sees, and how many threads it may use."""
        kept = {name: value for name, value in os.environ.items() if name not in TORCHRUN_VARIABLES}
        kept.setdefault("OMP_NUM_THREADS", str(self.threads))
        if self.gpus:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.gpus)))
            kept["CUDA_VISIBLE_DEVICES"] = seen.split(",")[index % self.gpus]
        return kept


def run_trials(
    trials: Sequence[Trial], folder: Path, store: Store, resources: TrialResources, progress: Progress
) -> list[TrialResult] | None:
    """The result of each trial, those of an earlier call too. None: asked to stop; the same call goes on.

    Nothing begins before all settings agree with what is there.
    """
    waiting = [trial for trial in trials if load_result(folder, trial, store) is None]
    if len(waiting) < len(trials):
        progress.message(f"{folder}: {len(trials) - len(waiting)} of {len(trials)} runs are done already")
    if waiting and not TrialPool(waiting, folder, resources, progress).run():
        return None
    found = [load_result(folder, trial, store) for trial in trials]
    return [result for result in found if result is not None]


class TrialPool:
    """Processes that take trials from one list until it is empty."""

    def __init__(
        self, trials: Sequence[Trial], folder: Path, machine: TrialResources, progress: Progress
    ) -> None:
        self.trials, self.folder, self.resources, self.progress = trials, folder, machine, progress
        self.pending = deque(
            sorted(trials, key=estimate_step_cost, reverse=True)
        )  # so that no long one is left over at the end
        self.done = 0
        self.events: queue.Queue[tuple[Trial, dict[str, Any]]] = queue.Queue()
        self.failures: list[tuple[Trial, dict[str, Any]]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def run(self) -> bool:
        """False: asked to stop."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.progress.update("training", 0, len(self.trials))
        rate = measure_matmul_rate(self.resources.device, self.resources.threads)
        place = TrialEnvironment(
            self.resources.device, rate, self.resources.jobs, self.resources.jobs_per_gpu
        )
        with watch_stop_signals() as asked:
            threads = [
                self._start_worker(number, place)
                for number in range(min(self.resources.jobs, len(self.trials)))
            ]
            handed_on = False
            while any(thread.is_alive() for thread in threads) or not self.events.empty():
                if asked() and not handed_on:
                    handed_on = True
                    self._stop_workers()
                with suppress(queue.Empty):
                    self._handle_reply(*self.events.get(timeout=POLL_SECONDS), stopping=handed_on)
            if handed_on:
                return False
        self._raise_failures()
        return True

    def _start_worker(self, number: int, place: TrialEnvironment) -> threading.Thread:
        """One process, and the thread of ours that hands it trials."""
        log = (self.folder / f"process-{number + 1}.log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "manyheads.paper.trial_worker"],
            env=self.resources.environment(number),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C in the terminal reaches us alone, and we hand it on
        )
        self.processes.append(process)
        thread = threading.Thread(target=self._feed_worker, args=(process, place, log), daemon=True)
        thread.start()
        return thread

    def _feed_worker(self, process: "subprocess.Popen[str]", place: TrialEnvironment, log: IO[str]) -> None:
        """Until nothing is left, or the process dies, which its log explains."""
        died = json.dumps({"outcome": "died", "message": f"its process died; {log.name} says why", "code": 1})
        alive = True
        with log, suppress(BrokenPipeError), process:  # a dead one does not read what we have written
            while alive and self.pending:
                with suppress(IndexError):  # another thread was quicker
                    trial = self.pending.popleft()
                    asked = {"trial": trial.to_dict(), "folder": str(self.folder), "place": asdict(place)}
                    answer = send_request(process, json.dumps(asked))
                    alive = bool(answer)
                    self.events.put((trial, json.loads(answer or died)))

    def _stop_workers(self) -> None:
        self.pending.clear()
        self.progress.message("asked to stop: runs under way are saved")
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def _handle_reply(self, trial: Trial, answer: dict[str, Any], stopping: bool) -> None:
        if answer["outcome"] == "done":
            store = Store.open(trial.config.data.folder)
            result = load_result(self.folder, trial, store)
            assert result is not None
            self.progress.message(format_result(result))
        elif not stopping:
            self.progress.message(f"{trial.name}: {answer['message']}")
            self.failures.append((trial, answer))
        self.done += 1
        self.progress.update("training", self.done, len(self.trials))

    def _raise_failures(self) -> None:
        if not self.failures:
            return
        trial, first = self.failures[0]
        others = f", and {len(self.failures) - 1} more" if len(self.failures) > 1 else ""
        fault: ManyheadsError = TrainingError(
            f"{trial.name}: {first['message']}{others}; runs that are done are kept, and the same command "
            f"does the rest"
        )
        fault.exit_code = first["code"]
        raise fault


def send_request(process: "subprocess.Popen[str]", line: str) -> str:
    """A line for a line; nothing where the process is dead."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    return ""


def estimate_step_cost(trial: Trial) -> int:
    """About how long a step takes, compared with other trials."""
    model = trial.config.model
    return model.encoder_layers * model.d_model * (2 * model.d_model + model.d_ff)


def format_result(result: TrialResult) -> str:
    """A line about a trial that is done."""
    ppl = "infinite" if result.perplexity is None else f"{result.perplexity:.3f}"
    return (
        f"{result.row}, seed {result.seed}: perplexity {ppl}, BLEU {result.bleu.value:.2f} on "
        f"{result.split}, {result.steps:,} steps in {result.seconds:.0f} s"
    )
