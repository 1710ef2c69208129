"""The demo learns the built-in corpus: it translates unseen sentences exactly."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import manyheads as mh
from manyheads import demo
from manyheads.progress import Progress
from support.everyday_sentences import EVERYDAY

MAX_PAGE_BYTES = 2_500_000  # the translator in a single file


def test_a_small_demo_translates_unseen_sentences_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "SPLIT_SIZES", {"train": 2500, "valid": 60, "test": 100})
    monkeypatch.setattr(demo, "WORDS_PER_CLASS", 3)
    monkeypatch.setattr(demo, "CONSTRUCTIONS", ("tense", "negation"))
    monkeypatch.setattr(demo, "VOCAB_SIZE", 500)
    monkeypatch.setattr(demo, "MODEL", replace(demo.MODEL, d_model=64, d_ff=256))
    small = replace(demo.TRAINING, steps=200, warmup=40, checkpoint_every=100, validate_every=100)
    monkeypatch.setattr(demo, "TRAINING", small)
    result = demo.run_demo(tmp_path / "demo", "en-ko", 120, Progress)
    assert result is not None
    assert result.exact_match >= 0.9, result.rows[:5]
    assert result.bleu.value > 90
    assert (result.model / "manyheads.json").exists()
    assert result.page == tmp_path / "demo" / "translator.html"
    assert result.num_words < 100
    assert result.outside.confidence is not None
    assert result.outside.confidence < 0.5, "outside the grammar"
    assert "sha256-" in result.page.read_text(encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.parametrize("pair", ["en-ko", "en-de"])
def test_the_demo_command_translates_95_percent_exactly(tmp_path: Path, pair: str) -> None:
    command = [sys.executable, "-m", "manyheads", "demo", "--pair", pair, "--out", f"{tmp_path}/demo"]
    done = subprocess.run([*command, "--seconds", "900"], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    match = re.search(r"500 held-out sentences: ([\d.]+)% exact, BLEU", done.stdout)
    assert match
    assert float(match[1]) >= 95
    assert done.stdout.count("\n  ") >= demo.SHOWN_SENTENCES
    assert done.stdout.splitlines()[-1].strip() == f"file://{tmp_path}/demo/translator.html"
    assert (tmp_path / "demo" / "translator.html").stat().st_size < MAX_PAGE_BYTES
    assert re.search(r"has only \d+ different words; others are translated wrongly", done.stdout)
    confidence = re.fullmatch(r".*\(confidence (0\.\d\d)\)", done.stdout.splitlines()[-4])
    assert confidence
    assert float(confidence[1]) < 0.5
    translator = mh.load(tmp_path / "demo" / "run" / "model", device="cpu")
    inside = (tmp_path / "demo" / "test.en").read_text(encoding="utf-8").splitlines()
    assert share_flagged(translator, inside) <= 0.02, "inside its grammar"
    assert share_flagged(translator, EVERYDAY) >= 0.95, "outside its grammar"


def share_flagged(translator: mh.Translator, sentences: list[str]) -> float:
    confidences = [translation.confidence for translation in translator.translate(sentences)]
    return sum(own is not None and own < 0.5 for own in confidences) / len(confidences)
