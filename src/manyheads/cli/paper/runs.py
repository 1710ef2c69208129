"""What the commands that train several models share: their data, budget and processes."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import exit_with_error
from manyheads.errors import EXIT_PREEMPTED

Data = Annotated[
    Path | None,
    typer.Argument(
        help="A data folder; without one the built-in corpus, written under --out.", metavar="DATA"
    ),
]
ScaleName = Annotated[
    str, typer.Option("--scale", help="playground, tiny or base: how large the models are.")
]
Jobs = Annotated[
    int | None, typer.Option(help="Runs at a time; without it one a core, or one a GPU.", min=1, max=256)
]
Gpus = Annotated[int | None, typer.Option(help="Spread the runs over so many GPUs.", min=1)]
Seeds = Annotated[int, typer.Option(help="Train each row so many times.", min=1, max=100)]


def format_command() -> str:
    return shlex.join(["manyheads", *sys.argv[1:]])


def open_data(data: Path | None, out: Path, tell: Any) -> Any:
    """The data that are asked for, or the built-in ones."""
    from manyheads.data.store import Store
    from manyheads.paper.small_corpus import load_small_corpus

    return Store.open(data) if data else load_small_corpus(out / "small-world", tell)


def exit_preempted(out: Path) -> None:
    exit_with_error(f"{out}: stopped as asked; the same command goes on", EXIT_PREEMPTED)


def print_report(told: dict[str, Any], tables: Sequence[Any], files: list[Path], as_json: bool) -> None:
    if as_json:
        print(json.dumps({**told, "files": list(map(str, files))}, ensure_ascii=False, indent=1))
        return
    for table in tables:
        table.show()
    print(*told["conclusions"], sep="\n")
    for path in files:
        print(path)
