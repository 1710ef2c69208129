"""paper table2: the Transformer and the systems that it is compared with."""

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
def table2(
    data: Data = None,
    systems: Annotated[
        str | None, typer.Option(help="Names, such as rnn,convs2s,big; without it all.", metavar="A,B,...")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Of each run: 2000000tokens, 500steps or 60s; may repeat.", metavar="AMOUNT"),
    ] = None,
    both: Annotated[
        bool, typer.Option("--both", help="To the same tokens, then to the same seconds.")
    ] = False,
    peaks: Annotated[
        str,
        typer.Option(
            help="Multiples of a system's learning rate to try; the best by valid counts.", metavar="1,2"
        ),
    ] = "1",
    scale: ScaleName = "playground",
    seeds: Seeds = 1,
    jobs: Jobs = None,
    gpus: Gpus = None,
    device: Device = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train the Transformer and other systems of its size under one budget: BLEU against training FLOPs.

    Each system has a run folder; called again, it goes on. The paper's rows stand beside ours.
    Example: manyheads paper table2 data --scale tiny --budget 20000000tokens --budget 60s --jobs 4
    """
    from manyheads.paper.budget import parse_budgets
    from manyheads.paper.scaled_presets import get_scale
    from manyheads.paper.systems import parse_multiples, select_systems
    from manyheads.paper.table2 import make_budget_table, make_paper_table
    from manyheads.paper.table2 import write_table2 as measure
    from manyheads.paper.trial_pool import TrialResources
    from manyheads.progress import create_progress

    place, size = resolve_output(out), get_scale(scale)
    wanted, budgets = (
        select_systems(systems, size),
        parse_budgets(budget or [], both, size.budget_tokens, size.budget_seconds),
    )
    tried = parse_multiples(peaks)
    machine = TrialResources.detect(device, jobs, gpus, seeds * len(tried) * len(wanted))
    with create_progress(sys.stderr) as progress:
        store = open_data(data, place, progress.update)
        made = measure(
            store, place, systems=wanted, scale=size, budgets=budgets, seeds=seeds, multiples=tried,
            resources=machine, command=format_command(), progress=progress,
        )  # fmt: skip
    if made is None:
        exit_preempted(place)
        return
    found, files = made
    tables = [*map(make_budget_table, found.comparisons), make_paper_table(found)]
    print_report(found.to_dict(), tables, files, as_json)
