"""What a run says: lines of `log.jsonl`, TensorBoard, and what a person sees while it trains."""

import json
import math
import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from manyheads.atomic_io import report_disk_full
from manyheads.errors import DataError

LOG_FILE = "log.jsonl"


class RunLog:
    """The log of a run. Lines of steps that a resumed run will do again are taken out first."""

    def __init__(self, run: Path, step: int) -> None:
        self.path = run / LOG_FILE
        self._open(step)

    def _open(self, step: int) -> None:
        truncate_log(self.path, step)
        self.file: IO[str] = self.path.open("a", encoding="utf-8")
        self.tensorboard = open_tensorboard(self.path.parent, step)

    def rewind(self, step: int) -> None:
        """As if what came after that step had not been."""
        self.close()
        self._open(step)

    def write(self, event: str, step: int, metrics: dict[str, Any]) -> None:
        line = {"kind": event, "step": step, **{key: finite_or_none(value) for key, value in metrics.items()}}
        text = json.dumps(line, ensure_ascii=False) + "\n"
        with report_disk_full(self.path, len(text.encode())):
            self.file.write(text)
            self.file.flush()
        scalars = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        with suppress(OSError):  # the same numbers stand in the log
            for name, value in scalars.items() if self.tensorboard is not None else ():
                self.tensorboard.add_scalar(f"{event}/{name}", value, step)

    def sync(self) -> None:
        os.fsync(self.file.fileno())

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()
            if self.tensorboard is not None:
                self.tensorboard.close()


def finite_or_none(value: Any) -> Any:
    """JSON has no word for infinity and for what is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_tensorboard(run: Path, step: int) -> Any:
    """TensorBoard's writer, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Its lines; a last one that was cut short by a kill does not count.

    Nor what follows a NUL: a file that grew just before the power failed may end in them.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").partition("\0")[0].split("\n")
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is not JSON; take it out, or move the log away") from None
    return found


def truncate_log(path: Path, step: int) -> None:
    """Without what was written after that step, and without an end, for there will be one."""
    if not path.exists():
        return
    kept = [line for line in read_log(path) if line["step"] <= step and line["kind"] != "end"]
    aside = path.with_name(f"{path.name}.part")
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


# ---- the screen


class TrainingConsole:
    """A line now and then: for logs and pipes."""

    def __init__(self, stream: IO[str] | None) -> None:
        self.stream = stream  # None: a rank that nobody watches

    def message(self, text: str) -> None:
        if self.stream is not None:
            print(text, file=self.stream, flush=True)

    def step(self, done: int, total: int) -> None:
        """After each step; only a bar shows it."""

    def show_metrics(self, step: int, total: int, numbers: dict[str, Any]) -> None:
        self.message(f"step {step:,} of {total:,}  {format_metrics(numbers)}")

    def close(self) -> None:
        pass


class Bar(TrainingConsole):
    """For a terminal: a bar, and the latest numbers under it."""

    def __init__(self, stream: IO[str], total: int, width: int | None = None) -> None:
        from rich import progress as rich
        from rich.console import Console, Group
        from rich.live import Live
        from rich.text import Text

        super().__init__(stream)
        self.bar = rich.Progress(
            rich.TextColumn("step"),
            rich.MofNCompleteColumn(),
            rich.BarColumn(bar_width=24),
            rich.TimeElapsedColumn(),
        )
        self.numbers = Text("")
        self.task = self.bar.add_task("", total=total)
        self.live = Live(Group(self.bar, self.numbers), console=Console(file=stream, width=width))
        self.live.start()

    def say(self, text: str) -> None:
        self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def step(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def log(self, step: int, total: int, numbers: dict[str, Any]) -> None:
        self.numbers.plain = format_metrics(numbers)

    def close(self) -> None:
        self.live.stop()


def format_metrics(numbers: dict[str, Any]) -> str:
    """The numbers of a log line, for people."""
    forms = {
        "loss": "loss {:.3f}",
        "perplexity": "perplexity {:.2f}",
        "learning_rate": "rate {:.2e}",
        "tokens_per_second": "{:,.0f} tokens/s",
        "share_of_peak": "{:.0%} of peak",
        "bleu": "BLEU {:.2f}",
    }
    texts = [form.format(numbers[key]) for key, form in forms.items() if numbers.get(key) is not None]
    if (left := numbers.get("left")) is not None:
        texts.append(f"{timedelta(seconds=round(left))} left")
    return "  ".join(texts)


def screen(total: int) -> TrainingConsole:
    return Bar(sys.stderr, total) if sys.stderr.isatty() else TrainingConsole(sys.stderr)
