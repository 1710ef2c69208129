"""The curves of training runs, read from their logs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.errors import DataError, RequestError
from manyheads.train.log import LOG_FILE, read_log

MAX_POINTS = 1000  # per series
SERIES = ("train", "valid")
POINT_KEYS = ("step", "run_seconds")
METRIC_KEYS = ("loss", "perplexity", "bleu", "learning_rate", "grad_norm", "tokens_per_second")


class TrainingRuns:
    """Reads the logs of runs. A log is read again when it has grown, by one reader at a time."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        for folder in self.folders:
            if not (folder / LOG_FILE).is_file():
                raise RequestError(
                    f"{folder}: not a training run: it has no {LOG_FILE}; give --run the folder of a run"
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
        except (OSError, DataError) as error:
            problem = "is missing" if isinstance(error, OSError) else "cannot be read"
            raise RequestError(f"the log of the run {folder.name} {problem}") from None
        return self._cache[folder][1]


def extract_curves(name: str, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    lines = [line for line in lines if isinstance(line, dict)]
    curves = {
        series: downsample([extract_point(line) for line in lines if line.get("event") == series])
        for series in SERIES
    }
    return {"name": name, "ended": any(line.get("event") == "end" for line in lines), **curves}


def extract_point(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in (*POINT_KEYS, *METRIC_KEYS) if isinstance(line.get(key), int | float)}


def downsample(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep at most MAX_POINTS at even intervals, the last point among them."""
    interval = -(-len(points) // MAX_POINTS)
    return points[::-1][:: interval or 1][::-1]
