"""It learns the built-in corpus: sentences that it never saw, to the letter."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from manyheads import demo
from manyheads.progress import Progress


def test_a_small_world_is_learned_to_the_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SIZES", {"train": 2500, "valid": 60, "test": 100})
    monkeypatch.setattr(demo, "WORDS", 3)
    monkeypatch.setattr(demo, "CONSTRUCTIONS", ("tense", "negation"))
    monkeypatch.setattr(demo, "VOCABULARY", 500)
    monkeypatch.setattr(demo, "MODEL", replace(demo.MODEL, d_model=64, d_ff=256))
    small = replace(demo.TRAINING, steps=200, warmup=40, checkpoint_every=100, validate_every=100)
    monkeypatch.setattr(demo, "TRAINING", small)
    found = demo.run_demo(tmp_path / "demo", "en-ko", 120, Progress)
    assert found is not None
    assert found.exact_match >= 0.9, found.rows[:5]
    assert found.bleu.value > 90
    assert (found.model / "manyheads.json").exists()
    assert found.page == tmp_path / "demo" / "attention.html"
    assert "sha256-" in found.page.read_text(encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.parametrize("pair", ["en-ko", "en-de"])
def test_the_demo_as_people_run_it_learns_nineteen_of_twenty(tmp_path: Path, pair: str) -> None:
    command = [sys.executable, "-m", "manyheads", "demo", "--pair", pair, "--out", f"{tmp_path}/demo"]
    done = subprocess.run([*command, "--seconds", "900"], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = re.search(r"500 held-out sentences: ([\d.]+)% exact, BLEU", done.stdout)
    assert found
    assert float(found[1]) >= 95
    assert done.stdout.count("\n  ") >= demo.SHOWN_SENTENCES
    assert f"open file://{tmp_path}/demo/attention.html in a browser" in done.stdout
