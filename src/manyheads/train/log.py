"""The log of a run: `log.jsonl`, and TensorBoard event files where TensorBoard is installed."""

import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from manyheads.atomic_io import clear_temporary_file, report_disk_full
from manyheads.errors import DataError, install_command
from manyheads.train.event_file import EventFile
from manyheads.train.metrics import METRIC_FORMATS
from manyheads.train.timing import STARTUP_STAGES

LOG_FILE = "log.jsonl"
# What is read from a log to be compared, added up or drawn. Other keys may hold anything.
NUMBER_KEYS = {
    *METRIC_FORMATS,
    "seconds",
    "run_seconds",
    "finish_seconds",
    "compile",
    "compile_seconds",
    "grad_norm",
    "flops",
}


class RunLog:
    """Appends entries. Entries of steps that a resumed run computes again are removed first."""

    def __init__(self, run_folder: Path, step: int, print_message: Callable[[str], None]) -> None:
        self.path = run_folder / LOG_FILE
        self._open(step)
        if self.tensorboard is None:
            print_message(
                "TensorBoard is not installed, so no event files are written (log.jsonl has the same "
                f"numbers): {install_command('tensorboard')}"
            )

    def _open(self, step: int) -> None:
        truncate_log(self.path, step)
        self.file: IO[str] = self.path.open("a", encoding="utf-8")
        self.tensorboard = open_event_file(self.path.parent, step)

    def rewind(self, step: int) -> None:
        """Remove all entries after a step."""
        self.close()
        self._open(step)

    def write(self, event: str, step: int, metrics: dict[str, Any]) -> None:
        """Append an entry; the event is start, train, valid, checkpoint, rollback or end."""
        entry = {
            "event": event,
            "step": step,
            **{key: finite_or_none(value) for key, value in metrics.items()},
        }
        text = json.dumps(entry, ensure_ascii=False) + "\n"
        with report_disk_full(self.path, len(text.encode())):
            self.file.write(text)
            self.file.flush()
        if self.tensorboard is not None:
            scalars = {
                f"{event}/{name}": value for name, value in metrics.items() if isinstance(value, int | float)
            }
            with suppress(OSError):  # log.jsonl has the same numbers
                self.tensorboard.add_scalars(scalars, step)

    def sync(self) -> None:
        """Wait until every entry is on disk."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()
            if self.tensorboard is not None:
                self.tensorboard.close()


def finite_or_none(value: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_event_file(run_folder: Path, step: int) -> EventFile | None:
    """Open a file of TensorBoard for the entries after a step; None where TensorBoard is not installed."""
    try:
        return EventFile(run_folder / "tensorboard", purge_step=step + 1)
    except ImportError:
        return None


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log.

    A last line that a kill cut short is ignored, and so is what follows a NUL: a file that grew just before
    a power failure may end in them.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").partition("\0")[0].split("\n")
    entries = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{path}: line {number} is not JSON; delete it, or move the log away") from None
        if not is_entry(entry):
            raise DataError(
                f"{path}: line {number} is not an entry of a log (event, step, numbers); delete it, or move "
                f"the log away"
            )
        entries.append(entry)
    return entries


def is_entry(entry: Any) -> bool:
    """Return whether a line of a log has an event and a step, and numbers where numbers are read."""
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
        return False
    if type(entry.get("step")) is not int or entry["step"] < 0:
        return False
    keys = {*NUMBER_KEYS, *STARTUP_STAGES} if entry["event"] == "start" else NUMBER_KEYS
    return all(value is None or type(value) in (int, float) for key, value in entry.items() if key in keys)


def truncate_log(path: Path, step: int) -> None:
    """Remove the entries after a step, and the end of the run, which is written again."""
    if not path.exists():
        return
    kept = [entry for entry in read_log(path) if entry["step"] <= step and entry["event"] != "end"]
    temporary = clear_temporary_file(path.with_name(f"{path.name}.part"))
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in kept)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
