"""The command `paper table4`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import exit_with_error
from manyheads.cli.options import AsJson, Device
from manyheads.cli.paper.app import Out, paper, resolve_output
from manyheads.cli.paper.runs import Seeds
from manyheads.errors import EXIT_PREEMPTED

Trees = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Files of bracketed trees, one per line, or folders of them; by default built-in trees.",
        metavar="TREES",
    ),
]
ParserInputs = Annotated[
    str,
    typer.Option(
        "--input", help="What the model reads: words, tags (parts of speech) or both; comma-separated."
    ),
]
PresetModel = Annotated[
    str | None, typer.Option(help="A preset's model, such as small or parsing; by default a tiny one.")
]
Steps = Annotated[
    str | None,
    typer.Option(
        help="Training steps, comma-separated to compare several; by default 1000, or 180 seconds.",
        metavar="N,...",
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(help="Numbers of training trees, such as 850,3394; by default all.", metavar="N,..."),
]
RemovedLabels = Annotated[
    str,
    typer.Option(
        "--remove-labels",
        help="Brackets that training trees of corpora without a test file lose, comma-separated.",
        metavar="LABEL,...",
    ),
]
Seconds = Annotated[
    float | None, typer.Option(help="Stop the training of each model after this time.", min=1)
]
VocabSize = Annotated[int, typer.Option(help="Largest number of subwords.", min=300)]
RunChanges = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another key of the run; can be repeated.", metavar="SECTION.KEY=VALUE"),
]


@paper.command()
def table4(
    trees: Trees = None,
    out: Out = None,
    inputs: ParserInputs = "words,both",
    model: PresetModel = None,
    steps: Steps = None,
    seconds: Seconds = None,
    sizes: Sizes = None,
    seeds: Seeds = 1,
    vocab_size: VocabSize = 4000,
    removed_labels: RemovedLabels = "NML,TITLE,HEADING,CAPTION,CIT",
    changes: RunChanges = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train constituency parsers and compute labeled F1 as EVALB does (Table 4), beside a PCFG.

    File names determine the splits, such as wsj.train.ptb.xz, wsj.valid.ptb.xz and wsj.test.ptb.xz; other
    files are split by a rule. Beam 21, alpha 0.3, at most input + 300 tokens, as in the paper.

    \b
    Example:
      manyheads paper table4 trees/ --input words,tags --steps 4000 --sizes 850,3394 --seeds 3
    """
    from manyheads.paper.parsing_grid import ParserGrid, parse_numbers
    from manyheads.paper.table4 import make_config, parse_inputs, write_table4
    from manyheads.progress import create_progress

    grid = ParserGrid(
        parse_inputs([name.strip() for name in inputs.split(",")]),
        parse_numbers("--sizes", sizes),
        parse_numbers("--steps", steps),
        seeds,
    )
    report = write_table4(
        trees or [],
        resolve_output(out),
        grid,
        make_config(model, grid.steps, seconds, changes or []),
        vocab_size=vocab_size,
        removed_labels=[label.strip() for label in removed_labels.split(",")],
        device=device,
        command=shlex.join(["manyheads", *sys.argv[1:]]),
        make_progress=lambda: create_progress(sys.stderr),
    )
    if report is None:
        exit_with_error(f"{out or 'paper'}: stopped; the same command resumes it", EXIT_PREEMPTED)
        return
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=1))
        return
    report.table.show()
    for file in report.files:
        print(file)
