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
from manyheads.paper.training_cost import sustained_rate
from manyheads.paper.trials import Place, Result, Trial, result_of
from manyheads.progress import Progress
from manyheads.train.preemption import watch_stop_signals

MOST_JOBS = 8  # that are begun unasked
LOOK_EVERY = 0.2  # seconds between looks at whether someone asked to stop
OF_TORCHRUN = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)  # a trial is a world of its own


@dataclass(frozen=True)
class Machine:
    """What trials run on: a device, so many processes, so many GPUs, so many threads of each process."""

    device: str
    jobs: int
    gpus: int
    threads: int

    @classmethod
    def asked(cls, device: str | None, jobs: int | None, gpus: int | None, trials: int) -> "Machine":
        """Without a wish: a process for each core of a CPU, or one for each GPU."""
        known = resolve_device(device)
        there = torch.cuda.device_count() if known == "cuda" else 0
        if gpus is not None and gpus > there:
            raise ConfigError(f"--gpus is {gpus}, but there are {there} here")
        used = gpus or min(1, there)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        wanted = jobs or max(1, min(used or cores, trials, MOST_JOBS))
        return cls(known, wanted, used, max(1, cores // wanted))

    @property
    def together(self) -> int:
        """Processes on one GPU; on a CPU each has cores of its own."""
        return -(-self.jobs // self.gpus) if self.gpus else 1

    def environment(self, number: int) -> dict[str, str]:
        """Of a process: which GPU it sees, and how many threads it may use."""
        kept = {name: value for name, value in os.environ.items() if name not in OF_TORCHRUN}
        kept.setdefault("OMP_NUM_THREADS", str(self.threads))
        if self.gpus:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.gpus)))
            kept["CUDA_VISIBLE_DEVICES"] = seen.split(",")[number % self.gpus]
        return kept


def carry_out_all(
    trials: Sequence[Trial], folder: Path, store: Store, machine: Machine, progress: Progress
) -> list[Result] | None:
    """The result of each trial, those of an earlier call too. None: asked to stop; the same call goes on.

    Nothing begins before all settings agree with what is there.
    """
    waiting = [trial for trial in trials if result_of(folder, trial, store) is None]
    if len(waiting) < len(trials):
        progress.message(f"{folder}: {len(trials) - len(waiting)} of {len(trials)} runs are done already")
    if waiting and not Team(waiting, folder, machine, progress).work():
        return None
    found = [result_of(folder, trial, store) for trial in trials]
    return [result for result in found if result is not None]


class Team:
    """Processes that take trials from one list until it is empty."""

    def __init__(self, trials: Sequence[Trial], folder: Path, machine: Machine, progress: Progress) -> None:
        self.trials, self.folder, self.machine, self.progress = trials, folder, machine, progress
        self.left = deque(
            sorted(trials, key=size, reverse=True)
        )  # so that no long one is left over at the end
        self.done = 0
        self.events: queue.Queue[tuple[Trial, dict[str, Any]]] = queue.Queue()
        self.faults: list[tuple[Trial, dict[str, Any]]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def work(self) -> bool:
        """False: asked to stop."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.progress.update("training", 0, len(self.trials))
        rate = sustained_rate(self.machine.device, self.machine.threads)
        place = Place(self.machine.device, rate, self.machine.jobs, self.machine.together)
        with watch_stop_signals() as asked:
            threads = [
                self._member(number, place) for number in range(min(self.machine.jobs, len(self.trials)))
            ]
            handed_on = False
            while any(thread.is_alive() for thread in threads) or not self.events.empty():
                if asked() and not handed_on:
                    handed_on = True
                    self._hand_on()
                with suppress(queue.Empty):
                    self._hear(*self.events.get(timeout=LOOK_EVERY), stopping=handed_on)
            if handed_on:
                return False
        self._raise_faults()
        return True

    def _member(self, number: int, place: Place) -> threading.Thread:
        """One process, and the thread of ours that hands it trials."""
        log = (self.folder / f"process-{number + 1}.log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "manyheads.paper.trial_worker"],
            env=self.machine.environment(number),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C in the terminal reaches us alone, and we hand it on
        )
        self.processes.append(process)
        thread = threading.Thread(target=self._serve, args=(process, place, log), daemon=True)
        thread.start()
        return thread

    def _serve(self, process: "subprocess.Popen[str]", place: Place, log: IO[str]) -> None:
        """Until nothing is left, or the process dies, which its log explains."""
        died = json.dumps({"outcome": "died", "message": f"its process died; {log.name} says why", "code": 1})
        alive = True
        with log, suppress(BrokenPipeError), process:  # a dead one does not read what we have written
            while alive and self.left:
                with suppress(IndexError):  # another thread was quicker
                    trial = self.left.popleft()
                    asked = {"trial": trial.to_dict(), "folder": str(self.folder), "place": asdict(place)}
                    answer = answered(process, json.dumps(asked))
                    alive = bool(answer)
                    self.events.put((trial, json.loads(answer or died)))

    def _hand_on(self) -> None:
        self.left.clear()
        self.progress.message("asked to stop: runs under way are saved")
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def _hear(self, trial: Trial, answer: dict[str, Any], stopping: bool) -> None:
        if answer["outcome"] == "done":
            store = Store.open(trial.config.data.folder)
            result = result_of(self.folder, trial, store)
            assert result is not None
            self.progress.message(told(result))
        elif not stopping:
            self.progress.message(f"{trial.name}: {answer['message']}")
            self.faults.append((trial, answer))
        self.done += 1
        self.progress.update("training", self.done, len(self.trials))

    def _raise_faults(self) -> None:
        if not self.faults:
            return
        trial, first = self.faults[0]
        others = f", and {len(self.faults) - 1} more" if len(self.faults) > 1 else ""
        fault: ManyheadsError = TrainingError(
            f"{trial.name}: {first['message']}{others}; runs that are done are kept, and the same command "
            f"does the rest"
        )
        fault.exit_code = first["code"]
        raise fault


def answered(process: "subprocess.Popen[str]", line: str) -> str:
    """A line for a line; nothing where the process is dead."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    return ""


def size(trial: Trial) -> int:
    """About how long a step takes, compared with other trials."""
    model = trial.config.model
    return model.layers * model.d_model * (2 * model.d_model + model.d_ff)


def told(result: Result) -> str:
    """A line about a trial that is done."""
    ppl = "infinite" if result.perplexity is None else f"{result.perplexity:.3f}"
    return (
        f"{result.row}, seed {result.seed}: perplexity {ppl}, BLEU {result.bleu.value:.2f} on "
        f"{result.split}, {result.steps:,} steps in {result.seconds:.0f} s"
    )
