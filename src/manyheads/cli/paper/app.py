"""What the commands of the paper share."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import CommandGroup, app
from manyheads.errors import RequestError

paper = typer.Typer(
    name="paper",
    cls=CommandGroup,
    help="Reproduce the paper's tables and figures, with its own numbers beside ours.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(paper)

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder of the report; by default paper.", metavar="DIR"),
]


def resolve_output(out: Path | None) -> Path:
    """Return the folder of the report. A file of that name is refused before anything is trained."""
    folder = out or Path("paper")
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder}: cannot be written (it is a file): give another path with --out")
    return folder
