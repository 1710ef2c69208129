"""The command `paper table3`."""

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


@paper.command()
def table3(
    data: Data = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Rows, such as A,C-n2,big; by default all, of the built-in corpus all but big.",
            metavar="A,B,...",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Budget of each run: 2000000tokens, 500steps or 60s.", metavar="AMOUNT")
    ] = None,
    scale: ScaleName = "playground",
    seeds: Seeds = 2,
    jobs: Jobs = None,
    gpus: Gpus = None,
    device: Device = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train each row of Table 3 under the same budget; compare the differences from base with the paper's.

    Each row has a run folder, and the command can be resumed. Differences are taken between equal seeds, and
    their variance is pooled over rows. Base is trained with three seeds or more.

    \b
    Example:
      manyheads paper table3 data --scale tiny --rows A,B --budget 20000000tokens --jobs 4
    """
    from manyheads.paper.budget import Budget
    from manyheads.paper.scaled_presets import get_scale
    from manyheads.paper.small_corpus import SCARCE_BUDGET_TOKENS, SCARCE_ROWS
    from manyheads.paper.table3 import make_table, write_table3
    from manyheads.paper.trial_pool import TrialResources
    from manyheads.paper.variations import MIN_BASE_SEEDS, select_rows
    from manyheads.progress import create_progress

    folder, size, selected = (
        resolve_output(out),
        get_scale(scale),
        select_rows(rows or (None if data else SCARCE_ROWS)),
    )
    default_tokens = size.budget_tokens if data else SCARCE_BUDGET_TOKENS
    amount = Budget.parse(budget) if budget else Budget(default_tokens, "tokens")
    resources = TrialResources.detect(device, jobs, gpus, MIN_BASE_SEEDS + len(selected))
    with create_progress(sys.stderr) as progress:
        outcome = write_table3(
            open_data(data, folder, progress.update, scarce=True), folder, rows=selected, scale=size,
            budget=amount, seeds=seeds, resources=resources, command=format_command(), progress=progress,
        )  # fmt: skip
    if outcome is None:
        exit_preempted(folder)
        return
    result, files = outcome
    print_report(result.to_dict(), [make_table(result)], files, as_json)
