"""Table 1, measured: what each type of layer costs as n and d grow, and how far apart its positions are."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyheads.errors import RequestError
from manyheads.inference.torch_engine import resolve_device
from manyheads.paper.layer_measurements import (
    count_flops,
    count_flops_at,
    count_hops,
    find_reached_pairs,
    fit_exponent,
    measure_depth,
    measure_peak_bytes,
    measure_seconds,
    measurement_context,
)
from manyheads.paper.layer_types import HEAD_DIM, LAYERS, LayerSize, LayerType, make_attention
from manyheads.paper.report import (
    Cell,
    ReportTable,
    format_provenance,
    import_pyplot,
    save_figure,
    write_report,
)
from manyheads.progress import ReportProgress

TIMING_ROUNDS = 7  # of timing
EXPONENT_TOLERANCE = 0.2  # an exponent that is no further from the theory agrees with it
MAX_N, MAX_D = 2**20, 2**15  # sizes that may be asked for
DEPTH_SIZES = (128, 256, 512, 1024)  # n, for the operations one after another
PATH_SIZES = (9, 27, 81, 243)  # n, for the hops
ALL_PAIRS_MAX_N = 81  # n
DEPTH_K = {"": 0, "k": 3, "r": 64}
PATH_K = {"": 0, "k": 3, "r": 8}
FULL_LAYER_SIZES = ((128, 512), (2048, 512))  # n and d, of the whole layers: once n < d, once n > d
FULL_LAYER_K = {"": 0, "k": 3, "r": 64}


@dataclass(frozen=True)
class SizeSweep:
    """The sizes of a layer: each range is gone through while the others stay at their first value."""

    n: Sequence[int]
    d: Sequence[int]
    k: Sequence[int] = (0,)
    batch: int = 1

    def sizes(self) -> Iterator[tuple[str, LayerSize]]:
        """Each with the letter that is being changed."""
        first = LayerSize(self.n[0], self.d[0], self.k[0], self.batch)
        for letter in ("n", "d", "k"):
            for value in getattr(self, letter):
                yield letter, replace(first, **{letter: value})

    def sizes_along(self, letter: str) -> list[LayerSize]:
        return [size for changed, size in self.sizes() if changed == letter]


# Where the exponents should hold: so large that the calls, and what is only moved, are nothing beside what is
# computed.
SWEEPS: Mapping[str, Mapping[str, SizeSweep]] = {
    "cpu": {
        "self-attention": SizeSweep((1024, 2048, 4096, 8192), (128, 256, 512, 1024)),
        "recurrent": SizeSweep((16, 32, 64, 128), (512, 768, 1024, 1536, 2048), batch=64),
        "convolution, contiguous": SizeSweep(
            (512, 1024, 2048, 4096), (256, 384, 512, 768, 1024), (3, 5, 9, 17)
        ),
        "convolution, dilated": SizeSweep((512, 1024, 2048, 4096), (256, 384, 512, 768, 1024), (3, 5, 9, 17)),
        "self-attention, restricted": SizeSweep(
            (4096, 8192, 16384), (256, 512, 1024, 2048), (128, 256, 512, 1024)
        ),
    },
    "cuda": {
        "self-attention": SizeSweep((16384, 32768, 65536, 131072), (512, 1024, 2048, 4096)),
        "recurrent": SizeSweep((16, 32, 64, 128), (8192, 12288, 16384, 24576, 32768), batch=1024),
        "convolution, contiguous": SizeSweep((65536, 131072, 262144), (2048, 4096, 8192), (3, 5, 9, 17)),
        "convolution, dilated": SizeSweep((65536, 131072, 262144), (2048, 4096, 8192), (3, 5, 9, 17)),
        "self-attention, restricted": SizeSweep(
            (131072, 262144, 524288), (512, 1024, 2048, 4096), (4096, 8192, 16384, 32768)
        ),
    },
}
REFERENCE_SWEEP = SizeSweep(
    (512, 1024, 2048), (128, 256, 512, 1024)
)  # of equation (1) with all its weights in memory


def parse_sizes(text: str) -> dict[str, tuple[int, ...]]:
    """n=1024-8192,d=128-512: ranges that are gone through by doubling."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([nd])=(\d+)-(\d+)\s*", part)
        if match is None:
            raise RequestError(f"--sizes has {part!r}, but a range is such as n=1024-8192 or d=128-512")
        letter, low, high = match.group(1), int(match.group(2)), int(match.group(3))
        found[letter] = double_range(letter, low, high)
    return found


def double_range(letter: str, low: int, high: int) -> tuple[int, ...]:
    most = MAX_N if letter == "n" else MAX_D
    if not 1 <= low < high <= most or high < 2 * low:
        raise RequestError(
            f"--sizes has {letter}={low}-{high}, but a range begins at 1 or more, ends at {most} at most, "
            f"and at least at twice its beginning"
        )
    if letter == "d" and low % HEAD_DIM:
        raise RequestError(
            f"--sizes has d={low}-{high}, but d begins with a multiple of {HEAD_DIM}, a head's width"
        )
    return tuple(itertools.takewhile(lambda size: size <= high, (low << step for step in range(64))))


# ---- measuring


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs at one size: for one sentence, forward, the mixing alone."""

    layer: str
    n: int
    d: int
    k: int
    batch: int
    flops: float
    seconds: float
    bytes: float


@dataclass(frozen=True)
class ExponentFit:
    """An exponent, and the range over which it was fitted."""

    layer: str
    measure: str
    variable: str
    theory: int
    fitted: float
    low: int
    high: int
    fixed: str  # what was held fixed

    @property
    def within_tolerance(self) -> bool:
        return abs(self.fitted - self.theory) <= EXPONENT_TOLERANCE


@dataclass(frozen=True)
class LayerMeasurements:
    """All of Table 1, before it is written."""

    device: str
    costs: list[LayerCost]
    fits: list[ExponentFit]
    depths: dict[str, list[int]]  # by layer, at DEPTH_SIZES
    hops: dict[str, list[int]]  # by layer, at PATH_SIZES
    all_pairs_reached: dict[
        str, bool
    ]  # whether all pairs that are in sight at all were reached, and not one hop earlier
    full_layers: list[list[Cell]]


def measure_layers(
    device: str,
    ranges: Mapping[str, tuple[int, ...]] | None = None,
    *,
    rounds: int,
    report_progress: ReportProgress,
) -> LayerMeasurements:
    """Every layer at every size; `asked` are other ranges of n and d."""
    torch.manual_seed(0)
    ranges = ranges or {}
    sweeps = {
        name: replace(sweep, n=ranges.get("n", sweep.n), d=ranges.get("d", sweep.d))
        for name, sweep in SWEEPS[device].items()
    }
    with measurement_context(device):
        measured = [
            one
            for layer in LAYERS
            for one in measure_costs(layer, sweeps[layer.name], device, rounds, report_progress)
        ]
        fits = [fit for layer in LAYERS for fit in fit_exponents(layer, sweeps[layer.name], measured)]
        fits += fit_reference_memory(device)
        whole = measure_full_layers(device, rounds, report_progress)
    depths, hops, every_pair = {}, {}, {}
    for done, layer in enumerate(LAYERS):
        report_progress("operations one after another, and hops", done, len(LAYERS))
        with measurement_context("cpu"):
            k = DEPTH_K[layer.kernel_symbol]
            depths[layer.name] = [
                measure_depth(layer.make_mixing(LayerSize(n, HEAD_DIM, k))) for n in DEPTH_SIZES
            ]
        k = PATH_K[layer.kernel_symbol]
        hops[layer.name] = [count_hops(layer, n, k) for n in PATH_SIZES]
        every_pair[layer.name] = all(
            hops_are_exact(layer, n, k, count)
            for n, count in zip(PATH_SIZES, hops[layer.name], strict=True)
            if n <= ALL_PAIRS_MAX_N
        )
    return LayerMeasurements(device, measured, fits, depths, hops, every_pair, whole)


def measure_costs(
    layer: LayerType, sweep: SizeSweep, device: str, rounds: int, report_progress: ReportProgress
) -> list[LayerCost]:
    sizes = list(dict.fromkeys(size for _, size in sweep.sizes()))
    works = {size: layer.make_mixing(size) for size in sizes}
    seconds = measure_seconds(works, device, rounds, lambda done: report_progress(layer.name, done, rounds))
    found = []
    for size in sizes:
        amounts = (
            count_flops_at(layer.make_mixing, size),
            seconds[size],
            measure_peak_bytes(works[size], device),
        )
        of_one = [amount / size.batch for amount in amounts]
        found.append(LayerCost(layer.name, size.n, size.d, size.k, size.batch, *of_one))
    return found


MEASURES = {"flops": "FLOPs", "seconds": "time", "bytes": "memory"}


def fit_exponents(layer: LayerType, sweep: SizeSweep, measured: Sequence[LayerCost]) -> Iterator[ExponentFit]:
    """The exponents of one layer; the memory's are those of its input and output, n d."""
    known = {(one.layer, one.n, one.d, one.k): one for one in measured}
    for measure, letter in itertools.product(MEASURES, layer.exponents):
        if (measure, letter) == ("bytes", "k"):
            continue  # neither inputs nor outputs grow with it
        sizes = sweep.sizes_along(letter)
        values = [getattr(known[layer.name, one.n, one.d, one.k], measure) for one in sizes]
        theory = 1 if measure == "bytes" else layer.exponents[letter]
        yield fit_cost_exponent(
            layer.name, layer.kernel_symbol, MEASURES[measure], letter, sizes, values, theory
        )


def fit_cost_exponent(
    name: str,
    kernel: str,
    measure: str,
    letter: str,
    sizes: Sequence[LayerSize],
    values: Sequence[float],
    theory: int,
) -> ExponentFit:
    changed = [int(getattr(size, letter)) for size in sizes]
    names = {"n": "n", "d": "d", "k": kernel}
    held = [f"{names[one]} {getattr(sizes[0], one)}" for one in names if one != letter and names[one]]
    at = ", ".join(held)
    return ExponentFit(
        name, measure, names[letter], theory, fit_exponent(changed, values), changed[0], changed[-1], at
    )


def fit_reference_memory(device: str) -> Iterator[ExponentFit]:
    """The memory of equation (1) as it stands, with n^2 weights for each of d / 64 heads."""
    for letter, theory in (("n", 2), ("d", 1)):
        sizes = REFERENCE_SWEEP.sizes_along(letter)
        values = [measure_peak_bytes(make_attention(size, path="reference"), device) for size in sizes]
        yield fit_cost_exponent("self-attention", "", "memory, weights kept", letter, sizes, values, theory)


def measure_full_layers(device: str, rounds: int, report_progress: ReportProgress) -> list[list[Cell]]:
    """Rows of the mixing alone beside the layer with its projections, for one sentence."""
    rows: list[list[Cell]] = []
    for done, (layer, (n, d)) in enumerate(itertools.product(LAYERS, FULL_LAYER_SIZES)):
        report_progress("whole layers", done, len(LAYERS) * len(FULL_LAYER_SIZES))
        size = LayerSize(n, d, FULL_LAYER_K[layer.kernel_symbol])
        works = {"mixing": layer.make_mixing(size), "whole": layer.make_layer(size)}
        seconds = measure_seconds(works, device, -(-rounds // 3))  # nothing is fitted to these
        with measurement_context("cpu"):
            flops = [count_flops(make(size)) for make in (layer.make_mixing, layer.make_layer)]
        times = [1e3 * seconds[one] for one in works]
        memory = [measure_peak_bytes(one, device) / 2**20 for one in works.values()]
        rows.append([layer.name, n, d, *flops, *times, *memory])
    return rows


def hops_are_exact(layer: LayerType, n: int, k: int, hops: int) -> bool:
    """After so many hops every pair is joined that can be, and after one fewer not yet."""
    possible = torch.ones(n, n, dtype=torch.bool)
    if layer.is_causal:
        possible = possible.tril()
    now = torch.equal(find_reached_pairs(layer, n, k, hops), possible)
    return now and (hops == 1 or not torch.equal(find_reached_pairs(layer, n, k, hops - 1), possible))


# ---- writing


@dataclass(frozen=True)
class Table1Report:
    """The tables for the terminal, all of it as plain data, and what was written."""

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
    """Measures every layer of Table 1 on this machine and writes table1.md, CSV files and a figure."""
    import_pyplot()  # before the work: without matplotlib there is no report
    known = resolve_device(device)
    asked = parse_sizes(sizes) if sizes else None
    folder.mkdir(parents=True, exist_ok=True)  # where nothing can be written, nothing need be measured
    found = measure_layers(known, asked, rounds=TIMING_ROUNDS, report_progress=report_progress)
    tables = {
        "table1": make_summary_table(found),
        "table1-exponents": make_exponent_table(found),
        "table1-steps": make_path_table(found),
        "table1-whole-layers": make_full_layer_table(found),
    }
    figures = save_figure(draw_figure(found), folder, "table1")
    with measurement_context(known):
        where = format_provenance(command, known)
    raw = {"table1-measurements": make_measurement_table(found)}
    files = write_report(folder, "table1", render_report(tables, where), {**tables, **raw})
    return Table1Report(list(tables.values()), to_json(found, where), [*files, *figures])


def select_fits(found: LayerMeasurements, layer: str, measure: str) -> dict[str, ExponentFit]:
    return {one.variable: one for one in found.fits if (one.layer, one.measure) == (layer, measure)}


def format_powers(fits: Mapping[str, ExponentFit]) -> str:
    """Such as n^1.98 d^1.02; a kernel or window stands first, as in the paper."""
    order = sorted(fits.values(), key=lambda one: "krnd".index(one.variable))
    return " ".join(f"{one.variable}^{one.fitted:.2f}" for one in order)


def make_summary_table(found: LayerMeasurements) -> ReportTable:
    rows = []
    for layer in LAYERS:
        grown = [format_powers(select_fits(found, layer.name, measure)) for measure in MEASURES.values()]
        depths, hops = found.depths[layer.name], found.hops[layer.name]
        rows.append(
            [
                layer.name,
                f"O({layer.complexity})",
                *grown,
                f"O({layer.sequential})",
                format_range(DEPTH_SIZES, depths),
                f"O({layer.path})",
                format_range(PATH_SIZES, hops),
            ]
        )
    columns = ["layer", "paper: complexity", "FLOPs", "time", "memory"]
    columns += ["paper: sequential", "traced", "paper: path", "found"]
    away = max(abs(one.fitted - one.theory) for one in found.fits)
    outside = [one for one in found.fits if not one.within_tolerance]
    agree = f"{len(found.fits) - len(outside)} of {len(found.fits)} exponents lie within {EXPONENT_TOLERANCE} of the theory"
    return ReportTable(
        "Table 1, measured", columns, rows, (f"{agree}; the largest difference is {away:.2f}.",)
    )


def format_range(sizes: Sequence[int], counts: Sequence[int]) -> str:
    """Such as 5, or 33 to 257 for n 16 to 128."""
    if len(set(counts)) == 1:
        return f"{counts[0]}"
    return f"{counts[0]} to {counts[-1]} (n {sizes[0]} to {sizes[-1]})"


def make_exponent_table(found: LayerMeasurements) -> ReportTable:
    rows = [
        [
            one.layer,
            one.measure,
            one.variable,
            one.theory,
            round(one.fitted, 3),
            f"{one.variable} {one.low} to {one.high}",
            one.fixed,
            "yes" if one.within_tolerance else "no",
        ]
        for one in found.fits
    ]
    columns = ("layer", "measure", "in", "theory", "fitted", "range", "held", f"within {EXPONENT_TOLERANCE}")
    return ReportTable("Exponents, and the ranges over which they were fitted", columns, rows)


def make_path_table(found: LayerMeasurements) -> ReportTable:
    rows: list[list[Cell]] = []
    for layer in LAYERS:
        depths, hops = found.depths[layer.name], found.hops[layer.name]
        rows.append([layer.name, "operations", f"O({layer.sequential})", format_counts(DEPTH_SIZES, depths)])
        rows[-1] += [round(fit_exponent(DEPTH_SIZES, depths), 3), None]
        pairs = "yes" if found.all_pairs_reached[layer.name] else "no"
        slope = fit_path_growth(layer, hops)
        rows.append([layer.name, "hops", f"O({layer.path})", format_counts(PATH_SIZES, hops), slope, pairs])
    columns = ("layer", "count", "paper", "at n", "growth", "every pair")
    sizes = [f"k {sizes['k']}, r {sizes['r']}" for sizes in (DEPTH_K, PATH_K)]
    notes = (
        f"Operations at d {HEAD_DIM}, {sizes[0]}; hops at {sizes[1]}.",
        "Growth: the exponent in n; of the dilated convolution's path, hops for each factor of k in n.",
    )
    return ReportTable("One after another, and how far apart", columns, rows, notes)


def fit_path_growth(layer: LayerType, hops: Sequence[int]) -> float:
    """The exponent in n, which is to be 0 or 1; or the slope over log_k n, which is to be 1."""
    if layer.path_exponent is not None:
        return round(fit_exponent(PATH_SIZES, hops), 3)
    slope: float = np.polyfit(np.log(PATH_SIZES) / np.log(PATH_K["k"]), hops, 1)[0]
    return round(float(slope), 3)


def format_counts(sizes: Sequence[int], counts: Sequence[int]) -> str:
    return ", ".join(f"{size}: {count}" for size, count in zip(sizes, counts, strict=True))


def make_full_layer_table(found: LayerMeasurements) -> ReportTable:
    columns = ("layer", "n", "d", "FLOPs, mixing", "whole", "ms, mixing", "whole ", "MiB, mixing", "whole  ")
    note = f"One sentence; k {FULL_LAYER_K['k']}, r {FULL_LAYER_K['r']}."
    return ReportTable("The mixing alone, and the whole layer", columns, found.full_layers, (note,))


def make_measurement_table(found: LayerMeasurements) -> ReportTable:
    columns = tuple(LayerCost.__dataclass_fields__)
    return ReportTable("Measurements", columns, [list(asdict(one).values()) for one in found.costs])


def to_json(found: LayerMeasurements, where: str) -> dict[str, Any]:
    return {
        "measured": where,
        "device": found.device,
        "layers": [
            {
                "name": layer.name,
                "paper": {
                    "complexity": layer.complexity,
                    "sequential": layer.sequential,
                    "path": layer.path,
                },
                "operations": dict(zip(DEPTH_SIZES, found.depths[layer.name], strict=True)),
                "hops": dict(zip(PATH_SIZES, found.hops[layer.name], strict=True)),
                "every_pair": found.all_pairs_reached[layer.name],
            }
            for layer in LAYERS
        ],
        "exponents": [{**asdict(one), "near": one.within_tolerance} for one in found.fits],
        "measurements": [asdict(one) for one in found.costs],
    }


def render_report(tables: Mapping[str, ReportTable], where: str) -> str:
    return "\n".join(
        [
            "# Table 1, measured\n",
            f"{where}\n",
            METHOD,
            *(table.to_markdown() for table in tables.values()),
            "![FLOPs, time, memory, hops and operations, each layer in its color](table1.svg)\n",
            CAPTION,
        ]
    )


METHOD = """What is measured is what the paper counts: the operation that mixes the positions, forward,
without the projections around it. So attention is softmax(q k^T) v without W_Q, W_K, W_V and W_O, in heads
of 64; the recurrence is h_t = tanh(x_t + U h_{t-1}) over inputs that are projected already; a convolution
is d to d, causal, without a gate. The last table has the whole layers beside it.

- FLOPs: two for each multiplication with its addition, as torch counts the products of what a CPU
  executes; no softmax. The band of a window costs half as much again as r n d, since a block of queries
  shares its keys.
- Time: on a CPU the seconds in which one thread ran, in float32; on a GPU all seconds, in bfloat16. The
  least of several rounds, in each of which every size has its turn. Of one sentence; a recurrence runs a
  batch of them, and its time is shared out.
- Memory: the most that is held at once beyond inputs and weights, as the allocator tells it. Attention
  whose weights are never all there needs n d; "weights kept" is equation (1) as it stands, with n² numbers
  for each of d / 64 heads.
- Exponents: slopes of least squares over logarithms, each over the range beside it. Below such ranges the
  time of a call counts.
- Operations one after another: the longest chain of torch's operations from the inputs to the output,
  followed while they were executed; views count nothing. Any constant is the paper's O(1).
- Hops: how many layers must be stacked until the last position's output has a gradient from the first
  position's input; of the recurrence, how many steps. "Every pair" says that after so many hops every
  output has a gradient from every input that it can see at all, and one hop earlier not yet.
"""

CAPTION = """Dots are measured, lines fitted; beside a name stands the exponent, and in brackets the theory's.
Layers were measured at different sizes (see the ranges): compare slopes, not heights.
"""

COLORS = ("#2b50c8", "#c8402b", "#1f8a4c", "#8a5ac8", "#b8860b")
MARKERS = ("o-", "o-", "o-", "x--", "o-")  # the two convolutions lie on each other


def draw_figure(found: LayerMeasurements) -> Any:
    """Above against n, below against d; at the right what follows one after another."""
    figure, axes = import_pyplot().subplots(2, 4, figsize=(19, 12))
    for row, letter in enumerate("nd"):
        for axis, (measure, name) in zip(axes[row], MEASURES.items(), strict=False):
            for number in range(len(LAYERS)):
                draw_fit(axis, found, number, measure, letter)
            ticks = choose_ticks([getattr(one, letter) for one in found.costs])
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            units = {"flops": "FLOPs", "seconds": "seconds", "bytes": "bytes"}[measure]
            axis.set(title=f"{name} against {letter}", xlabel=letter, ylabel=f"{units} of one sentence")
    paths, chains = ([getattr(layer, name) for layer in LAYERS] for name in ("path", "sequential"))
    draw_counts(axes[0][3], found.hops, PATH_SIZES, paths, "hops from the first to the last position")
    draw_counts(axes[1][3], found.depths, DEPTH_SIZES, chains, "operations one after another")
    for axis in axes.flat:
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.subplots_adjust(left=0.04, right=0.99, top=0.97, bottom=0.15, hspace=0.5, wspace=0.2)
    return figure


def choose_ticks(sizes: Sequence[int]) -> list[int]:
    """Powers of two from the least to the most, few enough to be read."""
    powers = [2**power for power in range(24) if min(sizes) <= 2**power <= max(sizes)]
    return powers[:: 1 + len(powers) // 7]


def draw_fit(axis: Any, found: LayerMeasurements, number: int, measure: str, letter: str) -> None:
    layer, ink, mark = LAYERS[number], COLORS[number], MARKERS[number]
    fit = select_fits(found, layer.name, MEASURES[measure])[letter]
    own = [one for one in found.costs if one.layer == layer.name]
    first = own[0]
    line = sorted(
        (getattr(one, letter), getattr(one, measure))
        for one in own
        if all(getattr(one, other) == getattr(first, other) for other in "ndk" if other != letter)
    )
    x, y = (np.array(values) for values in zip(*line, strict=True))
    # A fit of logarithms goes through their means.
    fitted = np.exp(np.log(y).mean()) * (x / np.exp(np.log(x).mean())) ** fit.fitted
    label = f"{layer.name}: {letter}^{fit.fitted:.2f} ({fit.theory})"
    axis.loglog(x, y, mark[0], color=ink, markersize=6)
    axis.loglog(x, fitted, mark[1:], color=ink, linewidth=1.2, label=label)


def draw_counts(
    axis: Any, counts: Mapping[str, Sequence[int]], sizes: Sequence[int], orders: Sequence[str], title: str
) -> None:
    for number, layer in enumerate(LAYERS):
        shift = 1 + 0.03 * (number - 2)  # so that equal counts are seen side by side
        axis.loglog(
            sizes,
            [count * shift for count in counts[layer.name]],
            MARKERS[number],
            color=COLORS[number],
            markersize=6,
            linewidth=1.2,
            label=f"{layer.name}: O({orders[number]})",
        )
    axis.set(title=title, xlabel="n")
    axis.set_xticks(sizes, [str(size) for size in sizes])
