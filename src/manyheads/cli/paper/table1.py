"""The command `paper table1`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.options import AsJson, Device
from manyheads.cli.paper.app import Out, paper
from manyheads.cli.text_io import report_write_errors


@paper.command()
def table1(
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Ranges of sizes to measure, by doubling; by default those where the theory should hold.",
            metavar="n=LOW-HIGH,d=LOW-HIGH",
        ),
    ] = None,
    out: Out = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure the cost and the path length of each type of layer as n and d grow (Table 1).

    Reports time, memory and FLOPs with fitted exponents, sequential operations and maximum path lengths,
    beside the paper's O(...); writes CSV files and a figure. Takes one to two minutes.

    \b
    Example:
      manyheads paper table1 --sizes n=512-4096,d=128-512 -o paper
    """
    from manyheads.paper.table1 import write_table1
    from manyheads.progress import create_progress

    with report_write_errors("-o", out or Path("paper")) as folder, create_progress(sys.stderr) as progress:
        result = write_table1(
            folder,
            command=shlex.join(["manyheads", *sys.argv[1:]]),
            device=device,
            sizes=sizes,
            report_progress=progress.update,
        )
    if as_json:
        data = {**result.data, "files": list(map(str, result.files))}
        print(json.dumps(data, ensure_ascii=False, indent=1))
        return
    for table in result.tables:
        table.show()
    for file in result.files:
        print(file)
