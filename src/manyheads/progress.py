"""Progress of long work: bars on a terminal, lines in a log, or nothing."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Literal, Self

LINE_INTERVAL_SECONDS = 10.0
BAR_INTERVAL_SECONDS = 0.1

ReportProgress = Callable[[str, int, int | None], None]  # stage, done, total
Unit = Literal["items", "bytes", "steps", "lines"]


class Progress:
    """Shows nothing; the subclasses do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def message(self, line: str) -> None:
        """Show a message."""

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show how far a stage is. A stage ends when the next begins."""

    def status(self, stage: str, done: int, total: int, text: str) -> None:
        """Show the latest numbers of a stage."""


class MessageLines(Progress):
    """For logs and pipes: messages and metrics only."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def message(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    def status(self, stage: str, done: int, total: int, text: str) -> None:
        self.message(f"{stage} {done:,} of {total:,}  {text}")


class ProgressLines(MessageLines):
    """For logs and pipes: a line when a stage begins and ends, and every ten seconds."""

    def __init__(self, stream: IO[str], unit: Unit = "items") -> None:
        super().__init__(stream)
        self.unit = unit
        self.stage = self.ended_stage = ""
        self.start_time = self.last_line_time = 0.0

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None:
            self._end_stage()

    def update(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self._end_stage()
            self.stage, self.start_time, self.last_line_time = stage, now, now
            self.message(f"{stage} ...")
        elif now - self.last_line_time > LINE_INTERVAL_SECONDS:
            self.last_line_time = now
            self.message(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))
        if self.unit == "bytes" and done == total:  # a download; other work reads all before it is done
            self._end_stage()

    def _end_stage(self) -> None:
        if self.stage not in ("", self.ended_stage):
            self.ended_stage = self.stage
            self.message(f"{self.stage}: done in {time.monotonic() - self.start_time:.1f} s")


class ProgressBars(Progress):
    """For a terminal: one bar per stage, and the latest metrics below."""

    def __init__(self, stream: IO[str], unit: Unit = "items") -> None:
        from rich import progress as rich
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        description = rich.TextColumn("{task.description}", markup=False)
        elapsed, remaining = rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
        columns: dict[Unit, list[rich.ProgressColumn]] = {
            "items": [description, rich.BarColumn(), rich.TaskProgressColumn(), elapsed, remaining],
            "bytes": [
                *(description, rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()),
                *(elapsed, remaining),
            ],
            "steps": [description, rich.MofNCompleteColumn(), rich.BarColumn(bar_width=24), elapsed],
            "lines": [
                *(description, rich.BarColumn(), rich.TextColumn("{task.fields[amount]}", markup=False)),
                *(elapsed, remaining),
            ],
        }
        self.unit = unit
        self.bars = rich.Progress(*columns[unit])
        self.numbers = Text("")
        # By default Live prints to its own stream what goes to stdout, even if that is a file or a pipe.
        redirect = sys.stdout.isatty()
        self.live = Live(
            self.bars, console=Console(file=stream), refresh_per_second=10, redirect_stdout=redirect
        )
        self.tasks: dict[str, Any] = {}
        self.stage_start = self.last_update = 0.0
        self.done = 0  # of the latest stage

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is None and self.unit != "steps":  # a run may stop before its last step
            self._end_stage()
        self.live.stop()

    def message(self, line: str) -> None:
        self.live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage not in self.tasks:
            self._end_stage()
            self.tasks[stage] = self.bars.add_task(stage, total=None, amount="")
            self.stage_start, self.last_update = now, 0.0
        self.done = done
        if now - self.last_update >= BAR_INTERVAL_SECONDS:
            self.last_update = now
            self._show(stage, total)

    def _show(self, stage: str, total: int | None) -> None:
        seconds = max(time.monotonic() - self.stage_start, 1e-3)
        amount = f"{self.done:,} lines, {self.done / seconds:,.0f} lines/s"
        self.bars.update(self.tasks[stage], completed=self.done, total=total, amount=amount)

    def status(self, stage: str, done: int, total: int, text: str) -> None:
        if not self.numbers.plain:
            from rich.console import Group

            self.live.update(Group(self.bars, self.numbers))
        self.numbers.plain = text

    def _end_stage(self) -> None:
        for stage in list(self.tasks)[-1:]:
            self.done = self.done or 1
            self._show(stage, self.done)


def create_progress(stream: IO[str], unit: Unit = "items") -> Progress:
    """Return bars if the stream is a terminal, lines otherwise.

    Training counts steps: its lines are those of the log, so progress itself prints none.
    """
    if stream.isatty():
        return ProgressBars(stream, unit)
    return MessageLines(stream) if unit == "steps" else ProgressLines(stream, unit)


def make_counter(report_progress: ReportProgress, stage: str, total: int) -> Callable[[int], None]:
    """Return a function that advances a stage by a number of units."""
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        report_progress(stage, done, total)

    return advance
