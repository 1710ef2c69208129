"""What the commands of the paper share."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.errors import RequestError

paper = typer.Typer(
    name="paper",
    help="The paper's tables and figures, measured here, with its own numbers beside them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(paper)

Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder of the report; without it paper/ here.", metavar="DIR"),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; without it cuda where there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Report as JSON.")]


def resolve_output(out: Path | None) -> Path:
    """Where the report goes; a file of that name is told before anything is trained."""
    place = out or Path("paper")
    if place.exists() and not place.is_dir():
        raise RequestError(f"{place}: cannot be written (a file, no folder): give another place with --out")
    return place
