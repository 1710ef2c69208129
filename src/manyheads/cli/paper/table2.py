"""The command `paper table2`."""

import sys
from typing import Annotated

import typer

from manyheads.cli.options import AsJson, Device
from manyheads.cli.paper.app import Out, paper, resolve_output
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

BothInits = Annotated[
    bool, typer.Option("--both-inits", help="Also try other initial weights for every system.")
]
Validations = Annotated[int, typer.Option(help="Validate a run so many times; its best model counts.", min=0)]


@paper.command()
def table2(
    data: Data = None,
    systems: Annotated[
        str | None, typer.Option(help="Systems, such as rnn,convs2s,big; by default all.", metavar="A,B,...")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Budget of each run: 2000000tokens, 5e15FLOPs, 500steps or 60s; can be repeated.",
            metavar="AMOUNT",
        ),
    ] = None,
    both: Annotated[bool, typer.Option("--both", help="Compare at equal tokens and at equal time.")] = False,
    rate_multiples: Annotated[
        str,
        typer.Option(help="Multiples of each learning rate to try; the best on valid counts.", metavar="1,2"),
    ] = "1",
    both_inits: BothInits = False,
    validations: Validations = 0,
    scale: ScaleName = "playground",
    seeds: Seeds = 1,
    jobs: Jobs = None,
    gpus: Gpus = None,
    device: Device = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train the Transformer and the baselines under the same budget: BLEU against training FLOPs (Table 2).

    Each system has a run folder, and the command can be resumed. With several rates or initial weights, the
    first seed chooses by perplexity on valid, and other seeds train the chosen setting alone.

    \b
    Example:
      manyheads paper table2 data --scale tiny --budget 20000000tokens --budget 60s --jobs 4
    """
    from manyheads.paper.budget import parse_budgets
    from manyheads.paper.scaled_presets import get_scale
    from manyheads.paper.systems import SystemSearch, parse_multiples, select_systems
    from manyheads.paper.table2 import make_budget_table, make_paper_table, write_table2
    from manyheads.paper.trial_pool import TrialResources
    from manyheads.progress import create_progress

    folder, size = resolve_output(out), get_scale(scale)
    selected = select_systems(systems, size)
    budgets = parse_budgets(budget or [], both, size.budget_tokens, size.budget_seconds)
    search = SystemSearch(parse_multiples(rate_multiples), both_inits, validations)
    resources = TrialResources.detect(device, jobs, gpus, len(search.list_settings()) * len(selected))
    with create_progress(sys.stderr) as progress:
        store = open_data(data, folder, progress.update)
        outcome = write_table2(
            store, folder, systems=selected, scale=size, budgets=budgets, seeds=seeds, search=search,
            resources=resources, command=format_command(), progress=progress,
        )  # fmt: skip
    if outcome is None:
        exit_preempted(folder)
        return
    result, files = outcome
    tables = [*map(make_budget_table, result.comparisons), make_paper_table(result)]
    print_report(result.to_dict(), tables, files, as_json)
