"""`manyheads paper table2`: train the systems and write the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.data.store import Store
from manyheads.paper.budget import Budget
from manyheads.paper.report import Cell, ReportTable, format_value, save_figure, write_report
from manyheads.paper.report_appendix import (
    FLOPS_NOTE,
    describe_data_and_scoring,
    format_run_header,
    make_runs_table,
)
from manyheads.paper.scaled_presets import ModelScale
from manyheads.paper.systems import (
    PAPER_ROWS,
    PUBLISHED_SYSTEMS,
    SPLIT,
    BudgetComparison,
    SystemsComparison,
    SystemSearch,
    compare_systems,
    make_trials,
    select_best,
)
from manyheads.paper.trial_pool import TrialResources, run_trials
from manyheads.paper.trials import check_split
from manyheads.plot_style import GRAY, MARKERS, SERIES_COLORS, import_pyplot
from manyheads.progress import Progress


def write_table2(
    store: Store,
    out: Path,
    *,
    systems: Sequence[str],
    scale: ModelScale,
    budgets: Sequence[Budget],
    seeds: int,
    search: SystemSearch,
    resources: TrialResources,
    command: str,
    progress: Progress,
) -> tuple[SystemsComparison, list[Path]] | None:
    """Train what is not trained yet, and write the report. None: stopped by a signal; it can be resumed."""
    for split in ("valid", SPLIT):
        check_split(store, split)
    comparisons = []
    for budget in budgets:
        folder = out / "table2" / budget.unit
        trials = make_trials(systems, scale, budget, store, [1], search)
        results = run_trials(trials, folder, store, resources, progress)
        if results is None:
            return None
        best = {*select_best(results, trials).values()}  # other seeds are trained for the best setting alone
        others = make_trials(systems, scale, budget, store, range(2, seeds + 1), search)
        others = [trial for trial in others if trial.row in best]
        more = run_trials(others, folder, store, resources, progress)
        if more is None:
            return None
        comparisons.append(compare_systems([*results, *more], [*trials, *others], budget))
    comparison = SystemsComparison(comparisons, scale)
    tables = {
        f"table2-{budget_comparison.budget.unit}": make_budget_table(budget_comparison)
        for budget_comparison in comparisons
    }
    tables |= {"table2": make_paper_table(comparison), "table2-runs": make_runs_table(comparison.results)}
    written = write_report(out, "table2", render_report(comparison, store, command), tables)
    return comparison, [*written, *save_figure(draw_figure(comparison), out, "table2")]


def make_budget_table(comparison: BudgetComparison) -> ReportTable:
    """Return the table of all systems under one budget."""
    columns = ["system", "parameters", "steps", "tokens", "seconds", "perplexity", "BLEU", "± 95 %"]
    columns += ["compound-split BLEU", "FLOPs (counted)", "FLOPs (from time)"]
    rows = [
        [
            *(row.name, row.parameters, round(row.steps), round(row.tokens), row.seconds),
            *(row.perplexity, row.bleu, row.margin, row.compound_bleu, row.flops, row.flops_from_time),
        ]
        for row in comparison.rows
    ]
    source = (
        "seeds"
        if comparison.seeds > 1
        else "the bootstrap over test sentences, one seed each: another seed, rate or initialization "
        "may change a result by more"
    )
    return ReportTable(f"After {comparison.budget}", columns, rows, [f"±: from {source}. {FLOPS_NOTE}"])


def make_paper_table(comparison: SystemsComparison) -> ReportTable:
    """Return the table of the paper's rows beside ours."""
    columns = ["paper", "paper's BLEU", "paper's FLOPs", "paper's Δ", "ours"]
    for budget_comparison in comparison.comparisons:
        columns += [
            f"BLEU, {budget_comparison.budget}",
            f"Δ, {budget_comparison.budget}",
            f"ordering, {budget_comparison.budget}",
        ]
    names = [row.name for row in comparison.comparisons[0].rows]
    rows: list[list[Cell]] = []
    for row in PUBLISHED_SYSTEMS.values():
        both = [f"{format_value(german)} / {format_value(french)}" for german, french in row.by_language]
        ours: list[str | None] = [name for name in names if PAPER_ROWS.get(name) == row.name]
        for name in ours or [None]:
            rows.append([row.name, *both, row.bleu_difference, name, *collect_cells(comparison, name)])
    others = [name for name in names if PAPER_ROWS.get(name) is None]
    rows += [[*[None] * 4, name, *collect_cells(comparison, name)] for name in others]
    return ReportTable("Table 2: the paper's systems and ours", columns, rows, NOTES)


NOTES = [
    "The paper's numbers are single models, English to German / to French. Δ is the difference in BLEU from "
    "the Transformer (in the paper: from base, to German). holds: it exceeds the margin of chance and has "
    "the paper's sign; reversed: it has the other sign.",
    "The paper's numbers are on newstest2014 after training on 4.5 and 36 million pairs, by systems of many "
    "sizes, some far larger than the Transformer. Ours are small, all but big of about the Transformer's "
    "size, and trained for minutes on little text. They describe these conditions.",
    "Δ has a margin of chance from seeds, pooled over systems, and the paired bootstrap over test sentences.",
    "Seconds compare implementations as well as architectures: on a GPU a step of the Transformer is a CUDA "
    "graph of specialized kernels, and a step of the others is not.",
]


PRESET_PEAKS = {  # how they were chosen, by scale
    "playground": "the best of several tried on the built-in corpus (big's is derived from them)",
    "tiny": "not tuned in this run; those of rnn, gru, seq2seq, convs2s and bytenet, whose gradients are "
    "clipped, were tuned on Multi30k, those of the Transformers were not tuned",
    "base": "not tuned; gradients of rnn, gru, seq2seq, convs2s and bytenet are clipped",
}


def collect_cells(comparison: SystemsComparison, name: str | None) -> list[Cell]:
    """Return BLEU, difference and verdict of a system under each budget."""
    values: list[Cell] = []
    for budget_comparison in comparison.comparisons:
        row = next((row for row in budget_comparison.rows if row.name == name), None)
        difference = row.difference if row else None
        values += [row.bleu if row else None]
        values += [difference.ours, difference.verdict] if difference else [None, None]
    return values


def render_report(comparison: SystemsComparison, store: Store, command: str) -> str:
    scale = comparison.scale
    first = comparison.comparisons[0]
    sizes = [row.parameters for row in first.rows if row.name not in ("big", "experts")]
    peaks = ", ".join(f"{name} {format_value(peak or 'paper')}" for name, peak in first.peaks.items())
    chosen = (
        f"of the best of {first.num_settings} settings (rates and initial weights) by perplexity on valid of "
        f"the first seed, whose result counts with the others"
        if first.num_settings > 1
        else PRESET_PEAKS[scale.name]
    )
    parts = [
        "# Table 2: the Transformer and other systems",
        format_run_header(command, comparison.results),
        f"Systems of {min(sizes):,} to {max(sizes):,} parameters, except big, and experts, which has the "
        f"Transformer's FLOPs per token; batches of "
        f"{scale.batch_tokens:,} tokens per side, {scale.warmup:,} warm-up steps, the paper's schedule for "
        f"all. Peak learning rates, {chosen}: {peaks}.",
        describe_data_and_scoring(store, comparison.results),
        make_paper_table(comparison).to_markdown(),
        *(make_budget_table(budget_comparison).to_markdown() for budget_comparison in comparison.comparisons),
        "![BLEU against training FLOPs, in the paper and measured](table2.svg)",
        "## Does the paper's ordering hold here?",
        *(render_conclusions(budget_comparison) for budget_comparison in comparison.comparisons),
        make_runs_table(comparison.results).to_markdown() if max(first.seeds, first.num_settings) > 1 else "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def render_conclusions(comparison: BudgetComparison) -> str:
    sentences = "\n".join(f"- {row.describe()}" for row in comparison.rows if row.difference)
    return f"{comparison.summary()}\n\n{sentences}".rstrip()


# ---- the figure


def draw_figure(comparison: SystemsComparison) -> Any:
    """Plot BLEU against training FLOPs: the paper's systems, and ours under each budget."""
    panels = 1 + len(comparison.comparisons)
    figure, axes = import_pyplot().subplots(1, panels, figsize=(5.6 * panels, 4), layout="constrained")
    complete = [system for system in PUBLISHED_SYSTEMS.values() if system.bleu_de and system.flops_de]
    draw_points(axes[0], [(system.name, system.flops_de, system.bleu_de, 0.0) for system in complete])
    for system in PUBLISHED_SYSTEMS.values():
        if system.bleu_de and not system.flops_de:
            draw_horizontal_line(axes[0], f"{system.name} (FLOPs not given)", system.bleu_de)
    axes[0].set_title("paper, English to German")
    for axis, budget_comparison in zip(axes[1:], comparison.comparisons, strict=True):
        points = [(row.name, row.flops, row.bleu, row.margin or 0.0) for row in budget_comparison.rows]
        draw_points(axis, points)
        axis.set_title(f"measured, {budget_comparison.budget} each")
    for axis in axes:
        axis.set_xlabel("training FLOPs")
        axis.grid()
    axes[0].set_ylabel("BLEU")
    return figure


TICKS = (1, 2, 5)  # times powers of ten


def draw_horizontal_line(axis: Any, name: str, bleu: float) -> None:
    """Draw a system whose FLOPs are unknown."""
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, bleu - 0.06 * (high - bleu)), high)
    axis.axhline(bleu, color=GRAY, linewidth=0.9, linestyle=":")
    axis.annotate(name, (0.03, bleu), xycoords=("axes fraction", "data"), va="bottom", size=8)


def draw_points(axis: Any, points: Sequence[tuple[str, Any, Any, float]]) -> None:
    """Draw each system with a color and a marker of its own; the key lists them by BLEU, the best first."""
    ranked = sorted(points, key=lambda point: -point[2])
    for index, (name, flops, bleu, margin) in enumerate(ranked):
        color, marker = SERIES_COLORS[index % len(SERIES_COLORS)], MARKERS[index // 2 % len(MARKERS)]
        axis.errorbar(
            flops, bleu, margin, fmt=marker, color=color, elinewidth=0.8, markersize=6, label=name,
        )  # fmt: skip
    flops = [point[1] for point in points]
    low, high = min(y - s for _, _, y, s in points), max(y + s for _, _, y, s in points)
    margin = 0.08 * (high - low) or 1.0
    axis.set_ylim(low - margin, high + margin)
    axis.set_xscale("log")
    axis.set_xlim(min(flops) / 1.6, max(flops) * 1.6)
    axis.xaxis.set_major_locator(import_pyplot().matplotlib.ticker.LogLocator(subs=TICKS))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+", "e"))
    axis.xaxis.set_minor_locator(import_pyplot().matplotlib.ticker.NullLocator())
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
