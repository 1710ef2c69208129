"""What the commands that train several models share: data, budget, processes, reports."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import exit_with_error
from manyheads.errors import EXIT_PREEMPTED
from manyheads.progress import ReportProgress

Data = Annotated[
    Path | None,
    typer.Argument(
        help="A data folder; by default the built-in corpus, written under --out.", metavar="DATA"
    ),
]
ScaleName = Annotated[str, typer.Option("--scale", help="Size of the models: playground, tiny or base.")]
Jobs = Annotated[
    int | None, typer.Option(help="Runs at the same time; by default one per core or GPU.", min=1, max=256)
]
Gpus = Annotated[int | None, typer.Option(help="Distribute the runs over this many GPUs.", min=1)]
Seeds = Annotated[int, typer.Option(help="Train each row with this many seeds.", min=1, max=100)]


def format_command() -> str:
    return shlex.join(["manyheads", *sys.argv[1:]])


def open_data(data: Path | None, out: Path, report_progress: ReportProgress, *, scarce: bool = False) -> Any:
    """Open a data folder, or prepare a built-in corpus: an easy one, or one with few pairs."""
    from manyheads.data.store import Store
    from manyheads.paper.small_corpus import EASY, SCARCE

    return Store.open(data) if data else (SCARCE if scarce else EASY).load(out, report_progress)


def exit_preempted(out: Path) -> None:
    exit_with_error(f"{out}: stopped; the same command resumes it", EXIT_PREEMPTED)


def print_report(report: dict[str, Any], tables: Sequence[Any], files: list[Path], as_json: bool) -> None:
    if as_json:
        print(json.dumps({**report, "files": list(map(str, files))}, ensure_ascii=False, indent=1))
        return
    for table in tables:
        table.show()
    print(*report["conclusions"], sep="\n")
    for path in files:
        print(path)
