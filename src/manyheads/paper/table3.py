"""`manyheads paper table3`: the variations trained, and the report about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.data.store import Store
from manyheads.paper.budget import Budget
from manyheads.paper.report import Cell, ReportTable, import_pyplot, save_figure, write_report
from manyheads.paper.report_appendix import (
    OURS_COLOR,
    PAPER_COLOR,
    describe_data_and_scoring,
    format_run_header,
    make_runs_table,
)
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.trial_pool import TrialResources, run_trials
from manyheads.paper.trials import check_split
from manyheads.paper.variations import (
    MEASURES,
    PUBLISHED_RESULTS,
    SPLIT,
    VariationRow,
    Variations,
    compare_variations,
    make_trials,
)
from manyheads.presets import TABLE_3, Table3Row
from manyheads.progress import Progress


def write_table3(
    store: Store,
    out: Path,
    *,
    rows: Sequence[Table3Row],
    scale: ModelScale,
    budget: Budget,
    seeds: int,
    resources: TrialResources,
    command: str,
    progress: Progress,
) -> tuple[Variations, list[Path]] | None:
    """Trains what is not trained yet, and writes the report. None: stopped as asked; it can go on."""
    check_split(store, SPLIT)
    trials = make_trials(rows, scale, budget, store, seeds)
    results = run_trials(trials, out / "table3", store, resources, progress)
    if results is None:
        return None
    found = compare_variations(results, trials, scale, budget)
    tables = {"table3": make_table(found), "table3-runs": make_runs_table(results)}
    written = write_report(out, "table3", render_report(found, store, command), tables)
    return found, [*written, *save_figure(draw_figure(found), out, "table3")]


def make_table(found: Variations) -> ReportTable:
    columns = ["row", "change", "parameters", "paper's parameters"]
    for measure in MEASURES:
        columns += [measure, f"paper's {measure}"]
    for measure in MEASURES:
        columns += [f"Δ {measure}", f"paper's Δ {measure}", f"order by {measure}"]
    rows: list[list[Cell]] = []
    for line in found.rows:
        perplexity, bleu = PUBLISHED_RESULTS[line.name]
        told: list[Cell] = [line.name, line.change, line.parameters, format_published_size(line.name)]
        told += [line.perplexity, perplexity, line.bleu, bleu]
        for measure in MEASURES:
            one = line.differences.get(measure)
            told += [one.ours, one.paper, one.verdict] if one else [None] * 3
        rows.append(told)
    return ReportTable(
        f"Table 3 at scale {found.scale.name}, {found.budget} a run", columns, rows, make_notes(found)
    )


def format_published_size(name: str) -> str | None:
    """Of parameters, as the paper prints them; most rows that change none have no number there."""
    known = {row.name: row.paper_millions for row in TABLE_3}[name]
    return None if known is None else f"{known}M"


def make_notes(found: Variations) -> list[str]:
    """What the numbers are, and what they are not."""
    known = [f"{name} {one.std:.2g}" for name, one in found.variances.items() if one.degrees_of_freedom]
    seeds = {line.seeds for line in found.compared} or {found.rows[0].seeds}
    return [
        f"Δ is the difference from base, which is the mean of {found.rows[0].seeds} seeds; other rows have "
        f"{max(seeds)}. A seed's standard deviation is {' and '.join(known) or 'not known'}, and chance is "
        f"what that makes 19 times of 20 (Student's t), as if seeds moved every row alike: of twenty rows "
        f"without any effect one would still leave it.",
        "holds: the difference is more than chance and has the paper's sign, or is no more than chance where "
        "the paper has none; reversed: the other sign, or any where the paper has none. The paper gives no "
        "spread, and its smallest differences may be chance themselves.",
        "The paper's rows had 100,000 steps (big 300,000) on 4.5 million pairs. Here all have the same "
        "budget, which is short, and the models are small: what helps a large model in the end need not "
        "help a small one at the beginning.",
    ]


def render_report(found: Variations, store: Store, command: str) -> str:
    scale = found.scale
    peak = f"a peak of {scale.peak_learning_rate}" if scale.peak_learning_rate else "the paper's peak"
    parts = [
        "# Table 3: variations of the Transformer",
        format_run_header(command, found.results),
        f"Each row is the paper's with {scale.width} of its widths and {scale.depth} of its layers, heads "
        f"as many as there; {found.budget} each, batches of {scale.batch_tokens:,} tokens a side, "
        f"{scale.warmup:,} steps of warm-up to {peak} for base, which goes with "
        f"d_model^-0.5 as the paper's does.",
        describe_data_and_scoring(store, found.results),
        make_table(found).to_markdown(),
        "![Differences from base, here and in the paper](table3.svg)",
        "## Does the paper's ordering hold here?",
        found.summary(),
        "\n".join(f"- {line.describe()}" for line in found.compared),
        make_runs_table(found.results).to_markdown(),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


# ---- the figure


def draw_figure(found: Variations) -> Any:
    """Differences from base, one above the other: here, with what chance may make, and in the paper."""
    lines = found.compared
    size = (10, 1.8 + 0.27 * len(lines))
    figure, axes = import_pyplot().subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    for axis, measure in zip(axes, MEASURES, strict=True):
        draw_measure(axis, measure, lines)
    axes[0].set_yticks(range(len(lines)), [line.name for line in lines])
    axes[0].set_ylim(len(lines) - 0.4, -0.6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_measure(axis: Any, measure: str, lines: Sequence[VariationRow]) -> None:
    """Two scales with one nought: the paper's runs are far longer, and its differences are others."""
    found = [line.differences[measure] for line in lines]
    ours = [(one.ours, place) for place, one in enumerate(found) if one.ours is not None]
    theirs = [(one.paper, place) for place, one in enumerate(found) if one.paper is not None]
    margin = max((one.margin for one in found if one.margin is not None), default=0.0)
    paper = axis.twiny()
    axis.axvline(0, color="0.4", linewidth=0.8)
    axis.axvspan(-margin, margin, color=OURS_COLOR, alpha=0.12, linewidth=0, label="chance, here")
    for value, place in ours:
        axis.plot([0, value], [place, place], color=OURS_COLOR, linewidth=1.2, alpha=0.6)
    axis.plot(*unzip_points(ours), "o", color=OURS_COLOR, label="here (lower scale)")
    diamond = {"marker": "D", "linestyle": "", "markerfacecolor": "none", "color": PAPER_COLOR}
    paper.plot(*unzip_points(theirs), **diamond)
    axis.plot([], [], label="in the paper (upper scale)", **diamond)
    for side, points, color in ((axis, [*ours, (margin, 0)], OURS_COLOR), (paper, theirs, PAPER_COLOR)):
        reach = 1.1 * max((abs(value) for value, _ in points), default=1.0) or 1.0
        side.set_xlim(-reach, reach)
        side.tick_params(axis="x", colors=color)
        side.spines[["left", "right"]].set_visible(False)
    better = "less is better" if measure == "perplexity" else "more is better"
    axis.set_xlabel(f"{measure} minus base's ({better})")
    axis.grid(axis="y", color="0.92", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


def unzip_points(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
