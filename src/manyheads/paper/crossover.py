"""The paper's claim behind Table 1: self-attention is faster than a recurrence as long as n is below d.

Both are measured at the same widths while n grows from below d to above it, and the n is interpolated at
which they cost the same. By O-terms, n^2 d and n d^2, that is n = d; by multiplications of the mixing alone
it is d / 2, since attention has two products (scores, and the weighted sum) where the recurrence has one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.paper.layer_measurements import measure_peak_bytes, measure_seconds, measurement_context
from manyheads.paper.layer_types import LAYERS, LayerCall, LayerSize, LayerType
from manyheads.paper.report import Cell, ReportTable
from manyheads.plot_style import import_pyplot
from manyheads.progress import ReportProgress

WIDTHS = {"cpu": (256, 512), "cuda": (512, 1024)}
MULTIPLES = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)  # of d
BATCH = {"cpu": 16, "cuda": 256}  # sentences of a recurrence, as in training; attention runs one at a time
ROUNDS = 3
PARTS = ("mixing", "full layer")
MIXING, FULL = PARTS


@dataclass(frozen=True)
class CrossoverPoint:
    """Seconds and bytes of one sentence, by layer."""

    part: str
    d: int
    n: int
    seconds: dict[str, float]
    bytes: dict[str, float]


@dataclass(frozen=True)
class Crossover:
    """Where self-attention and the recurrence cost the same; None: nowhere in the measured range."""

    part: str
    d: int
    seconds: float | None
    bytes: float | None


def measure_crossover(device: str, report_progress: ReportProgress) -> list[CrossoverPoint]:
    layers = {layer.name: layer for layer in LAYERS if layer.name in ("self-attention", "recurrent")}
    sizes = [
        (part, d, round(d * multiple)) for part in PARTS for d in WIDTHS[device] for multiple in MULTIPLES
    ]
    points = []
    with measurement_context(device):
        for done, (part, d, n) in enumerate(sizes):
            report_progress("self-attention against a recurrence", done, len(sizes))
            calls = {name: make_call(layer, part, n, d, device) for name, layer in layers.items()}
            seconds = measure_seconds(calls, device, ROUNDS)
            batches = {name: BATCH[device] if name == "recurrent" else 1 for name in layers}
            points.append(
                CrossoverPoint(
                    part,
                    d,
                    n,
                    {name: value / batches[name] for name, value in seconds.items()},
                    {name: measure_peak_bytes(call, device) / batches[name] for name, call in calls.items()},
                )
            )
    return points


def make_call(layer: LayerType, part: str, n: int, d: int, device: str) -> LayerCall:
    size = LayerSize(n, d, 0, BATCH[device] if layer.name == "recurrent" else 1)
    return layer.make_mixing(size) if part == MIXING else layer.make_layer(size)


def find_crossovers(points: Sequence[CrossoverPoint]) -> list[Crossover]:
    groups: dict[tuple[str, int], list[CrossoverPoint]] = {}
    for point in points:
        groups.setdefault((point.part, point.d), []).append(point)
    return [
        Crossover(part, d, interpolate(group, "seconds"), interpolate(group, "bytes"))
        for (part, d), group in groups.items()
    ]


def interpolate(points: Sequence[CrossoverPoint], measure: str) -> float | None:
    """Return the n at which attention becomes as costly as the recurrence, between two measured sizes."""
    ordered = sorted(points, key=lambda point: point.n)
    ratios = [compute_log_ratio(getattr(point, measure)) for point in ordered]
    for left, right, low, high in zip(ordered, ordered[1:], ratios, ratios[1:], strict=False):
        if low <= 0 < high:
            share = -low / (high - low)
            return float(left.n * (right.n / left.n) ** share)
    return None


def compute_log_ratio(costs: Mapping[str, float]) -> float:
    return float(np.log(costs["self-attention"] / costs["recurrent"]))


def find_closest(points: Sequence[CrossoverPoint], crossover: Crossover) -> CrossoverPoint:
    """Return the measured size at which the two take the most similar time."""
    group = [point for point in points if (point.part, point.d) == (crossover.part, crossover.d)]
    return min(group, key=lambda point: abs(compute_log_ratio(point.seconds)))


# ---- report


def make_crossover_table(points: Sequence[CrossoverPoint]) -> ReportTable:
    rows: list[list[Cell]] = []
    for point in points:
        ratio = point.seconds["self-attention"] / point.seconds["recurrent"]
        milliseconds = [1e3 * point.seconds[name] for name in ("self-attention", "recurrent")]
        mebibytes = [point.bytes[name] / 2**20 for name in ("self-attention", "recurrent")]
        rows.append([point.part, point.d, point.n, point.n / point.d, *milliseconds, ratio, *mebibytes])
    columns = ["part", "d", "n", "n / d", "ms, self-attention", "ms, recurrent", "ratio of time"]
    columns += ["MiB, self-attention", "MiB, recurrent"]
    return ReportTable(
        "Self-attention against a recurrence around n = d", columns, rows, [describe_crossovers(points)]
    )


def describe_crossovers(points: Sequence[CrossoverPoint]) -> str:
    parts = []
    for crossover in find_crossovers(points):
        if crossover.seconds is None:
            closest = find_closest(points, crossover)
            ratio = closest.seconds["self-attention"] / closest.seconds["recurrent"]
            where = f"nowhere in this range (closest at n = {closest.n}: {ratio:.2f} times the recurrence's)"
        else:
            where = f"n = {crossover.seconds:.0f}, {crossover.seconds / crossover.d:.2f} d"
        parts.append(f"{crossover.part}, d = {crossover.d}: {where}")
    return (
        "The paper: self-attention is faster as long as n < d. Measured, equal time at "
        + "; ".join(parts)
        + ". By O-terms at n = d; by multiplications of the mixing at n = d / 2. Time is of one thread on a "
        "CPU; a recurrence runs a batch, whose time is divided by its sentences: one alone is slower, "
        "and on parallel hardware its n steps wait for each other, which no count of operations shows."
    )


def draw_crossover(points: Sequence[CrossoverPoint]) -> Any:
    """Plot the ratio of time against n / d; the paper's claim is the point (1, 1)."""
    figure, axis = import_pyplot().subplots(figsize=(7, 4.2), layout="constrained")
    for part, style in zip(PARTS, ("o-", "s--"), strict=True):
        for d in dict.fromkeys(point.d for point in points):
            group = [point for point in points if (point.part, point.d) == (part, d)]
            ratios = [np.exp(compute_log_ratio(point.seconds)) for point in group]
            axis.loglog([point.n / d for point in group], ratios, style, label=f"{part}, d {d}")
    axis.axhline(1, color="0.5", linewidth=0.8)
    axis.axvline(1, color="0.5", linewidth=0.8, linestyle=":", label="n = d, the paper's crossover")
    axis.set(xlabel="n / d", ylabel="time of self-attention / recurrent")
    axis.set_xticks(MULTIPLES, [f"{multiple:g}" for multiple in MULTIPLES])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend()
    return figure
