"""Shared drawing of the figures: axes, colors, smoothed curves and heatmaps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyheads.plot_style import GRAY, SERIES_COLORS, import_pyplot

Labels = Mapping[str, str]  # texts of a figure in one language
BLUE, ORANGE, GREEN, GREY = COLORS = (*SERIES_COLORS[:3], GRAY)
SMOOTHING_WINDOW = 9  # steps
PANEL_SIZE = (3.9, 3.1)  # inches


def make_axes(columns: int, rows: int = 1, widths: Sequence[float] | None = None) -> tuple[Any, Any]:
    """Return a figure and its axes in reading order."""
    shares = widths or [1.0] * columns
    size = PANEL_SIZE[0] * sum(shares), PANEL_SIZE[1] * rows
    figure, axes = import_pyplot().subplots(rows, columns, figsize=size, width_ratios=shares, squeeze=False)
    figure.set_layout_engine("tight")
    return figure, axes.flatten()


def plot_curve(axis: Any, values: Sequence[float], color: str, label: str) -> None:
    """Plot the running mean, with the values faintly behind it."""
    steps = np.arange(1, len(values) + 1)
    axis.plot(steps, values, color=color, alpha=0.2, linewidth=0.8)
    axis.plot(steps, smooth_curve(values), color=color, label=label)


def smooth_curve(values: Sequence[float]) -> list[float]:
    """Return the centered running mean. The window shrinks at the start, to keep the first values."""
    radii = (min(SMOOTHING_WINDOW // 2, index) for index in range(len(values)))
    return [float(np.mean(values[index - radius : index + radius + 1])) for index, radius in enumerate(radii)]


def set_log_scale(axis: Any) -> None:
    """Set a logarithmic y axis with plain numbers, since math text is disabled."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def draw_heatmap(
    axis: Any, values: Any, rows: Sequence[str], columns: Sequence[str], maximum: float = 1.0
) -> None:
    """Draw a heatmap with values in the cells and column names on top."""
    from manyheads.look.plots import make_colormap

    array = np.asarray(values, dtype=float)
    axis.imshow(array, cmap=make_colormap(BLUE), vmin=0, vmax=maximum, aspect="auto")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axis.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(array):
        text_color = "white" if value > 0.55 * maximum else "black"
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=text_color)
