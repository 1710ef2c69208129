"""The command `paper figures`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.options import AsJson, Device
from manyheads.cli.paper.app import Out, paper
from manyheads.cli.text_io import report_write_errors
from manyheads.named_models.resolution import resolve_model


@paper.command()
def figures(
    model: Annotated[
        Path | None, typer.Argument(help="A model folder.", metavar="MODEL", parser=resolve_model)
    ] = None,
    text: Annotated[
        Path | None,
        typer.Argument(
            help="Sentences of its source language, one per line; by default built-in ones.", metavar="TEXT"
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(help="Largest number of sentences to measure.", min=1)] = 300,
    reference: Annotated[
        Path | None,
        typer.Option(help="Translations of TEXT, line by line: BLEU when a head is cut.", metavar="FILE"),
    ] = None,
    paper_sentences: Annotated[
        bool, typer.Option("--paper-sentences", help="Draw the paper's own sentences and words.")
    ] = False,
    out: Out = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find and plot heads of a trained model that behave like those of Figures 3, 4 and 5.

    Measures long-distance, anaphora-like and structural attention over many sentences, beside the average
    head, and BLEU when each head is cut. Writes a report, and each figure as SVG, PDF and PNG.

    \b
    Example:
      manyheads paper figures manyheads-demo/run/model -o paper
    """
    from manyheads.paper.figures import write_figures
    from manyheads.progress import create_progress

    with report_write_errors("-o", out or Path("paper")) as folder, create_progress(sys.stderr) as progress:
        result = write_figures(
            model,
            folder,
            text=text,
            reference=reference,
            paper_sentences=paper_sentences,
            command=shlex.join(["manyheads", *sys.argv[1:]]),
            device=device,
            sentences=sentences,
            report_progress=progress.update,
        )
    if as_json:
        print(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
        return
    result.table.show()
    for figure in result.figures:
        print(f"Figure {figure.figure}: {figure.sentence}")
    for file in result.files:
        print(file)
