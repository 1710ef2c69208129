"""What the commands of the paper share."""

from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app

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
