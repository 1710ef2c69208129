"""Hostile lines through both engines: valid text without loops within the length limit."""

import warnings
from pathlib import Path

import pytest

import manyheads as mh
from hostile_text import make_hostile_lines
from manyheads.evaluate.stress import has_loop
from support.untrained_model import calibrate_untrained_model, save_untrained_model


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_hostile_lines_give_valid_text_within_the_limit(tmp_path: Path, engine: str) -> None:
    """The weights are random: the outputs are full of bytes that are no UTF-8."""
    pytest.importorskip(engine)
    folder = calibrate_untrained_model(save_untrained_model(tmp_path / "model"))
    translator = mh.load(folder, device="cpu", engine=engine)
    lines = make_hostile_lines(1000)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a sentence of")
        results = list(translator.stream(lines, beam=1))
    assert [result.source for result in results] == lines
    for result in results:
        result.text.encode()  # no lone surrogates
        assert "\ufffd" not in result.text or "\ufffd" in result.source or max(result.source) >= "\ud800"
        extra = translator.decoding.max_extra_length * max(1, result.sentences)
        assert len(result.tokens) <= len(result.source_tokens) + extra
        assert not result.text.count("\n")
    assert not [result.source for result in results if has_loop(result)]
    assert any("broken bytes removed" in result.notes for result in results)
    assert any("copied text repaired" in result.notes for result in results)
