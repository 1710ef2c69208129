"""`manyheads paper table2`: the systems trained, and the report about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads.data.store import Store
from manyheads.paper.budget import Budget
from manyheads.paper.report import Cell, ReportTable, format_value, import_pyplot, save_figure, write_report
from manyheads.paper.report_appendix import (
    FLOPS_NOTE,
    OURS_COLOR,
    PAPER_COLOR,
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
    SystemComparison,
    compare_systems,
    make_trials,
)
from manyheads.paper.trial_pool import TrialResources, run_trials
from manyheads.paper.trials import check_split
from manyheads.progress import Progress


def write_table2(
    store: Store,
    out: Path,
    *,
    systems: Sequence[str],
    scale: ModelScale,
    budgets: Sequence[Budget],
    seeds: int,
    multiples: Sequence[float],
    resources: TrialResources,
    command: str,
    progress: Progress,
) -> tuple[SystemComparison, list[Path]] | None:
    """Trains what is not trained yet, and writes the report. None: stopped as asked; it can go on."""
    for split in ("valid", SPLIT):
        check_split(store, split)
    contests = []
    for budget in budgets:
        trials = make_trials(systems, scale, budget, store, seeds, multiples)
        results = run_trials(trials, out / "table2" / budget.unit, store, resources, progress)
        if results is None:
            return None
        contests.append(compare_systems(results, trials, budget))
    found = SystemComparison(contests, scale)
    tables = {f"table2-{one.budget.unit}": make_budget_table(one) for one in contests}
    tables |= {"table2": make_paper_table(found), "table2-runs": make_runs_table(found.results)}
    written = write_report(out, "table2", render_report(found, store, command), tables)
    return found, [*written, *save_figure(draw_figure(found), out, "table2")]


def make_budget_table(contest: BudgetComparison) -> ReportTable:
    """Every system under one budget."""
    columns = ["system", "parameters", "steps", "tokens", "seconds", "perplexity", "BLEU", "± 95 %"]
    columns += ["compound-split BLEU", "FLOPs counted", "FLOPs by time"]
    rows = [
        [
            *(line.name, line.parameters, round(line.steps), round(line.tokens), line.seconds),
            *(line.perplexity, line.bleu, line.margin, line.compound_bleu, line.flops, line.flops_from_time),
        ]
        for line in contest.rows
    ]
    ours = (
        "seeds"
        if contest.seeds > 1
        else "the test's sentences (bootstrap), one seed each: another seed or rate may move a system by more"
    )
    return ReportTable(f"After {contest.budget}", columns, rows, [f"±: of {ours}. {FLOPS_NOTE}"])


def make_paper_table(found: SystemComparison) -> ReportTable:
    """The paper's rows, and what stands for them here."""
    columns = ["in the paper", "its BLEU", "its FLOPs", "its Δ", "here"]
    for contest in found.comparisons:
        columns += [f"BLEU, {contest.budget}", f"Δ, {contest.budget}", f"order, {contest.budget}"]
    names = [line.name for line in found.comparisons[0].rows]
    rows: list[list[Cell]] = []
    for row in PUBLISHED_SYSTEMS.values():
        both = [
            f"{format_value(of_german)} / {format_value(of_french)}"
            for of_german, of_french in row.by_language
        ]
        ours: list[str | None] = [name for name in names if PAPER_ROWS.get(name) == row.name]
        for name in ours or [None]:
            rows.append([row.name, *both, row.bleu_difference, name, *collect_cells(found, name)])
    others = [name for name in names if PAPER_ROWS.get(name) is None]
    rows += [[*[None] * 4, name, *collect_cells(found, name)] for name in others]
    return ReportTable("Table 2: the paper's systems and ours", columns, rows, NOTES)


NOTES = [
    "The paper's numbers are of single models, English to German / to French. Δ is the difference from the "
    "Transformer in BLEU (from the base one, to German). holds: it is more than chance and has the paper's "
    "sign; reversed: the other sign.",
    "The paper's numbers are of newstest2014 after training on 4.5 and 36 million pairs by systems of many "
    "sizes, some far larger than the Transformer; ours are small, all of about the Transformer's size (but "
    "big), and have learned for minutes from little text. They tell about these conditions.",
    "Seconds compare implementations as well as ideas: on a GPU a step of the Transformer is a captured "
    "graph of kernels made for it, and a step of the others is not.",
]


PRESET_PEAKS = {  # where they come from, by scale
    "playground": "the best of some that were tried on the built-in corpus before (big's follows from them)",
    "tiny": "not searched for in this run; those of rnn, gru, seq2seq, convs2s and bytenet, whose gradients "
    "are clipped too, were chosen on Multi30k before, those of the Transformers on nothing",
    "base": "tried on nothing; gradients of rnn, gru, seq2seq, convs2s and bytenet are clipped",
}


def collect_cells(found: SystemComparison, name: str | None) -> list[Cell]:
    """What became of one of our systems under each budget."""
    values: list[Cell] = []
    for contest in found.comparisons:
        line = next((line for line in contest.rows if line.name == name), None)
        one = line.difference if line else None
        values += [line.bleu if line else None, one.ours if one else None, one.verdict if one else None]
    return values


def render_report(found: SystemComparison, store: Store, command: str) -> str:
    scale = found.scale
    first = found.comparisons[0]
    sizes = [line.parameters for line in first.rows if line.name != "big"]
    peaks = ", ".join(f"{name} {format_value(peak or 'paper')}" for name, peak in first.peaks.items())
    chosen = (
        f"of {first.num_peaks} each the best by valid" if first.num_peaks > 1 else PRESET_PEAKS[scale.name]
    )
    parts = [
        "# Table 2: the Transformer and other systems",
        format_run_header(command, found.results),
        f"Systems of {min(sizes):,} to {max(sizes):,} parameters, big aside; batches of "
        f"{scale.batch_tokens:,} tokens a side, {scale.warmup:,} steps of warm-up, the paper's schedule for "
        f"all. Peaks of the learning rate, {chosen}: {peaks}.",
        describe_data_and_scoring(store, found.results),
        make_paper_table(found).to_markdown(),
        *(make_budget_table(contest).to_markdown() for contest in found.comparisons),
        "![BLEU against training FLOPs, in the paper and here](table2.svg)",
        "## Does the paper's ordering hold here?",
        *(render_conclusions(contest) for contest in found.comparisons),
        make_runs_table(found.results).to_markdown() if max(first.seeds, first.num_peaks) > 1 else "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def render_conclusions(contest: BudgetComparison) -> str:
    sentences = "\n".join(f"- {line.describe()}" for line in contest.rows if line.difference)
    return f"{contest.summary()}\n\n{sentences}".rstrip()


# ---- the figure


def draw_figure(found: SystemComparison) -> Any:
    """BLEU against training FLOPs: the paper's systems, and ours under each budget."""
    panels = 1 + len(found.comparisons)
    figure, axes = import_pyplot().subplots(1, panels, figsize=(4.6 * panels, 4), layout="constrained")
    known = [one for one in PUBLISHED_SYSTEMS.values() if one.bleu_de and one.flops_de]
    draw_points(axes[0], [(one.name, one.flops_de, one.bleu_de, 0.0) for one in known], PAPER_COLOR)
    for one in PUBLISHED_SYSTEMS.values():
        if one.bleu_de and not one.flops_de:
            draw_horizontal_line(axes[0], f"{one.name} (FLOPs not given)", one.bleu_de)
    axes[0].set_title("the paper, English to German")
    for axis, contest in zip(axes[1:], found.comparisons, strict=True):
        points = [(line.name, line.flops, line.bleu, line.margin or 0.0) for line in contest.rows]
        draw_points(axis, points, OURS_COLOR)
        axis.set_title(f"here, {contest.budget} each")
    for axis in axes:
        axis.set_xlabel("FLOPs of training")
        axis.grid(color="0.92", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("BLEU")
    return figure


LABEL_SPACING = 0.055  # of the height, between labels
TICKS = (1, 2, 5)  # times a power of ten


def draw_horizontal_line(axis: Any, name: str, bleu: float) -> None:
    """A system whose FLOPs are not known."""
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, bleu - 0.06 * (high - bleu)), high)
    axis.axhline(bleu, color=PAPER_COLOR, linewidth=0.9, linestyle=":")
    axis.annotate(name, (0.03, bleu), xycoords=("axes fraction", "data"), va="bottom", size=8)


def draw_points(axis: Any, points: Sequence[tuple[str, Any, Any, float]], color: str) -> None:
    """Points and their names, which stand in a column beside them, moved apart where they would collide."""
    flops, bleu = [one[1] for one in points], [one[2] for one in points]
    axis.errorbar(flops, bleu, [one[3] for one in points], fmt="o", color=color, elinewidth=0.8, markersize=5)
    low, high = min(y - s for _, _, y, s in points), max(y + s for _, _, y, s in points)
    edge = 0.08 * (high - low) or 1.0
    axis.set_ylim(low - edge, high + edge)
    axis.set_xscale("log")
    axis.set_xlim(min(flops) / 1.6, max(flops) * (max(flops) / min(flops)) ** 0.55 * 2.2)
    axis.xaxis.set_major_locator(import_pyplot().matplotlib.ticker.LogLocator(subs=TICKS))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+", "e"))
    axis.xaxis.set_minor_locator(import_pyplot().matplotlib.ticker.NullLocator())
    bottom, top = axis.get_ylim()
    upwards = sorted(points, key=lambda one: one[2])
    levels = spread_labels([one[2] for one in upwards], LABEL_SPACING * (top - bottom), top)
    for (name, x, y, _), level in zip(upwards, levels, strict=True):
        axis.annotate(
            name, (x, y), (max(flops) * 1.35, level), size=8, va="center",
            arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.6, "shrinkB": 3},
        )  # fmt: skip


def spread_labels(levels: Sequence[float], spacing: float, top: float) -> list[float]:
    """Ascending levels moved up until no two are nearer than `least`, and from the top down again."""
    moved: list[float] = []
    for level in levels:
        moved.append(max(level, moved[-1] + spacing) if moved else level)
    for number in reversed(range(len(moved))):
        above = moved[number + 1] - spacing if number + 1 < len(moved) else top - spacing / 2
        moved[number] = min(moved[number], above)
    return moved
