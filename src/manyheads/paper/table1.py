"""`manyheads paper table1`: cost, sequential operations and path length of each layer type."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.cuda.device import resolve_device
from manyheads.paper.crossover import (
    draw_crossover,
    find_crossovers,
    make_crossover_table,
    measure_crossover,
)
from manyheads.paper.layer_costs import (
    DEPTH_K,
    EXPONENT_TOLERANCE,
    FULL_LAYER_K,
    MEASURES,
    PATH_K,
    ExponentFit,
    LayerCost,
    LayerMeasurements,
    measure_layers,
)
from manyheads.paper.layer_measurements import fit_exponent, measurement_context
from manyheads.paper.layer_types import HEAD_DIM, LAYERS, LayerType
from manyheads.paper.report import (
    Cell,
    ReportTable,
    format_provenance,
    save_figure,
    write_report,
)
from manyheads.paper.size_sweeps import parse_sizes
from manyheads.paper.table1_figure import draw_figure, select_fits
from manyheads.plot_style import import_pyplot
from manyheads.progress import ReportProgress

TIMING_ROUNDS = 7


@dataclass(frozen=True)
class Table1Report:
    """The tables, the same as JSON-serializable data, and the files written."""

    tables: list[ReportTable]
    data: dict[str, Any]
    files: list[Path]


def write_table1(
    folder: Path,
    *,
    command: str = "manyheads paper table1",
    device: str | None = None,
    sizes: str | None = None,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> Table1Report:
    """Measure every layer of Table 1 on this machine, and write table1.md, CSV files and a figure."""
    import_pyplot()  # fail before the long measurement if matplotlib is missing
    device_type = resolve_device(device)
    ranges = parse_sizes(sizes) if sizes else None
    folder.mkdir(parents=True, exist_ok=True)  # fail early if the folder cannot be written
    measured = measure_layers(device_type, ranges, rounds=TIMING_ROUNDS, report_progress=report_progress)
    points = measure_crossover(device_type, report_progress)
    tables = {
        "table1": make_summary_table(measured),
        "table1-crossover": make_crossover_table(points),
        "table1-exponents": make_exponent_table(measured),
        "table1-steps": make_path_table(measured),
        "table1-full-layers": make_full_layer_table(measured),
    }
    figures = save_figure(draw_figure(measured), folder, "table1")
    figures += save_figure(draw_crossover(points), folder, "table1-crossover")
    with measurement_context(device_type):
        provenance = format_provenance(command, device_type)
    measurements = {"table1-measurements": make_measurement_table(measured)}
    files = write_report(folder, "table1", render_report(tables, provenance), {**tables, **measurements})
    crossover = {
        "crossover": [asdict(point) for point in points],
        "equal_time": [asdict(item) for item in find_crossovers(points)],
    }
    data = {**to_json(measured, provenance), **crossover}
    return Table1Report(list(tables.values()), data, [*files, *figures])


# ---- tables


def make_summary_table(measured: LayerMeasurements) -> ReportTable:
    rows = []
    for layer in LAYERS:
        order = [MEASURES[measure] for measure in ("seconds", "bytes", "flops")]
        powers = [format_powers(select_fits(measured, layer.name, measure)) for measure in order]
        rows.append(
            [
                layer.name,
                f"O({layer.complexity})",
                *powers,
                f"O({layer.sequential})",
                format_range(measured.depths[layer.name]),
                f"O({layer.path})",
                format_range(measured.hops[layer.name]),
            ]
        )
    columns = ["layer", "complexity (paper)", "time", "memory", "FLOPs (by construction)"]
    columns += [
        "sequential operations (paper)",
        "sequential operations",
        "path length (paper)",
        "path length",
    ]
    costs = [fit for fit in measured.fits if fit.measure != MEASURES["flops"]]
    close = sum(fit.within_tolerance for fit in costs)
    largest = max(abs(fit.fitted - fit.theory) for fit in costs)
    note = (
        f"{close} of {len(costs)} exponents of time and memory are within {EXPONENT_TOLERANCE} of the "
        f"theory; the largest difference is {largest:.2f}. All layers are fitted over the same n and d. "
        f"FLOPs are no measurement: they follow from shapes, and their exponents are exact."
    )
    return ReportTable("Table 1, measured", columns, rows, (note,))


def format_powers(fits: Mapping[str, ExponentFit]) -> str:
    """Format exponents such as n^1.98 d^1.02; the kernel or window comes first, as in the paper."""
    order = sorted(fits.values(), key=lambda fit: "krnd".index(fit.variable))
    return " ".join(f"{fit.variable}^{fit.fitted:.2f}" for fit in order)


def format_range(counts: Mapping[int, int]) -> str:
    """Format counts such as 5, or 33 to 257 (n 16 to 128)."""
    (low, first), *_, (high, last) = counts.items()
    return f"{first}" if len({*counts.values()}) == 1 else f"{first} to {last} (n {low} to {high})"


def make_exponent_table(measured: LayerMeasurements) -> ReportTable:
    rows = [
        [
            fit.layer,
            fit.measure,
            fit.variable,
            fit.theory,
            round(fit.fitted, 3),
            f"{fit.variable} {fit.low} to {fit.high}",
            fit.fixed,
            "yes" if fit.within_tolerance else "no",
        ]
        for fit in measured.fits
    ]
    columns = ("layer", "measure", "in", "theory", "fitted", "range", "fixed", f"within {EXPONENT_TOLERANCE}")
    return ReportTable("Exponents and the ranges that they were fitted over", columns, rows)


def make_path_table(measured: LayerMeasurements) -> ReportTable:
    rows: list[list[Cell]] = []
    for layer in LAYERS:
        depths, hops = measured.depths[layer.name], measured.hops[layer.name]
        growth = round(fit_exponent([*depths], [*depths.values()]), 3)
        rows.append([layer.name, "operations", f"O({layer.sequential})", format_counts(depths), growth, None])
        all_pairs = "yes" if measured.all_pairs_reached[layer.name] else "no"
        growth = fit_path_growth(layer, hops)
        rows.append([layer.name, "hops", f"O({layer.path})", format_counts(hops), growth, all_pairs])
    columns = ("layer", "count", "paper", "at n", "growth", "all pairs")
    sizes = [f"k {sizes['k']}, r {sizes['r']}" for sizes in (DEPTH_K, PATH_K)]
    notes = (
        f"Operations at d {HEAD_DIM}, {sizes[0]}; hops at {sizes[1]}.",
        "Growth: the exponent in n; for the path of the dilated convolution, hops per factor of k in n.",
    )
    return ReportTable("Sequential operations and path lengths", columns, rows, notes)


def fit_path_growth(layer: LayerType, hops: Mapping[int, int]) -> float:
    """Return the exponent in n (theory: 0 or 1), or the slope over log_k n (theory: 1)."""
    sizes: Sequence[int] = [*hops]
    if layer.path_exponent is not None:
        return round(fit_exponent(sizes, [*hops.values()]), 3)
    slope: float = np.polyfit(np.log(sizes) / np.log(PATH_K["k"]), [*hops.values()], 1)[0]
    return round(float(slope), 3)


def format_counts(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{size}: {count}" for size, count in counts.items())


def make_full_layer_table(measured: LayerMeasurements) -> ReportTable:
    pairs = [f"{unit}, {part}" for unit in ("FLOPs", "ms", "MiB") for part in ("mixing", "full layer")]
    note = f"One sentence; k {FULL_LAYER_K['k']}, r {FULL_LAYER_K['r']}."
    return ReportTable(
        "The mixing operation and the full layer", ("layer", "n", "d", *pairs), measured.full_layers, (note,)
    )


def make_measurement_table(measured: LayerMeasurements) -> ReportTable:
    columns = tuple(LayerCost.__dataclass_fields__)
    return ReportTable("Measurements", columns, [list(asdict(cost).values()) for cost in measured.costs])


# ---- JSON and Markdown


def to_json(measured: LayerMeasurements, provenance: str) -> dict[str, Any]:
    return {
        "provenance": provenance,
        "device": measured.device,
        "layers": [
            {
                "name": layer.name,
                "paper": {
                    "complexity": layer.complexity,
                    "sequential_operations": layer.sequential,
                    "path_length": layer.path,
                },
                "sequential_operations": measured.depths[layer.name],
                "path_length": measured.hops[layer.name],
                "all_pairs_reached": measured.all_pairs_reached[layer.name],
            }
            for layer in LAYERS
        ],
        "exponents": [{**asdict(fit), "within_tolerance": fit.within_tolerance} for fit in measured.fits],
        "measurements": [asdict(cost) for cost in measured.costs],
    }


def render_report(tables: Mapping[str, ReportTable], provenance: str) -> str:
    return "\n".join(
        [
            "# Table 1, measured\n",
            f"{provenance}\n",
            METHOD,
            *(table.to_markdown() for table in tables.values()),
            "![Time of self-attention and a recurrence around n = d](table1-crossover.svg)\n",
            "![FLOPs, time, memory, path length and sequential operations of each layer](table1.svg)\n",
            CAPTION,
        ]
    )


METHOD = """The measured operation is the one that the paper counts: the mixing of positions, forward, without
the projections around it. Attention is softmax(q k^T) v without W_Q, W_K, W_V and W_O, in heads of 64; the
recurrence is h_t = tanh(x_t + U h_{t-1}) over inputs that are already projected; a convolution is d to d,
causal, without a gate. The last table shows the full layers.

- FLOPs: two per multiply-add, as torch counts the matrix products that a CPU executes; softmax is not
  counted. The band of a window costs 1.5 times r n d, since a block of queries shares its keys.
- Time: on a CPU the time of one thread, in float32; on a GPU wall time, in bfloat16. The minimum over several
  rounds, in each of which every size runs once. Per sentence; a recurrence runs a batch, and its time is
  divided by the batch size.
- Memory: the peak beyond inputs and weights, reported by the allocator. Attention that never holds all its
  weights needs n d; "weights kept" is equation (1) computed literally, with n² numbers for each of d / 64
  heads.
- Exponents: least-squares slopes over logarithms, each over the range given. At smaller sizes the overhead of
  calls dominates.
- Sequential operations: the longest chain of torch operations from the inputs to the output, traced during
  execution; views do not count. Any constant is the paper's O(1).
- Path length: how many layers must be stacked until the output at the last position has a gradient with
  respect to the input at the first; for the recurrence, how many steps. "All pairs" says that after as many
  hops every output has a gradient with respect to every input that it can see, and after one hop fewer not
  yet.
"""

CAPTION = """Dots are measurements, lines are fits; the legend gives the fitted exponent, and the theory's in
parentheses. All layers have the same n and d; costs are per sentence, of a batch where the table says so.
"""
