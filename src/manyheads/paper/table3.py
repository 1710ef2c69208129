"""`manyheads paper table3`: train the variations and write the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.data.store import Store
from manyheads.paper.budget import Budget
from manyheads.paper.ordering import EQUIVALENCE_BLEU, EQUIVALENCE_PERPLEXITY, NEAR_ZERO
from manyheads.paper.report import Cell, ReportTable, save_figure, write_report
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
from manyheads.plot_style import import_pyplot
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
    """Train what is not trained yet, and write the report. None: stopped by a signal; it can be resumed."""
    check_split(store, SPLIT)
    trials = make_trials(rows, scale, budget, store, seeds)
    results = run_trials(trials, out / "table3", store, resources, progress)
    if results is None:
        return None
    variations = compare_variations(results, trials, scale, budget)
    tables = {"table3": make_table(variations), "table3-runs": make_runs_table(results)}
    written = write_report(out, "table3", render_report(variations, store, command), tables)
    return variations, [*written, *save_figure(draw_figure(variations), out, "table3")]


def make_table(variations: Variations) -> ReportTable:
    columns = ["row", "change", "parameters", "paper's parameters"]
    for measure in MEASURES:
        columns += [measure, f"paper's {measure}"]
    for measure in MEASURES:
        columns += [f"Δ {measure}", f"paper's Δ {measure}", f"ordering by {measure}"]
    rows: list[list[Cell]] = []
    for row in variations.rows:
        perplexity, bleu = PUBLISHED_RESULTS[row.name]
        cells: list[Cell] = [row.name, row.change, row.parameters, format_published_size(row.name)]
        cells += [row.perplexity, perplexity, row.bleu, bleu]
        for measure in MEASURES:
            difference = row.differences.get(measure)
            cells += [difference.ours, difference.paper, difference.verdict] if difference else [None] * 3
        rows.append(cells)
    return ReportTable(
        f"Table 3 at scale {variations.scale.name}, {variations.budget} per run",
        columns,
        rows,
        make_notes(variations),
    )


def format_published_size(name: str) -> str | None:
    """Return the paper's number of parameters, if it states one."""
    millions = {row.name: row.paper_millions for row in TABLE_3}[name]
    return None if millions is None else f"{millions}M"


def make_notes(variations: Variations) -> list[str]:
    """Explain the numbers and their limits."""
    deviations = [
        f"{name} {margins.single.std:.2g}"
        for name, margins in variations.margins.items()
        if margins.single.degrees_of_freedom
    ]
    seeds = {row.seeds for row in variations.compared} or {variations.rows[0].seeds}
    is_paired = any(margins.paired for margins in variations.margins.values())
    variance_text = (
        "of differences between equal seeds, which read equal batches, pooled over rows as if seeds "
        "affected all of them equally"
        if is_paired
        else "of single results, pooled over rows with several seeds"
    )
    return [
        f"Δ is the difference from base, which has {variations.rows[0].seeds} seeds; other rows have "
        f"{max(seeds)}. A seed's standard deviation is {' and '.join(deviations) or 'unknown'}. The margin "
        f"of chance is a 95 % interval (Student's t) {variance_text}; for BLEU the paired "
        f"bootstrap over sentences is added. Of twenty rows without any effect one would still exceed it.",
        f"holds: the difference exceeds the margin of chance and has the paper's sign; reversed: it has the "
        f"other sign. Where the paper's difference is about 0 (perplexity within "
        f"{NEAR_ZERO['perplexity']}, BLEU within {NEAR_ZERO['BLEU']}), an equivalence test: holds if the "
        f"difference with its margin is within {EQUIVALENCE_PERPLEXITY:.0%} of base's perplexity or "
        f"{EQUIVALENCE_BLEU} BLEU, reversed if it is beyond that with its margin. Everything else: "
        f"cannot tell. The paper gives no variance, and its smallest differences may be chance.",
        "The paper's rows had 100,000 steps (big 300,000) on 4.5 million pairs. Here all rows have the "
        "same short budget, and the models are small: what helps a large model after long training need not "
        "help a small one early.",
    ]


def render_report(variations: Variations, store: Store, command: str) -> str:
    scale = variations.scale
    peak = (
        f"a peak learning rate of {scale.peak_learning_rate}"
        if scale.peak_learning_rate
        else "the paper's peak"
    )
    parts = [
        "# Table 3: variations of the Transformer",
        variations.power() if variations.compared else "",
        format_run_header(command, variations.results),
        f"Each row is the paper's with {scale.width} of its widths, {scale.depth} of its layers and all its "
        f"heads; {variations.budget} each, batches of {scale.batch_tokens:,} tokens per side, "
        f"{scale.warmup:,} warm-up steps to {peak} for base, proportional to d_model^-0.5 as in the "
        f"paper.",
        describe_data_and_scoring(store, variations.results),
        make_table(variations).to_markdown(),
        "![Differences from base, measured and in the paper](table3.svg)",
        "## Does the paper's ordering hold here?",
        variations.summary(),
        "\n".join(f"- {row.describe()}" for row in variations.compared),
        make_runs_table(variations.results).to_markdown(),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


# ---- the figure


def draw_figure(variations: Variations) -> Any:
    """Plot differences from base: measured, with the margin of chance, and in the paper."""
    rows = variations.compared
    size = (10, 1.8 + 0.27 * len(rows))
    figure, axes = import_pyplot().subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    for axis, measure in zip(axes, MEASURES, strict=True):
        draw_measure(axis, measure, rows)
    axes[0].set_yticks(range(len(rows)), [row.name for row in rows])
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_measure(axis: Any, measure: str, rows: Sequence[VariationRow]) -> None:
    """Draw one measure on two scales with a common zero: the paper's runs are far longer."""
    differences = [row.differences[measure] for row in rows]
    ours = [(difference.ours, y) for y, difference in enumerate(differences) if difference.ours is not None]
    published = [
        (difference.paper, y) for y, difference in enumerate(differences) if difference.paper is not None
    ]
    margin = max(
        (difference.margin for difference in differences if difference.margin is not None), default=0.0
    )
    paper = axis.twiny()
    axis.axvline(0, color="0.4", linewidth=0.8)
    axis.axvspan(-margin, margin, color=OURS_COLOR, alpha=0.12, linewidth=0, label="margin of chance")
    for value, y in ours:
        axis.plot([0, value], [y, y], color=OURS_COLOR, linewidth=1.2, alpha=0.6)
    axis.plot(*unzip_points(ours), "o", color=OURS_COLOR, label="measured (lower scale)")
    diamond = {"marker": "D", "linestyle": "", "markerfacecolor": "none", "color": PAPER_COLOR}
    paper.plot(*unzip_points(published), **diamond)
    axis.plot([], [], label="paper (upper scale)", **diamond)
    for side, points, color in ((axis, [*ours, (margin, 0)], OURS_COLOR), (paper, published, PAPER_COLOR)):
        limit = 1.1 * max((abs(value) for value, _ in points), default=1.0) or 1.0
        side.set_xlim(-limit, limit)
        side.tick_params(axis="x", colors=color)
        side.spines[["left", "right"]].set_visible(False)
    better = "lower is better" if measure == "perplexity" else "higher is better"
    axis.set_xlabel(f"{measure} minus base's ({better})")
    axis.grid(axis="y", color="0.92", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


def unzip_points(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
