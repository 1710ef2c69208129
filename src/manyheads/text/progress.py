"""How far a long fetch has come: silent, a line now and then, or a bar where someone is watching."""

import time
from types import TracebackType
from typing import IO, Any, Self

LINE_EVERY = 10.0  # seconds


class Progress:
    """Says nothing. The two below speak."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        """A thing worth knowing, once."""

    def bytes(self, name: str, done: int, total: int | None) -> None:
        """How much of a file is here."""


class Lines(Progress):
    """For logs and pipes: a line when a file begins and ends, and every ten seconds between."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.name, self.spoke = stream, "", 0.0

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        if name != self.name or done == total or time.monotonic() - self.spoke > LINE_EVERY:
            self.name, self.spoke = name, time.monotonic()
            self.say(f"{name}: {megabytes(done)} of {megabytes(total)}")


class Bars(Progress):
    """For a terminal: one bar a file."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        self.bars = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def say(self, line: str) -> None:
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def bytes(self, name: str, done: int, total: int | None) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=None)
        self.bars.update(self.tasks[name], completed=done, total=total)


def watched(stream: IO[str]) -> Progress:
    """Bars where a person looks at the stream, lines where it is kept."""
    return Bars(stream) if stream.isatty() else Lines(stream)


def megabytes(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e6:,.1f} MB"
