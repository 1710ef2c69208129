"""Figures without a browser."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.look import figures

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")

NAMES = {"figure-3", "figure-4", "figure-5", "encoder", "decoder", "cross", "alignment"}


def has_hangul_font() -> bool:
    try:
        figures.font_with({"한"})
    except mh.RequestError:
        return False
    return True


@pytest.mark.skipif(not has_hangul_font(), reason="no font with Hangul here")
def test_every_figure_in_every_format_korean_too(
    attention: mh.Attention, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = figures.write_figures(attention, tmp_path / "figures")  # a missing glyph would be a warning
    assert {path.name for path in written} == {f"{one}.{two}" for one in NAMES for two in figures.FORMATS}
    for path in written:
        start = path.read_bytes()[:8]
        if path.suffix == ".png":
            assert start == b"\x89PNG\r\n\x1a\n"
        elif path.suffix == ".pdf":
            assert start.startswith(b"%PDF-")
        else:
            ElementTree.parse(path)
    monkeypatch.setattr(figures, "FORMATS", ("svg", "pdf"))
    for path in figures.write_figures(attention, tmp_path / "again"):
        first = tmp_path / "figures" / path.name
        assert path.read_bytes() == first.read_bytes(), "the same maps make the same files"


def test_lines_are_as_many_as_weights_that_can_be_seen(attention: mh.Attention) -> None:
    map_QK = attention.trace.encoder[0][0][0].numpy()
    words = ["w"] * len(map_QK)
    (axis,) = figures.lines_figure(words, [[(map_QK, "#123456", None)]]).axes
    assert len(axis.lines) == int((map_QK >= 0.01).sum())
    strongest = max(axis.lines, key=lambda line: line.get_alpha())
    assert strongest.get_alpha() == pytest.approx(map_QK.max())
    (alone,) = figures.lines_figure(words, [[(map_QK, "#123456", 1)]]).axes
    assert len(alone.lines) == int((map_QK[1] >= 0.01).sum())
    matplotlib.pyplot.close("all")


def test_a_missing_hangul_font_is_a_clear_error(
    attention: mh.Attention, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.font_manager import fontManager

    latin = [entry for entry in fontManager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(fontManager, "ttflist", latin)
    with pytest.raises(
        mh.RequestError, match=r"no font here has Hangul \(.\), so figures cannot show it: install"
    ):
        figures.write_figures(attention, tmp_path)
