"""How far long work has come: silent, a line now and then, or a bar where someone is watching."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Self

LINE_INTERVAL_SECONDS = 10.0  # seconds

ReportProgress = Callable[[str, int, int | None], None]  # what is being done, how far it is, out of how much


class Progress:
    """Says nothing. The two below speak."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def message(self, line: str) -> None:
        """A thing worth knowing, once."""

    def update(self, stage: str, done: int, total: int | None) -> None:
        """How far a stage is. It is over when the next begins."""


class ProgressLines(Progress):
    """For logs and pipes: a line when a stage begins and when it ends, and every ten seconds between."""

    def __init__(self, stream: IO[str], downloads: bool = False) -> None:
        self.stream, self.downloads = stream, downloads
        self.stage = self.ended = ""
        self.began = self.spoke = 0.0

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end_stage()

    def message(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    def update(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self.stage:
            self._end_stage()
            self.stage, self.began, self.spoke = stage, now, now
            self.message(f"{stage} ...")
        elif now - self.spoke > LINE_INTERVAL_SECONDS:
            self.spoke = now
            self.message(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))
        if self.downloads and done == total:  # other work has read all before it has done all
            self._end_stage()

    def _end_stage(self) -> None:
        if self.stage not in ("", self.ended):
            self.ended = self.stage
            self.message(f"{self.stage}: done in {time.monotonic() - self.began:.1f} s")


class ProgressBars(Progress):
    """For a terminal: one bar a stage. Those of downloads show bytes and their speed."""

    def __init__(self, stream: IO[str], downloads: bool = False) -> None:
        from rich import progress as rich
        from rich.console import Console

        amounts = (
            [rich.DownloadColumn(), rich.TransferSpeedColumn()] if downloads else [rich.TaskProgressColumn()]
        )
        self.bars = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            *amounts,
            rich.TimeElapsedColumn(),
            rich.TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end_stage()
        self.bars.stop()

    def message(self, line: str) -> None:
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def update(self, stage: str, done: int, total: int | None) -> None:
        if stage not in self.tasks:
            self._end_stage()
            self.tasks[stage] = self.bars.add_task(stage, total=None)
        self.bars.update(self.tasks[stage], completed=done, total=total)

    def _end_stage(self) -> None:
        for task in list(self.tasks.values())[-1:]:
            done = self.bars.tasks[task].completed or 1
            self.bars.update(task, completed=done, total=done)


def create_progress(stream: IO[str], downloads: bool = False) -> Progress:
    """Bars where a person looks at the stream, lines where it is kept."""
    return ProgressBars(stream, downloads) if stream.isatty() else ProgressLines(stream, downloads)


def make_counter(report_progress: ReportProgress, stage: str, total: int) -> Callable[[int], None]:
    """A stage that is told by steps: so much more is done."""
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        report_progress(stage, done, total)

    return advance
