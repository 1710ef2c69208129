"""The measurements of Table 1: cost of each layer as n and d grow, sequential operations, path lengths."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

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
from manyheads.paper.report import Cell
from manyheads.paper.size_sweeps import REFERENCE_SWEEP, SWEEPS, SizeSweep
from manyheads.progress import ReportProgress

EXPONENT_TOLERANCE = 0.2  # between a fitted exponent and the theory
DEPTH_SIZES = (128, 256, 512, 1024)  # n, for sequential operations
PATH_SIZES = (9, 27, 81, 243)  # n, for path lengths
ALL_PAIRS_MAX_N = 81  # up to which all pairs are checked
DEPTH_K = {"": 0, "k": 3, "r": 64}
PATH_K = {"": 0, "k": 3, "r": 8}
FULL_LAYER_SIZES = ((128, 512), (2048, 512))  # n and d: once n < d, once n > d
FULL_LAYER_K = {"": 0, "k": 3, "r": 64}
MEASURES = {"flops": "FLOPs", "seconds": "time", "bytes": "memory"}


@dataclass(frozen=True)
class LayerCost:
    """The cost of the mixing operation of a layer at one size: forward, per sentence."""

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
    """A fitted exponent and the range that it was fitted over."""

    layer: str
    measure: str
    variable: str
    theory: int
    fitted: float
    low: int
    high: int
    fixed: str  # the other variables and their values

    @property
    def within_tolerance(self) -> bool:
        return abs(self.fitted - self.theory) <= EXPONENT_TOLERANCE


@dataclass(frozen=True)
class LayerMeasurements:
    """All measurements of Table 1. The keys of `depths` and `hops` are layer and n."""

    device: str
    costs: list[LayerCost]
    fits: list[ExponentFit]
    depths: dict[str, dict[int, int]]  # sequential operations
    hops: dict[str, dict[int, int]]  # path length from the first to the last position
    all_pairs_reached: dict[str, bool]  # after as many hops all pairs that can be connected are, not before
    full_layers: list[list[Cell]]


def measure_layers(
    device: str,
    ranges: Mapping[str, tuple[int, ...]] | None = None,
    *,
    rounds: int,
    report_progress: ReportProgress,
) -> LayerMeasurements:
    """Measure every layer at every size. `ranges` replaces the default sizes of n and d."""
    torch.manual_seed(0)
    ranges = ranges or {}
    sweeps = {
        name: replace(sweep, n=ranges.get("n", sweep.n), d=ranges.get("d", sweep.d))
        for name, sweep in SWEEPS[device].items()
    }
    with measurement_context(device):
        costs = [
            cost
            for layer in LAYERS
            for cost in measure_costs(layer, sweeps[layer.name], device, rounds, report_progress)
        ]
        fits = [fit for layer in LAYERS for fit in fit_exponents(layer, sweeps[layer.name], costs)]
        fits += fit_reference_memory(device)
        full_layers = measure_full_layers(device, rounds, report_progress)
    depths, hops, all_pairs = {}, {}, {}
    for done, layer in enumerate(LAYERS):
        report_progress("sequential operations and path lengths", done, len(LAYERS))
        depths[layer.name] = measure_depths(layer)
        hops[layer.name] = {n: count_hops(layer, n, PATH_K[layer.kernel_symbol]) for n in PATH_SIZES}
        all_pairs[layer.name] = all(
            hops_are_exact(layer, n, PATH_K[layer.kernel_symbol], count)
            for n, count in hops[layer.name].items()
            if n <= ALL_PAIRS_MAX_N
        )
    return LayerMeasurements(device, costs, fits, depths, hops, all_pairs, full_layers)


# ---- costs and their exponents


def measure_costs(
    layer: LayerType, sweep: SizeSweep, device: str, rounds: int, report_progress: ReportProgress
) -> list[LayerCost]:
    sizes = list(dict.fromkeys(size for _, size in sweep.sizes()))
    calls = {size: layer.make_mixing(size) for size in sizes}
    seconds = measure_seconds(calls, device, rounds, lambda done: report_progress(layer.name, done, rounds))
    costs = []
    for size in sizes:
        amounts = (
            count_flops_at(layer.make_mixing, size),
            seconds[size],
            measure_peak_bytes(calls[size], device),
        )
        per_sentence = [amount / size.batch for amount in amounts]
        costs.append(LayerCost(layer.name, size.n, size.d, size.k, size.batch, *per_sentence))
    return costs


def fit_exponents(layer: LayerType, sweep: SizeSweep, costs: Sequence[LayerCost]) -> Iterator[ExponentFit]:
    """Fit the exponents of one layer. Memory is expected to grow as its input and output, n d."""
    by_size = {(cost.layer, cost.n, cost.d, cost.k): cost for cost in costs}
    for measure, variable in itertools.product(MEASURES, layer.exponents):
        if (measure, variable) == ("bytes", "k"):
            continue  # neither inputs nor outputs grow with k
        sizes = sweep.sizes_along(variable)
        values = [getattr(by_size[layer.name, size.n, size.d, size.k], measure) for size in sizes]
        theory = 1 if measure == "bytes" else layer.exponents[variable]
        yield fit_cost_exponent(
            layer.name, layer.kernel_symbol, MEASURES[measure], variable, sizes, values, theory
        )


def fit_cost_exponent(
    name: str,
    kernel_symbol: str,
    measure: str,
    variable: str,
    sizes: Sequence[LayerSize],
    values: Sequence[float],
    theory: int,
) -> ExponentFit:
    swept = [int(getattr(size, variable)) for size in sizes]
    symbols = {"n": "n", "d": "d", "k": kernel_symbol}
    fixed = [
        f"{symbol} {getattr(sizes[0], key)}" for key, symbol in symbols.items() if key != variable and symbol
    ]
    fitted = fit_exponent(swept, values)
    return ExponentFit(
        name, measure, symbols[variable], theory, fitted, swept[0], swept[-1], ", ".join(fixed)
    )


def fit_reference_memory(device: str) -> Iterator[ExponentFit]:
    """Fit the memory of equation (1) computed literally, with n^2 weights for each of d / 64 heads."""
    for variable, theory in (("n", 2), ("d", 1)):
        sizes = REFERENCE_SWEEP.sizes_along(variable)
        values = [measure_peak_bytes(make_attention(size, path="reference"), device) for size in sizes]
        yield fit_cost_exponent("self-attention", "", "memory, weights kept", variable, sizes, values, theory)


def measure_full_layers(device: str, rounds: int, report_progress: ReportProgress) -> list[list[Cell]]:
    """Measure the mixing alone and the layer with its projections, for one sentence."""
    rows: list[list[Cell]] = []
    for done, (layer, (n, d)) in enumerate(itertools.product(LAYERS, FULL_LAYER_SIZES)):
        report_progress("full layers", done, len(LAYERS) * len(FULL_LAYER_SIZES))
        size = LayerSize(n, d, FULL_LAYER_K[layer.kernel_symbol])
        calls = {"mixing": layer.make_mixing(size), "layer": layer.make_layer(size)}
        seconds = measure_seconds(calls, device, -(-rounds // 3))  # fewer rounds: nothing is fitted to these
        with measurement_context("cpu"):
            flops = [count_flops(make(size)) for make in (layer.make_mixing, layer.make_layer)]
        milliseconds = [1e3 * seconds[name] for name in calls]
        mebibytes = [measure_peak_bytes(call, device) / 2**20 for call in calls.values()]
        rows.append([layer.name, n, d, *flops, *milliseconds, *mebibytes])
    return rows


# ---- sequential operations and path lengths


def measure_depths(layer: LayerType) -> dict[int, int]:
    k = DEPTH_K[layer.kernel_symbol]
    with measurement_context("cpu"):
        return {n: measure_depth(layer.make_mixing(LayerSize(n, HEAD_DIM, k))) for n in DEPTH_SIZES}


def hops_are_exact(layer: LayerType, n: int, k: int, hops: int) -> bool:
    """Return whether `hops` connect all pairs that can be connected, and one hop fewer does not."""
    possible = torch.ones(n, n, dtype=torch.bool)
    if layer.is_causal:
        possible = possible.tril()
    connected = torch.equal(find_reached_pairs(layer, n, k, hops), possible)
    return connected and (hops == 1 or not torch.equal(find_reached_pairs(layer, n, k, hops - 1), possible))
