"""Figures for print, as SVG, PDF and PNG, without a browser (needs matplotlib).

    figure-3    a word with long-distance attention, with every head of the layer in its color and dash
    figure-4    a sharp head: above all of it, below one word alone with the two sharpest heads
    figure-5    two heads that follow the structure of the sentence
    encoder, decoder, cross    every layer and head as a small map
    alignment   the mean of the cross-attention of the last layer, with values

figure_heads.py says which heads are chosen.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from manyheads.errors import RequestError
from manyheads.look.attention_data import (
    SIDES,
    Maps,
    attention_types,
    find_figure_heads,
    merge_into_words,
    stack_maps,
    tokens_by_side,
)
from manyheads.look.fonts import fonts_covering
from manyheads.look.plots import HeadLines, draw_grid, draw_heatmap, draw_lines, save_figure
from manyheads.look.words import tokens_to_words
from manyheads.plot_style import get_line_style, import_pyplot
from manyheads.translation import AttentionMaps

MAX_WORDS = 200  # of a side
GRID_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


def write_figures(attention: AttentionMaps, folder: Path) -> list[Path]:
    """Write every figure in every format, and return the paths."""
    import_pyplot()
    words = {side: tokens_to_words(tokens) for side, tokens in tokens_by_side(attention).items()}
    num_words = max(map(len, words.values()))
    if num_words > MAX_WORDS:
        raise RequestError(
            f"the sentence has {num_words} words, but figures show at most {MAX_WORDS}: use a shorter one, "
            f"or write a page"
        )
    paths = []
    with fonts_covering("".join(word for side in words.values() for word in side)):
        for name, figure in draw_figures(attention, words):
            paths += save_figure(figure, folder, name)
    return paths


def draw_figures(attention: AttentionMaps, words: dict[str, list[str]]) -> Iterator[tuple[str, Any]]:
    maps = {
        attention_type: merge_into_words(stack_maps(attention, attention_type), attention, attention_type)
        for attention_type in attention_types(attention)
    }
    if "encoder" in maps:
        yield from draw_paper_figures(maps["encoder"], attention, words["source"])
    for attention_type, maps_LHQK in maps.items():
        yield attention_type, draw_grid(maps_LHQK, f"{GRID_TITLES[attention_type]}: layer.head")
    names = [words[side] for side in SIDES["cross"]]
    mean_QK = maps["cross"][-1].mean(0)
    yield "alignment", draw_heatmap(mean_QK, names, "Cross-attention, mean of the last layer")


def draw_paper_figures(
    encoder: Maps, attention: AttentionMaps, words: list[str]
) -> Iterator[tuple[str, Any]]:
    """Draw Figures 3, 4 and 5 with the heads most like those of the paper."""
    heads = find_figure_heads(encoder, attention, "encoder")
    if not all(heads.values()):
        return
    far, sharp = heads["long"][0], select_heads(heads["sharp"])
    whole_layer = [(far["layer"], head) for head in range(encoder.shape[1])]
    word = words[far["row"]]
    yield (
        "figure-3",
        draw_lines(
            words,
            [make_lines(encoder, whole_layer, far["row"])],
            [f"Long-distance: “{word}” in layer {far['layer'] + 1}, all heads"],
            [[f"head {head + 1}" for _, head in whole_layer]],
        ),
    )
    row = heads["sharp"][0]["row"]
    yield (
        "figure-4",
        draw_lines(
            words,
            [make_lines(encoder, sharp[:1]), make_lines(encoder, sharp, row)],
            ["A sharp head", f"“{words[row]}” alone, with the two sharpest heads"],
            [name_heads(sharp[:1]), name_heads(sharp)],
        ),
    )
    structural = select_heads(heads["structural"])
    yield (
        "figure-5",
        draw_lines(
            words,
            [[line] for line in make_lines(encoder, structural)],
            ["Heads that follow the structure of the sentence", ""][: len(structural)],
            [[name] for name in name_heads(structural)],
        ),
    )


def select_heads(entries: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return layer and head of the best two."""
    return [(entry["layer"], entry["head"]) for entry in entries[:2]]


def name_heads(heads: Iterable[tuple[int, int]]) -> list[str]:
    return [f"layer {layer + 1}, head {head + 1}" for layer, head in heads]


def make_lines(encoder: Maps, heads: Sequence[tuple[int, int]], row: int | None = None) -> list[HeadLines]:
    """Return the lines of heads, each in a color and dash of its own."""
    styles = map(get_line_style, range(len(heads)))
    return [
        HeadLines(encoder[place], color, row, dash)
        for place, (color, dash) in zip(heads, styles, strict=True)
    ]
