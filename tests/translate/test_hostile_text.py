"""Hostile lines through both engines: valid text within the length limit, and what must survive does."""

import warnings
from pathlib import Path

import pytest

import manyheads as mh
from hostile_text import make_hostile_lines
from support.untrained_model import save_untrained_model


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_hostile_lines_give_valid_text_within_the_limit(tmp_path: Path, engine: str) -> None:
    """The weights are random: the outputs are full of bytes that are no UTF-8."""
    pytest.importorskip(engine)
    translator = mh.load(save_untrained_model(tmp_path / "model"), device="cpu", engine=engine)
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
    assert any("broken bytes removed" in result.notes for result in results)
    assert any("copied text repaired" in result.notes for result in results)
