"""manyheads paper table1."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.look import report_write_errors
from manyheads.cli.paper.app import AsJson, Device, Out, paper


@paper.command()
def table1(
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Ranges, gone through by doubling, in place of those where the theory should hold.",
            metavar="n=LOW-HIGH,d=LOW-HIGH",
        ),
    ] = None,
    out: Out = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure what each type of layer costs as n and d grow, and how far apart its positions are (Table 1).

    Time, memory and FLOPs with fitted exponents, operations one after another, and hops between positions,
    beside the paper's O(...): a report, CSV files and a figure. One to two minutes.
    Example: manyheads paper table1 --sizes n=512-4096,d=128-512 -o paper
    """
    from manyheads.paper.table1 import write_table1 as measure
    from manyheads.progress import create_progress

    with report_write_errors("-o", out or Path("paper")) as folder, create_progress(sys.stderr) as progress:
        found = measure(
            folder,
            command=shlex.join(["manyheads", *sys.argv[1:]]),
            device=device,
            sizes=sizes,
            report_progress=progress.update,
        )
    if as_json:
        data = {**found.data, "files": list(map(str, found.files))}
        print(json.dumps(data, ensure_ascii=False, indent=1))
        return
    for table in found.tables:
        table.show()
    for file in found.files:
        print(file)
