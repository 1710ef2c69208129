"""manyheads paper figures."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.look import report_write_errors
from manyheads.cli.paper.app import AsJson, Device, Out, paper


@paper.command()
def figures(
    model: Annotated[Path | None, typer.Argument(help="A model folder.", metavar="MODEL")] = None,
    text: Annotated[
        Path | None,
        typer.Argument(
            help="Sentences of its source language, one a line; without it built-in ones.", metavar="TEXT"
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(help="How many are looked at, at most.", min=1)] = 300,
    out: Out = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find the heads of a trained model that are like those of Figures 3, 4 and 5, and draw them.

    Far-reaching, anaphora-like and structural attention, by stated measures over many sentences, beside
    what a head drawn at random has: a report, and each figure as SVG, PDF and PNG.
    Example: manyheads paper figures manyheads-demo/run/model -o paper
    """
    from manyheads.paper.figures import write_figures as find
    from manyheads.progress import create_progress

    with report_write_errors("-o", out or Path("paper")) as folder, create_progress(sys.stderr) as progress:
        found = find(
            model,
            folder,
            text=text,
            command=shlex.join(["manyheads", *sys.argv[1:]]),
            device=device,
            sentences=sentences,
            report_progress=progress.update,
        )
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
        return
    found.table.show()
    for one in found.figures:
        print(f"Figure {one.figure}: {one.sentence}")
    for file in found.files:
        print(file)
