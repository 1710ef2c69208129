"""The picture of a judged corpus: how many pairs have each score."""

from collections.abc import Sequence
from pathlib import Path

from manyheads.look.plots import reproducible_metadata, set_tight_layout
from manyheads.plot_style import SERIES_COLORS, import_pyplot


def save_judge_figure(histogram: Sequence[int], path: Path) -> None:
    """Draw the histogram of scores, with a logarithmic axis: good pairs are many."""
    pyplot = import_pyplot()
    figure, axis = pyplot.subplots(figsize=(6, 3))
    width = 1 / len(histogram)
    lefts = [number * width for number in range(len(histogram))]
    axis.bar(lefts, histogram, width=0.9 * width, align="edge", color=SERIES_COLORS[0])
    axis.set(xlim=(0, 1), xlabel="score", ylabel="pairs", yscale="symlog")
    set_tight_layout(figure)
    figure.savefig(path, metadata=reproducible_metadata(path.suffix[1:]))
    pyplot.close(figure)
