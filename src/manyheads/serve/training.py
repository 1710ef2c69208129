"""The curves of a training run, as its log has them now."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.errors import DataError, RequestError
from manyheads.train.log import LOG_FILE, read_log

MAX_POINTS = 1000  # of a kind
SERIES = ("train", "valid")
METRIC_KEYS = (
    "loss", "perplexity", "bleu", "learning_rate", "grad_norm", "tokens_per_second",
)  # fmt: skip


class TrainingRuns:
    """Runs whose logs are read when they have grown, and by one reader at a time."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        for folder in self.folders:
            if not (folder / LOG_FILE).is_file():
                raise RequestError(
                    f"{folder}: is no run, for it has no {LOG_FILE}; --run takes a run's folder"
                )
        self._cache: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._lock = asyncio.Lock()

    async def read_curves(self) -> list[dict[str, Any]]:
        async with self._lock:
            return [await asyncio.to_thread(self._read_run, folder) for folder in self.folders]

    def _read_run(self, folder: Path) -> dict[str, Any]:
        path = folder / LOG_FILE
        try:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size)
            if self._cache.get(folder, (None,))[0] != stamp:
                self._cache[folder] = (stamp, extract_curves(folder.resolve().name, read_log(path)))
        except (OSError, DataError) as fault:
            why = "is gone" if isinstance(fault, OSError) else "cannot be read"
            raise RequestError(f"the log of the run {folder.name} {why}") from None
        return self._cache[folder][1]


def extract_curves(name: str, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    lines = [line for line in lines if isinstance(line, dict)]
    points = {kind: [extract_point(line) for line in lines if line.get("event") == kind] for kind in SERIES}
    ended = any(line.get("event") == "end" for line in lines)
    return {"name": name, "ended": ended, **{kind: downsample(own) for kind, own in points.items()}}


def extract_point(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in ("step", *METRIC_KEYS) if isinstance(line.get(key), int | float)}


def downsample(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evenly; the last one stays."""
    every = -(-len(points) // MAX_POINTS)
    return points[::-1][:: every or 1][::-1]
