"""Figures for print, as SVG, PDF and PNG, without a browser (needs matplotlib).

    figure-3    a word that looks far away, every head of the layer in its color
    figure-4    a sharp head: all of it above, below one word alone with the two sharpest heads
    figure-5    two heads that follow the structure of the sentence
    encoder, decoder, cross    every layer and head as a small map
    alignment   the mean of the last layer's cross-attention, with values

Which heads are taken is told in measures.py.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.errors import RequestError
from manyheads.look.attention_data import (
    SIDES,
    Maps,
    attention_types,
    find_figure_heads,
    head_colors,
    merge_into_words,
    stack_maps,
    tokens_by_side,
    tokens_to_words,
)
from manyheads.translator import Attention

FORMATS = ("svg", "pdf", "png")
MIN_WEIGHT = 0.01  # of a weight that is drawn
MAX_WORDS = 200  # of a side
MAX_VALUES = 2500  # of a heat map, that are written into its cells
MAX_PIXELS = 12_000  # of a side of a PNG
HANGUL_FONTS = (  # by name, the likelier first: opening every font takes long
    "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Nanum Gothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "Source Han Sans KR", "Noto Sans CJK JP", "UnDotum", "Baekmuk Dotum",
)  # fmt: skip


def write_figures(attention: Attention, folder: Path) -> list[Path]:
    """Every figure in every format; their paths."""
    import_pyplot()
    words = {side: tokens_to_words(tokens) for side, tokens in tokens_by_side(attention).items()}
    longest = max(map(len, words.values()))
    if longest > MAX_WORDS:
        raise RequestError(
            f"a sentence of {longest} words, but figures show at most {MAX_WORDS}: give a shorter one, "
            f"or look at its page"
        )
    written = []
    with fonts_covering("".join(word for side in words.values() for word in side)):
        for name, figure in draw_figures(attention, words):
            written += save_figure(figure, folder, name)
    return written


def save_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """In every format; where fonts were chosen, they must still be."""
    folder.mkdir(parents=True, exist_ok=True)
    dpi = min(200, MAX_PIXELS / max(figure.get_size_inches()))
    paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=dpi, metadata=reproducible_metadata(path.suffix[1:]))
    import_pyplot().close(figure)
    return paths


def import_pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RequestError(
            "figures need matplotlib, which is not installed: pip install 'manyheads[figures]'"
        ) from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def reproducible_metadata(suffix: str) -> dict[str, None]:
    """The same maps make the same file."""
    dates = {"svg": "Date", "pdf": "CreationDate"}
    return {dates[suffix]: None} if suffix in dates else {}


def draw_figures(attention: Attention, words: dict[str, list[str]]) -> Iterator[tuple[str, Any]]:
    maps = {
        kind: merge_into_words(stack_maps(attention, kind), attention, kind)
        for kind in attention_types(attention)
    }
    if "encoder" in maps:
        yield from draw_paper_figures(maps["encoder"], attention, words["source"])
    for kind, of_kind in maps.items():
        yield kind, draw_grid(of_kind)
    yield "alignment", draw_heatmap(maps["cross"][-1].mean(0), [words[side] for side in SIDES["cross"]])


def draw_paper_figures(encoder: Maps, attention: Attention, source: list[str]) -> Iterator[tuple[str, Any]]:
    """Figures 3, 4 and 5, of the heads most like theirs."""
    like = find_figure_heads(encoder, attention, "encoder")
    if all(like.values()):
        far, sharp, structural = like["long"], like["sharp"], like["structural"]
        palette = head_colors(encoder.shape[1])

        def lines_of(heads: Iterable[tuple[int, int]], row: int | None = None) -> list[HeadLines]:
            return [(encoder[layer, head], palette[head], row) for layer, head in heads]

        whole_layer = [(far[0]["layer"], head) for head in range(encoder.shape[1])]
        yield "figure-3", draw_lines(source, [lines_of(whole_layer, far[0]["row"])])
        best = [(one["layer"], one["head"]) for one in sharp[:2]]
        yield "figure-4", draw_lines(source, [lines_of(best[:1]), lines_of(best, sharp[0]["row"])])
        pair = [(one["layer"], one["head"]) for one in structural[:2]]
        yield "figure-5", draw_lines(source, [lines_of([one]) for one in pair])


HeadLines = tuple[Maps, str, int | None]  # a map, its color, and the row that is shown alone


# ---- the three kinds of picture


def draw_lines(words: Sequence[str], panels: Sequence[list[HeadLines]]) -> Any:
    """As in the paper: words stand upright above and below, and lines lead down to what each looks at."""
    figures = import_pyplot()
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    figure, axes = figures.subplots(
        len(panels), 1, figsize=(0.42 * len(words) + 0.6, 3.4 * len(panels)), squeeze=False
    )
    for axis, lines in zip(axes[:, 0], panels, strict=True):
        for number, (map_QK, color, alone) in enumerate(lines):
            shift = (number - (len(lines) - 1) / 2) * 0.05
            seen = [
                (r, c) for r, c in zip(*(map_QK >= MIN_WEIGHT).nonzero(), strict=True) if alone in (None, r)
            ]
            weights = [min(float(map_QK[place]), 1.0) for place in seen]
            axis.add_collection(
                LineCollection(
                    [((row + shift, 1), (column + shift, 0)) for row, column in seen],
                    colors=[to_rgba(color, weight) for weight in weights],
                    linewidths=[0.6 + 1.8 * weight for weight in weights],
                    capstyle="round",
                )
            )
        focus = {alone for _, _, alone in lines}
        for place, word in enumerate(words):
            ink = "black" if None in focus or place in focus else "0.6"
            upright = {"rotation": 90, "ha": "center", "fontsize": 11}
            axis.text(place, 1.03, word, va="bottom", color=ink, **upright)
            axis.text(place, -0.03, word, va="top", color="black", **upright)
        axis.set(xlim=(-0.6, len(words) - 0.4), ylim=(0, 1))
        axis.axis("off")
    use_tight_layout(figure)
    return figure


def draw_grid(maps_LHQK: Maps) -> Any:
    layers, heads, rows, columns = maps_LHQK.shape
    palette = head_colors(heads)
    tall = min(max(rows / columns, 0.4), 2.5)
    figure, axes = import_pyplot().subplots(
        layers, heads, figsize=(heads * 1.1 + 0.3, layers * (1.1 * tall + 0.25) + 0.3), squeeze=False
    )
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
    use_tight_layout(figure)
    return figure


def draw_heatmap(map_QK: Maps, names: Sequence[Sequence[str]]) -> Any:
    rows, columns = map_QK.shape
    figure, axis = import_pyplot().subplots(figsize=(0.5 * columns + 1.8, 0.42 * rows + 1.6))
    axis.imshow(map_QK, cmap=make_colormap("#2b50c8"), vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(columns), names[1], rotation=55, ha="left", rotation_mode="anchor")
    axis.set_yticks(range(rows), names[0])
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    for row in range(rows if rows * columns <= MAX_VALUES else 0):
        for column in range(columns):
            weight = float(map_QK[row, column])
            if weight >= 0.005:
                ink = "white" if weight > 0.55 else "black"
                value = "1" if weight >= 0.995 else f"{weight:.2f}"[1:]
                axis.text(column, row, value, ha="center", va="center", fontsize=7, color=ink)
    use_tight_layout(figure)
    return figure


def make_colormap(color: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(color, ["white", color])


def use_tight_layout(figure: Any) -> None:
    figure.set_layout_engine("tight")


# ---- fonts


@contextmanager
def fonts_covering(text: str) -> Iterator[None]:
    """Fonts that have every letter of a text; where one is missing, an error that says which."""
    from matplotlib import rc_context

    usual = "DejaVu Sans"  # comes with matplotlib
    missing = set(text) - font_characters(usual) - {" "}
    families = [usual]
    while missing:
        found = find_font(missing)
        families.append(found)
        missing -= font_characters(found)
    how: dict[Any, Any] = {"font.family": families, "svg.fonttype": "path", "svg.hashsalt": "manyheads"}
    how["text.parse_math"] = False  # a word with two dollars is no formula
    with rc_context(how):
        yield


def find_font(letters: set[str]) -> str:
    """A font that has at least one of the letters."""
    from matplotlib.font_manager import fontManager

    # Fonts of last resort claim every letter, and have a box for each.
    there = [entry.name for entry in fontManager.ttflist if not entry.name.startswith("Last Resort")]
    likely = [name for name in HANGUL_FONTS if name in there]
    for name in dict.fromkeys([*likely, *there]):
        if letters & font_characters(name):
            return name
    one = min(letters)
    if "HANGUL" in unicodedata.name(one, ""):
        raise RequestError(
            f"no font here has Hangul ({one}), so figures cannot show it: install one, such as NanumGothic "
            f"or Noto Sans CJK KR (Debian: fonts-noto-cjk)"
        )
    raise RequestError(
        f"no font here has {one!r} ({unicodedata.name(one, 'unnamed')}), so figures cannot show it: "
        f"install one"
    )


def font_characters(family: str) -> set[str]:
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    try:  # a name in a list is taken as it is; alone it would be read as a pattern
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
        return {chr(code) for code in FT2Font(path).get_charmap()}
    except (OSError, RuntimeError, ValueError):
        return set()  # a font that cannot be opened, such as one of colored pictures
