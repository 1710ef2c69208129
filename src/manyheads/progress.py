"""Progress of long work, on stderr: a bar on a terminal, a plain line for each stage elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str, int, int | None], None]  # what is being done, how far it is, out of how much


def silent(stage: str, done: int, total: int | None) -> None:
    """For work that nobody watches."""


def counted(tell: Tell, stage: str, total: int) -> Callable[[int], None]:
    """A stage that is told by steps: so much more is done."""
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        tell(stage, done, total)

    return advance


@contextmanager
def shown() -> Iterator[Tell]:
    """What long work tells, where people see it."""
    with bars() if sys.stderr.isatty() else plain_lines() as tell:
        yield tell


@contextmanager
def bars() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    known: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as display:

        def finish_last() -> None:
            """A stage is done when the next begins, whatever it told last."""
            for task in list(known.values())[-1:]:
                display.update(task, completed=1, total=1)

        def tell(stage: str, done: int, total: int | None) -> None:
            if stage not in known:
                finish_last()
                known[stage] = display.add_task(stage, total=total)
            display.update(known[stage], completed=done, total=total)

        yield tell
        finish_last()


@contextmanager
def plain_lines() -> Iterator[Tell]:
    began: dict[str, float] = {}

    def close() -> None:
        for stage, start in list(began.items())[-1:]:
            print(f"{stage}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)

    def tell(stage: str, done: int, total: int | None) -> None:
        if stage not in began:
            close()
            began[stage] = time.monotonic()

    yield tell
    close()
