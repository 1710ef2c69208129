"""Where the time of a run goes: from the command to its first step, validations, checkpoints."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_VARIABLE = "MANYHEADS_START"  # time.monotonic() when `train --gpus` was called, for its ranks
STARTUP_STAGES = {  # keys of a start entry, in order
    "imports": "imports",
    "setup": "process group and device",
    "data": "data",
    "model": "model",
    "restore": "checkpoint",
    "first_step": "first step",
}


def command_start() -> float:
    """Return when the command was called, by time.monotonic(): when its process started, imports included."""
    if START_VARIABLE in os.environ:
        return float(os.environ[START_VARIABLE])
    return time.monotonic() - max(0.0, process_age())


def process_age() -> float:
    """Return the seconds since this process started; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


class StartupTimer:
    """The seconds from the command to the first step, by stage."""

    def __init__(self, start: float | None = None) -> None:
        self.start = self.last = time.monotonic() if start is None else start
        self.seconds: dict[str, float] = {}

    def mark(self, stage: str) -> None:
        """Add the time since the last mark to a stage."""
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.last
        self.last = now

    def to_entry(self) -> dict[str, float]:
        """Return the metrics of a start entry: the total, and each stage."""
        return {"seconds": self.last - self.start, **self.seconds}


def summarize_time(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a log says about time, over all processes that continued the run.

    `seconds` is the time of the training loop, which includes validations and checkpoints; `starts` has the
    entries of each process, and `finish` the seconds from the last step to the model.
    """
    latest = [entry["run_seconds"] for entry in entries if entry.get("run_seconds") is not None]
    total = latest[-1] if latest else 0.0
    starts = [{key: entry[key] for key in entry if key != "event"} for entry in entries_of(entries, "start")]
    parts = {
        name: summarize_event(entries_of(entries, event), total)
        for name, event in (("validations", "valid"), ("checkpoints", "checkpoint"))
    }
    ends = entries_of(entries, "end")
    finish = ends[-1].get("finish_seconds") if ends else None
    return {"seconds": total, "starts": starts, **parts, "finish": finish}


def entries_of(entries: Sequence[Mapping[str, Any]], event: str) -> list[Mapping[str, Any]]:
    return [entry for entry in entries if entry["event"] == event]


def summarize_event(entries: Sequence[Mapping[str, Any]], total: float) -> dict[str, Any]:
    """Return how many there were, their seconds in all, at most, and as a share of the run."""
    seconds = [entry["seconds"] for entry in entries if entry.get("seconds") is not None]
    return {
        "count": len(entries),
        "seconds": sum(seconds),
        "max_seconds": max(seconds, default=0.0),
        "share": sum(seconds) / total if total else 0.0,
    }


def format_startup(entry: Mapping[str, Any]) -> str:
    """Format a start entry as one line."""
    stages = [f"{name} {entry[key]:.1f}" for key, name in STARTUP_STAGES.items() if entry.get(key)]
    if stages and entry.get("compile"):
        stages[-1] += f", of which {entry['compile']:.1f} for kernels and CUDA graphs"
    return f"first step {entry.get('seconds') or 0.0:.1f} s after the command ({', '.join(stages)})"


def format_time(summary: Mapping[str, Any]) -> str:
    """Format the time of the training loop as one line: validations and checkpoints, each and in all."""
    texts = [f"{summary['seconds']:.1f} s of training"]
    for name in ("validations", "checkpoints"):
        part = summary[name]
        if part["count"]:
            texts.append(
                f"{part['count']:,} {name if part['count'] > 1 else name[:-1]} {part['seconds']:.1f} s "
                f"({part['share']:.1%}, at most {part['max_seconds']:.2f} s each)"
            )
    if summary["finish"] is not None:
        texts.append(f"then {summary['finish']:.1f} s for the final model")
    return ", ".join(texts)
