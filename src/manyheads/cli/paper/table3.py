"""paper table3: variations of the base model."""

import sys
from typing import Annotated

import typer

from manyheads.cli.paper.app import AsJson, Device, Out, paper, resolve_output
from manyheads.cli.paper.runs import (
    Data,
    Gpus,
    Jobs,
    ScaleName,
    Seeds,
    exit_preempted,
    format_command,
    open_data,
    print_report,
)


@paper.command()
def table3(
    data: Data = None,
    rows: Annotated[
        str | None,
        typer.Option(help="Letters or names, such as A,C-n2,big; without it all.", metavar="A,B,..."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Of each run: 2000000tokens, 500steps or 60s.", metavar="AMOUNT")
    ] = None,
    scale: ScaleName = "playground",
    seeds: Seeds = 1,
    jobs: Jobs = None,
    gpus: Gpus = None,
    device: Device = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train each row of Table 3 under one budget, and compare its difference from base with the paper's.

    Each row has a run folder; called again, it goes on. Base is trained three times: so chance is known.
    Example: manyheads paper table3 data --scale tiny --rows A,B --budget 20000000tokens --jobs 4
    """
    from manyheads.paper.budget import Budget
    from manyheads.paper.scaled_presets import get_scale
    from manyheads.paper.table3 import make_table
    from manyheads.paper.table3 import write_table3 as measure
    from manyheads.paper.trial_pool import TrialResources
    from manyheads.paper.variations import MIN_BASE_SEEDS, select_rows
    from manyheads.progress import create_progress

    place, size, wanted = resolve_output(out), get_scale(scale), select_rows(rows)
    amount = Budget.parse(budget) if budget else Budget(size.budget_tokens, "tokens")
    machine = TrialResources.detect(device, jobs, gpus, MIN_BASE_SEEDS + len(wanted))
    with create_progress(sys.stderr) as progress:
        made = measure(
            open_data(data, place, progress.update), place, rows=wanted, scale=size, budget=amount,
            seeds=seeds, resources=machine, command=format_command(), progress=progress,
        )  # fmt: skip
    if made is None:
        exit_preempted(place)
        return
    found, files = made
    print_report(found.to_dict(), [make_table(found)], files, as_json)
