"""The file distill.json of a run: its settings, and how far it is."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.atomic_io import report_disk_full, write_text_atomically
from manyheads.errors import ConfigError, DataError

STATE_FILE = "distill.json"
FORMAT = 1
MAX_SHOWN_CHANGES = 5


@dataclass
class DistillState:
    """What is done of a run. It is written whenever it changes."""

    path: Path
    settings: dict[str, Any]
    command: str = ""
    done: list[str] = field(default_factory=list)  # stages
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage, over all calls
    measurements: dict[str, Any] = field(default_factory=dict)  # of the report, by name

    @classmethod
    def open(
        cls,
        run: Path,
        settings: dict[str, Any],
        command: str = "",
        is_fixed: Callable[[str], bool] = lambda key: True,
    ) -> "DistillState":
        """Begin a run, or read how far it is. Refuse a folder of something else, and other settings.

        A setting may change until `is_fixed` says that it decided what is written already.
        """
        path, settings = run / STATE_FILE, json.loads(json.dumps(settings))
        if not path.exists():
            if foreign := [entry.name for entry in run.iterdir() if not entry.name.startswith(".")]:
                raise DataError(f"{run}: holds {min(foreign)} and no {STATE_FILE}: choose another --out")
            state = cls(path, settings, command)
            state.save()
            return state
        state = cls.read(run)
        before = state.settings
        changed = [key for key in settings if key in before and before[key] != settings[key]]
        if fixed := [describe_setting(key, before[key], settings[key]) for key in changed if is_fixed(key)]:
            num_more = len(fixed) - MAX_SHOWN_CHANGES
            shown = "; ".join(fixed[:MAX_SHOWN_CHANGES]) + (f"; {num_more} more" if num_more > 0 else "")
            raise ConfigError(
                f"{run}: started with another configuration ({shown}); change it back, or choose another "
                f"folder with --out"
            )
        if changed:
            state.settings, state.command = settings, command or state.command
            state.save()
        return state

    @classmethod
    def read(cls, run: Path) -> "DistillState":
        path = run / STATE_FILE
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored.pop("format") != FORMAT:
                raise DataError(f"{path}: of another version of manyheads: choose another folder with --out")
            return cls(path, **stored)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: damaged: choose another folder with --out") from None

    def save(self) -> None:
        values = {key: value for key, value in vars(self).items() if key != "path"}
        text = json.dumps({"format": FORMAT, **values}, ensure_ascii=False, indent=1) + "\n"
        with report_disk_full(self.path, len(text)):
            write_text_atomically(self.path, text)

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Record the time of a stage, which need not be complete."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.save()

    def mark_done(self, stage: str) -> None:
        """Record that a stage is complete: what it writes is on the disk."""
        self.done.append(stage)
        self.save()

    def forget_measurements(self) -> None:
        """Let the report be made anew. The other stages stay as they are."""
        self.measurements = {}
        self.done = [stage for stage in self.done if stage != "report"]
        self.seconds.pop("report", None)
        self.save()

    def measure(self, name: str, function: Callable[[], Any]) -> Any:
        """Return a measurement, made now unless an earlier call has made it."""
        if name not in self.measurements:
            self.measurements[name] = function()
            self.save()
        return self.measurements[name]


def describe_setting(key: str, before: Any, after: Any) -> str:
    """Return what became of a setting; of models and data, whose values are checksums, that it changed."""
    if key == "teachers":
        return "the teachers are others"
    if key == "--data":
        return "the data is another one, or was prepared again"
    return checkpoint.describe_change(key, before, after)
