"""Figures without a browser."""

import re
import shutil
import time
import warnings
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manyheads as mh
from manyheads.look import figures, fonts, plots
from manyheads.look.attention_data import tokens_by_side
from manyheads.look.colors import relative_luminance
from manyheads.look.words import readable_word, tokens_to_words
from manyheads.plot_style import get_line_style
from support.browser import skip_without_browser
from support.source_tree import ROOT

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

NAMES = {"figure-3", "figure-4", "figure-5", "encoder", "decoder", "cross", "alignment"}


def has_hangul_font() -> bool:
    try:
        fonts.find_font({"한"})
    except mh.RequestError:
        return False
    return True


def require_hangul_font() -> None:
    if not has_hangul_font():
        skip_without_browser("no font with Hangul is installed")


def test_every_figure_is_written_in_every_format(
    attention: mh.AttentionMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_hangul_font()
    written = figures.write_figures(attention, tmp_path / "figures")  # a missing glyph would be a warning
    assert {path.name for path in written} == {
        f"{name}.{suffix}" for name in NAMES for suffix in plots.FORMATS
    }
    for path in written:
        start = path.read_bytes()[:8]
        if path.suffix == ".png":
            assert start == b"\x89PNG\r\n\x1a\n"
        elif path.suffix == ".pdf":
            assert start.startswith(b"%PDF-")
        else:
            ElementTree.parse(path)
    monkeypatch.setattr(plots, "FORMATS", ("svg", "pdf"))
    for path in figures.write_figures(attention, tmp_path / "again"):
        first = tmp_path / "figures" / path.name
        assert path.read_bytes() == first.read_bytes(), "the same maps make the same files"


def draw(attention: mh.AttentionMaps) -> dict[str, Any]:
    words = {side: tokens_to_words(tokens) for side, tokens in tokens_by_side(attention).items()}
    return dict(figures.draw_figures(attention, words))


def test_figures_3_to_5_have_a_title_and_a_key_of_their_lines(attention: mh.AttentionMaps) -> None:
    drawn = draw(attention)
    titles = {
        name: [axis.get_title(loc="left") for axis in drawn[name].axes]
        for name in ("figure-3", "figure-4", "figure-5")
    }
    assert re.fullmatch("Long-distance: “.+” in layer [12], all heads", titles["figure-3"][0])
    assert titles["figure-4"][0] == "A sharp head"
    assert re.fullmatch("“.+” alone, with the two sharpest heads", titles["figure-4"][1])
    assert titles["figure-5"] == ["Heads that follow the structure of the sentence", ""]
    (axis,) = drawn["figure-3"].axes
    assert read_key(axis) == [f"head {n}" for n in (1, 2, 3, 4)]
    for name in ("figure-4", "figure-5"):
        for axis in drawn[name].axes:
            assert all(re.fullmatch("layer [12], head [1-4]", entry) for entry in read_key(axis))
    for name in titles:
        for axis in drawn[name].axes:
            for handle, lines in zip(axis.get_legend().get_lines(), axis.collections, strict=True):
                color = pyplot.matplotlib.colors.to_rgb(handle.get_color())
                assert tuple(lines.get_colors()[0][:3]) == pytest.approx(color)
                assert (lines.get_linestyle()[0][1] is None) == (handle.get_linestyle() == "-")
    pyplot.close("all")


def read_key(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_lines_of_eight_heads_differ_in_color_and_in_dash_or_luminance() -> None:
    styles = [get_line_style(head) for head in range(8)]
    for (color, dash), (other, other_dash) in combinations(styles, 2):
        assert color != other
        dark, light = sorted(map(measure_luminance, (color, other)))
        assert dash != other_dash or (light + 0.05) / (dark + 0.05) > 1.5, (color, other)
    assert len(set(map(get_line_style, range(16)))) == 16
    assert max(measure_luminance(color) for color, _ in styles) < 0.3, "visible on white"


def measure_luminance(color: str) -> float:
    return relative_luminance(pyplot.matplotlib.colors.to_rgb(color))


def test_special_tokens_have_the_labels_of_the_pages(attention: mh.AttentionMaps) -> None:
    script = (ROOT / "src/manyheads/look/assets/token_text.js").read_text(encoding="utf-8")
    labels = re.search(r'en: \{ beginToken: "(.+?)", endToken: "(.+?)"', script)
    assert labels is not None
    drawn = draw(attention)
    for name in ("figure-3", "figure-4", "figure-5", "alignment"):
        axis = drawn[name].axes[0]
        texts = [text.get_text() for text in (*axis.texts, *axis.get_xticklabels(), *axis.get_yticklabels())]
        assert not {"<s>", "</s>"} & set(texts), name
        assert labels[2] in texts, name
    assert [readable_word(word) for word in ("<s>", "</s>", "home")] == [*labels.groups(), "home"]
    pyplot.close("all")


def test_there_is_a_line_for_every_visible_weight(attention: mh.AttentionMaps) -> None:
    map_QK = attention.trace.encoder[0][0][0].numpy()
    words = ["w"] * len(map_QK)
    (axis,) = plots.draw_lines(words, [[plots.HeadLines(map_QK, "#123456")]]).axes
    (lines,) = axis.collections
    assert len(lines.get_segments()) == int((map_QK >= 0.01).sum())
    assert max(color[3] for color in lines.get_colors()) == pytest.approx(map_QK.max())
    (single,) = plots.draw_lines(words, [[plots.HeadLines(map_QK, "#123456", 1)]]).axes
    assert len(single.collections[0].get_segments()) == int((map_QK[1] >= 0.01).sum())
    pyplot.close("all")


def test_a_missing_hangul_font_is_a_clear_error(
    attention: mh.AttentionMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.font_manager import fontManager

    own = [entry for entry in fontManager.ttflist if "mpl-data" in entry.fname]  # all that matplotlib brings
    assert any("Last Resort" in entry.name for entry in own)
    monkeypatch.setattr(fontManager, "ttflist", own)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    with pytest.raises(
        mh.RequestError, match=r"no installed font has Hangul \(.\), so figures cannot show it: install"
    ):
        figures.write_figures(attention, tmp_path)


def test_a_font_that_was_installed_after_matplotlib_listed_the_fonts_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import get_data_path
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = [entry for entry in fontManager.ttflist if entry.name == fonts.DEFAULT_FONT]
    monkeypatch.setattr(fontManager, "ttflist", listed)
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", partial(findSystemFonts, [str(tmp_path)]))
    character = "\ue000"  # for private use: the default font does not have it
    with pytest.raises(mh.RequestError, match="no installed font has"):
        fonts.find_font({character})
    shutil.copy(Path(get_data_path()) / "fonts/ttf/STIXNonUni.ttf", tmp_path)
    (tmp_path / "broken.ttf").write_bytes(b"not a font")
    assert fonts.find_font({character}) == "STIXNonUnicode"


def test_a_missing_hangul_font_fails_with_ci_where_it_can_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.has_hangul_font", lambda: False)
    monkeypatch.setenv("CI", "true")
    for value, outcome in (("1", pytest.skip.Exception), ("", pytest.fail.Exception)):
        monkeypatch.setenv("MANYHEADS_NO_BROWSER", value)
        with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="Hangul") as raised:
            require_hangul_font()
        assert raised.type is outcome, "a skip would pass unnoticed"


@pytest.mark.parametrize("text", ["a \U0001f642 b", "a\u200d\ufe0f", "\x01", "a \U0010fffd", "$a$"])
def test_characters_without_a_font_are_an_error_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(mh.RequestError), fonts.fonts_covering(text):
            plots.draw_lines(
                [text], [[plots.HeadLines(np.eye(1, dtype=np.float32), "#123456")]]
            ).canvas.draw()
    pyplot.close("all")


def test_a_weight_of_one_is_written_as_one() -> None:
    map_QK = np.array([[1.0, 0.0], [0.004, 0.996]])
    (axis,) = plots.draw_heatmap(map_QK, ["ab", "cd"]).axes
    assert [text.get_text() for text in axis.texts] == ["1", "1"]
    pyplot.close("all")


def list_texts(figure: Any) -> list[Any]:
    texts = [*figure.texts, *([figure._suptitle] if figure._suptitle else [])]
    for axis in figure.axes:
        texts += [*axis.texts, axis.title, axis._left_title]
        if legend := axis.get_legend():
            texts += legend.get_texts()
        if axis.axison:
            texts += [*axis.get_xticklabels(), *axis.get_yticklabels()]
    return [text for text in texts if text.get_text()]


def find_cut_texts(figure: Any) -> list[str]:
    """Return the texts that leave the figure, by more than the width of a line."""
    figure.canvas.draw()
    renderer, page = figure.canvas.get_renderer(), figure.bbox.padded(1)
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in list_texts(figure)}
    return [text for text, box in boxes.items() if not (page.contains(*box.p0) and page.contains(*box.p1))]


@pytest.mark.parametrize(
    "words", [["I", "[end]"], ["internationalization" * 2, "go", "counterrevolutionaries"]]
)
def test_no_text_leaves_a_figure(words: list[str]) -> None:
    map_QK = np.eye(len(words), dtype=np.float32)
    lines = [plots.HeadLines(map_QK, "#123456", 0)]
    title = "Long-distance: “I” in layer 1, all heads"
    key = [f"layer {n}, head {n}" for n in range(1, 9)]
    drawn = [
        plots.draw_lines(words, [lines * 8, lines], [title, "A title"], [key, key[:1]]),
        plots.draw_lines(words, [lines], [], [["the name of a head, of all that has a name"]]),
        plots.draw_grid(map_QK[None, None], title),
        plots.draw_heatmap(map_QK, [words, words[::-1]], title),
    ]
    for figure in drawn:
        assert len(list_texts(figure)) > 1
        assert find_cut_texts(figure) == []
    pyplot.close("all")


def test_no_text_leaves_the_figures_of_a_sentence(attention: mh.AttentionMaps) -> None:
    require_hangul_font()
    with fonts.fonts_covering("".join(word for side in tokens_by_side(attention).values() for word in side)):
        cut = {name: find_cut_texts(figure) for name, figure in draw(attention).items()}
    assert cut == {name: [] for name in NAMES}
    pyplot.close("all")


def test_values_in_a_heatmap_can_be_read_at_every_weight() -> None:
    weights = np.linspace(0.01, 1, 100).reshape(10, 10)
    (axis,) = plots.draw_heatmap(weights, ["abcdefghij"] * 2).axes
    (image,) = axis.images
    for text, weight in zip(axis.texts, weights.flat, strict=True):
        back, front = (measure_luminance(color) for color in (image.cmap(weight), text.get_color()))
        dark, light = sorted((back, front))
        assert (light + 0.05) / (dark + 0.05) > 4.5, weight
    pyplot.close("all")


def test_figures_of_a_long_sentence_are_fast() -> None:
    words = ["w"] * figures.MAX_WORDS
    map_QK = np.full((len(words), len(words)), 1 / 50)
    start = time.process_time()
    (axis,) = plots.draw_lines(words, [[plots.HeadLines(map_QK, "#123456")]]).axes
    assert len(axis.collections[0].get_segments()) == map_QK.size
    (axis,) = plots.draw_heatmap(map_QK, [words, words]).axes
    assert not axis.texts, "values would not be legible"
    assert time.process_time() - start < 5
    pyplot.close("all")


def test_a_sentence_too_long_for_figures_is_a_clear_error(
    attention: mh.AttentionMaps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(figures, "MAX_WORDS", 3)
    with pytest.raises(mh.RequestError, match="the sentence has 6 words, but figures show at most 3"):
        figures.write_figures(attention, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()
