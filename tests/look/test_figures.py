"""Figures without a browser."""

import time
import warnings
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import manyheads as mh
from manyheads.look import figures, fonts, plots

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")

NAMES = {"figure-3", "figure-4", "figure-5", "encoder", "decoder", "cross", "alignment"}


def has_hangul_font() -> bool:
    try:
        fonts.find_font({"한"})
    except mh.RequestError:
        return False
    return True


@pytest.mark.skipif(not has_hangul_font(), reason="no font with Hangul is installed")
def test_every_figure_is_written_in_every_format(
    attention: mh.AttentionMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_there_is_a_line_for_every_visible_weight(attention: mh.AttentionMaps) -> None:
    map_QK = attention.trace.encoder[0][0][0].numpy()
    words = ["w"] * len(map_QK)
    (axis,) = plots.draw_lines(words, [[(map_QK, "#123456", None)]]).axes
    (lines,) = axis.collections
    assert len(lines.get_segments()) == int((map_QK >= 0.01).sum())
    assert max(color[3] for color in lines.get_colors()) == pytest.approx(map_QK.max())
    (single,) = plots.draw_lines(words, [[(map_QK, "#123456", 1)]]).axes
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


@pytest.mark.parametrize("text", ["a \U0001f642 b", "a\u200d\ufe0f", "\x01", "a \U0010fffd", "$a$"])
def test_characters_without_a_font_are_an_error_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(mh.RequestError), fonts.fonts_covering(text):
            plots.draw_lines([text], [[(np.eye(1, dtype=np.float32), "#123456", None)]]).canvas.draw()
    pyplot.close("all")


def test_a_weight_of_one_is_written_as_one() -> None:
    map_QK = np.array([[1.0, 0.0], [0.004, 0.996]])
    (axis,) = plots.draw_heatmap(map_QK, ["ab", "cd"]).axes
    assert [text.get_text() for text in axis.texts] == ["1", "1"]
    pyplot.close("all")


def test_figures_of_a_long_sentence_are_fast() -> None:
    words = ["w"] * figures.MAX_WORDS
    map_QK = np.full((len(words), len(words)), 1 / 50)
    start = time.process_time()
    (axis,) = plots.draw_lines(words, [[(map_QK, "#123456", None)]]).axes
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
