"""The figure of Table 1: cost against n and d, path lengths and sequential operations against n."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyheads.paper.layer_costs import MEASURES, ExponentFit, LayerMeasurements
from manyheads.paper.layer_types import LAYERS
from manyheads.plot_style import SERIES_COLORS, import_pyplot

COLORS = SERIES_COLORS[:5]
MARKERS = ("o-", "o-", "o-", "x--", "o-")  # the curves of the two convolutions coincide
UNITS = {"flops": "FLOPs", "seconds": "seconds", "bytes": "bytes"}


def select_fits(measured: LayerMeasurements, layer: str, measure: str) -> dict[str, ExponentFit]:
    """Return the fits of a layer and measure by variable."""
    return {fit.variable: fit for fit in measured.fits if (fit.layer, fit.measure) == (layer, measure)}


def draw_figure(measured: LayerMeasurements) -> Any:
    """Draw costs against n (top) and d (bottom), and path lengths and sequential operations (right)."""
    figure, axes = import_pyplot().subplots(2, 4, figsize=(19, 12))
    for row, variable in enumerate("nd"):
        for axis, (measure, name) in zip(axes[row], MEASURES.items(), strict=False):
            for index in range(len(LAYERS)):
                draw_fit(axis, measured, index, measure, variable)
            ticks = choose_ticks([getattr(cost, variable) for cost in measured.costs])
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            label = f"{UNITS[measure]} per sentence"
            axis.set(title=f"{name} against {variable}", xlabel=variable, ylabel=label)
    paths, chains = ([getattr(layer, name) for layer in LAYERS] for name in ("path", "sequential"))
    draw_counts(axes[0][3], measured.hops, paths, "path length, first to last position")
    draw_counts(axes[1][3], measured.depths, chains, "sequential operations")
    for axis in axes.flat:
        axis.minorticks_off()
        axis.grid()
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.subplots_adjust(left=0.04, right=0.99, top=0.97, bottom=0.15, hspace=0.5, wspace=0.2)
    return figure


def choose_ticks(sizes: Sequence[int]) -> list[int]:
    """Return powers of two within the range of `sizes`, few enough to be readable."""
    powers = [2**power for power in range(24) if min(sizes) <= 2**power <= max(sizes)]
    return powers[:: 1 + len(powers) // 7]


def draw_fit(axis: Any, measured: LayerMeasurements, index: int, measure: str, variable: str) -> None:
    layer, color, marker = LAYERS[index], COLORS[index], MARKERS[index]
    fit = select_fits(measured, layer.name, MEASURES[measure])[variable]
    costs = [cost for cost in measured.costs if cost.layer == layer.name]
    points = sorted(
        (getattr(cost, variable), getattr(cost, measure))
        for cost in costs
        if all(getattr(cost, other) == getattr(costs[0], other) for other in "ndk" if other != variable)
    )
    x, y = (np.array(values) for values in zip(*points, strict=True))
    # A least-squares fit of logarithms passes through their means.
    fitted = np.exp(np.log(y).mean()) * (x / np.exp(np.log(x).mean())) ** fit.fitted
    label = f"{layer.name}: {variable}^{fit.fitted:.2f} ({fit.theory})"
    axis.loglog(x, y, marker[0], color=color, markersize=6)
    axis.loglog(x, fitted, marker[1:], color=color, linewidth=1.2, label=label)


def draw_counts(
    axis: Any, counts: Mapping[str, Mapping[int, int]], orders: Sequence[str], title: str
) -> None:
    for index, layer in enumerate(LAYERS):
        sizes, values = [*counts[layer.name]], counts[layer.name].values()
        shift = 1 + 0.03 * (index - 2)  # separates equal counts
        axis.loglog(
            sizes,
            [value * shift for value in values],
            MARKERS[index],
            color=COLORS[index],
            markersize=6,
            linewidth=1.2,
            label=f"{layer.name}: O({orders[index]})",
        )
    axis.set(title=title, xlabel="n")
    axis.set_xticks(sizes, [str(size) for size in sizes])
