"""manyheads paper table4."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import exit_with_error
from manyheads.cli.paper.app import AsJson, Device, Out, paper, resolve_output
from manyheads.errors import EXIT_PREEMPTED


@paper.command()
def table4(
    trees: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files of bracketed trees, one a line, or folders of them; without any, built-in trees.",
            metavar="TREES",
        ),
    ] = None,
    out: Out = None,
    reads: Annotated[
        str,
        typer.Option(
            "--input", help="What the model reads: words, tags (parts of speech) or both; several by commas."
        ),
    ] = "words,both",
    model: Annotated[
        str | None, typer.Option(help="A preset's model, such as small or parsing; without it a tiny one.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each model; without it 1000, 180 s at the latest.", min=1)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Training of each model ends after so long at the latest.", min=1)
    ] = None,
    vocabulary: Annotated[int, typer.Option(help="Pieces of words, at most.", min=300)] = 4000,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other key of a run, several times.", metavar="SECTION.KEY=VALUE"),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Learn constituency parsing, and judge it by labeled F1 as EVALB does (Table 4).

    Names tell the splits, such as wsj.train.ptb.xz, wsj.valid.ptb.xz and wsj.test.ptb.xz; a file that tells
    none is parted by a rule. Beam 21, alpha 0.3, at most input + 300 tokens, as in the paper.
    Example: manyheads paper table4 trees/ --input words,tags --steps 4000
    """
    from manyheads.paper.table4 import make_config
    from manyheads.paper.table4 import write_table4 as measure
    from manyheads.progress import create_progress

    report = measure(
        trees or [],
        resolve_output(out),
        [kind.strip() for kind in reads.split(",")],
        make_config(model, steps, seconds, changes or []),
        vocab_size=vocabulary,
        device=device,
        command=shlex.join(["manyheads", *sys.argv[1:]]),
        make_progress=lambda: create_progress(sys.stderr),
    )
    if report is None:
        exit_with_error(f"{out or 'paper'}: stopped as asked; the same command goes on", EXIT_PREEMPTED)
        return
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=1))
        return
    report.table.show()
    for file in report.files:
        print(file)
