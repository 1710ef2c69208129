"""Plots of attention maps with matplotlib: lines as in the paper, a grid of heads, and a heat map.

A figure is as large as its words, its title and its key need, so that no text is cut off.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.look.attention_data import Maps
from manyheads.look.colors import head_colors, relative_luminance
from manyheads.look.words import readable_word
from manyheads.plot_style import SERIES_COLORS, Dash, import_pyplot

FORMATS = ("svg", "pdf", "png")
MIN_WEIGHT = 0.01  # of a line
MAX_VALUES = 2500  # cells of a heat map with their values
MAX_PIXELS = 12_000  # of the longer side of a PNG
MARGIN = 0.35  # inches, both sides together
WORD_SIZE, TITLE_SIZE, KEY_SIZE, LABEL_SIZE, FIGURE_TITLE_SIZE = 11, 11, 8, 8, 9  # points
KEY_ENTRY = 5.6 * KEY_SIZE / 72  # inches of a line in a key, with the spaces beside it
KEY_ANGLE = 55  # degrees, of the labels of keys


class HeadLines(NamedTuple):
    map_QK: Maps
    color: str
    row: int | None = None  # that is drawn alone
    dash: Dash = "-"


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Save a figure in every format. The fonts that it was drawn with must still be set."""
    folder.mkdir(parents=True, exist_ok=True)
    dpi = min(200, MAX_PIXELS / max(figure.get_size_inches()))
    paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=dpi, metadata=reproducible_metadata(path.suffix[1:]))
    import_pyplot().close(figure)
    return paths


def reproducible_metadata(suffix: str) -> dict[str, None]:
    """Return metadata without dates, so that the same maps make the same file."""
    dates = {"svg": "Date", "pdf": "CreationDate"}
    return {dates[suffix]: None} if suffix in dates else {}


def draw_lines(
    words: Sequence[str],
    panels: Sequence[list[HeadLines]],
    titles: Sequence[str] = (),
    names: Sequence[Sequence[str]] = (),
) -> Any:
    """Draw lines from queries above to keys below, as in the paper.

    `titles` are those of the panels, and `names` for each panel those of its heads, which become its key.
    """
    figure, axes = import_pyplot().subplots(len(panels), 1, squeeze=False)
    texts = list(map(readable_word, words))
    key_entries = [name for panel_names in names for name in panel_names]
    width = max(
        0.42 * len(words) + 0.6,
        measure_width(figure, titles, TITLE_SIZE) + MARGIN,
        measure_width(figure, key_entries, KEY_SIZE) + KEY_ENTRY + MARGIN,
    )
    height = max(3.4, 2 * measure_width(figure, texts, WORD_SIZE) + 2.2)
    figure.set_size_inches(width, height * len(panels))
    for axis, heads in zip(axes[:, 0], panels, strict=True):
        for number, head in enumerate(heads):
            add_lines(axis, head, shift=(number - (len(heads) - 1) / 2) * 0.05)
        selected = {head.row for head in heads}
        for index, word in enumerate(texts):
            color = "black" if None in selected or index in selected else "0.6"
            upright = {"rotation": 90, "ha": "center", "fontsize": WORD_SIZE}
            axis.text(index, 1.03, word, va="bottom", color=color, **upright)
            axis.text(index, -0.03, word, va="top", color="black", **upright)
        axis.set(xlim=(-0.6, len(words) - 0.4), ylim=(0, 1))
        axis.axis("off")
    for number, axis in enumerate(axes[:, 0]):
        key = list(zip(names[number], panels[number], strict=True)) if names else []
        add_title(axis, titles[number] if titles else "", key)
    set_tight_layout(figure)
    return figure


def add_title(axis: Any, title: str, key: Sequence[tuple[str, HeadLines]]) -> None:
    """Write a title and the key of lines above the words, which are as high as their letters are many."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    figure = axis.figure
    renderer = figure.canvas.get_renderer()
    tops = (text.get_window_extent(renderer) for text in axis.texts if text.get_va() == "bottom")
    height = max(box.height for box in tops) * 72 / figure.dpi + 8  # in points
    if key:
        entry = measure_width(figure, (name for name, _ in key), KEY_SIZE) + KEY_ENTRY
        columns = max(1, min(len(key), int((figure.get_size_inches()[0] - MARGIN) / entry)))
        lines = [Line2D([], [], color=head.color, linestyle=head.dash, linewidth=1.8) for _, head in key]
        shift = ScaledTranslation(0, height / 72, figure.dpi_scale_trans)
        axis.legend(
            lines, [name for name, _ in key], loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0,
            bbox_transform=axis.transAxes + shift, ncols=columns, fontsize=KEY_SIZE, handlelength=2.6,
        )  # fmt: skip
        height += 6 + 13 * -(-len(key) // columns)
    if title:
        axis.set_title(title, loc="left", pad=height, fontsize=TITLE_SIZE)


def add_lines(axis: Any, head: HeadLines, shift: float) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    map_QK, color, selected, dash = head
    cells = [
        (row, column)
        for row, column in zip(*(map_QK >= MIN_WEIGHT).nonzero(), strict=True)
        if selected in (None, row)
    ]
    weights = [min(float(map_QK[cell]), 1.0) for cell in cells]
    axis.add_collection(
        LineCollection(
            [((row + shift, 1), (column + shift, 0)) for row, column in cells],
            colors=[to_rgba(color, weight) for weight in weights],
            linewidths=[0.6 + 1.8 * weight for weight in weights],
            linestyles=dash,
            capstyle="round" if dash == "-" else "butt",
        )
    )


def draw_grid(maps_LHQK: Maps, title: str = "") -> Any:
    """Draw every head as a small map, one row per layer."""
    layers, heads, rows, columns = maps_LHQK.shape
    palette = head_colors(heads)
    aspect = min(max(rows / columns, 0.4), 2.5)
    figure, axes = import_pyplot().subplots(layers, heads, squeeze=False)
    width = max(heads * 1.1 + 0.3, measure_width(figure, [title], FIGURE_TITLE_SIZE) + MARGIN)
    figure.set_size_inches(width, layers * (1.1 * aspect + 0.25) + 0.3)
    for layer in range(layers):
        for head in range(heads):
            axis = axes[layer, head]
            axis.imshow(
                maps_LHQK[layer, head], cmap=make_colormap(palette[head]), vmin=0, vmax=1, aspect="auto"
            )
            axis.set(xticks=[], yticks=[])
            axis.set_title(f"{layer + 1}.{head + 1}", fontsize=7, pad=2)
            for spine in axis.spines.values():
                spine.set(linewidth=0.4, color="0.6")
    add_figure_title(figure, title)
    set_tight_layout(figure)
    return figure


def draw_heatmap(map_QK: Maps, names: Sequence[Sequence[str]], title: str = "") -> Any:
    """Draw one map with its weights; `names` are the labels of queries and keys."""
    rows, columns = map_QK.shape
    figure, axis = import_pyplot().subplots()
    colormap = make_colormap(SERIES_COLORS[0])
    axis.imshow(map_QK, cmap=colormap, vmin=0, vmax=1, aspect="auto")
    queries, keys = (list(map(readable_word, words)) for words in names)
    key_length, angle = measure_width(figure, keys, LABEL_SIZE), math.radians(KEY_ANGLE)
    beside = measure_width(figure, queries, LABEL_SIZE) + key_length * math.cos(angle)
    figure.set_size_inches(
        max(
            0.5 * columns + max(1.8, beside + MARGIN),
            measure_width(figure, [title], FIGURE_TITLE_SIZE) + MARGIN,
        ),
        0.42 * rows + max(1.6, key_length * math.sin(angle) + 1),
    )
    axis.set_xticks(
        range(columns), keys, rotation=KEY_ANGLE, ha="left", rotation_mode="anchor", fontsize=LABEL_SIZE
    )
    axis.set_yticks(range(rows), queries, fontsize=LABEL_SIZE)
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    for row in range(rows if rows * columns <= MAX_VALUES else 0):
        for column in range(columns):
            weight = float(map_QK[row, column])
            if weight >= 0.005:
                color = text_color(colormap(weight))
                value = "1" if weight >= 0.995 else f"{weight:.2f}"[1:]
                axis.text(column, row, value, ha="center", va="center", fontsize=7, color=color)
    add_figure_title(figure, title)
    set_tight_layout(figure)
    return figure


def add_figure_title(figure: Any, title: str) -> None:
    """Write a title above the whole figure, at its left edge."""
    if title:
        figure.suptitle(title, x=0.02, ha="left", fontsize=FIGURE_TITLE_SIZE)


def measure_width(figure: Any, texts: Iterable[str], size: float) -> float:
    """Return the width of the widest text, in inches."""
    renderer = figure.canvas.get_renderer()
    widths = [0.0]
    for text in texts:
        artist = figure.text(0, 0, text, fontsize=size)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # of missing glyphs, which come again when it is drawn
            widths.append(artist.get_window_extent(renderer).width / figure.dpi)
        artist.remove()
    return max(widths)


def text_color(background: Sequence[float]) -> str:
    """Return black or white: the one with more contrast to a color."""
    red, green, blue = background[:3]
    luminance = relative_luminance((red, green, blue))
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def make_colormap(color: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(color, ["white", color])


def set_tight_layout(figure: Any) -> None:
    figure.set_layout_engine("tight")
