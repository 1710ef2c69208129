"""The models that are installed with the package: small, licensed, and at work without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads as mh
from manyheads.checkpoint.manifest import MODEL_CARD, read_model_manifest
from manyheads.named_models.listing import measure_megabytes, summarize_models
from manyheads.named_models.resolution import BOX

MAX_MEGABYTES = 20
QUESTION, ANSWER = "Where is the train station?", "Wo ist der Bahnhof?"
FOLDERS = sorted(path.parent for path in BOX.glob("*/manyheads.json"))


@pytest.fixture(autouse=True)
def no_other_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHEADS_MODELS", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_model_of_the_box_is_small_and_its_card_says_what_it_was_made_of(folder: Path) -> None:
    assert read_model_manifest(folder)["quantization"] == "int8"
    assert measure_megabytes(folder) < MAX_MEGABYTES
    card = (folder / MODEL_CARD).read_text(encoding="utf-8")
    for section in ("## Training data", "## Scores", "## What it is not for"):
        assert section in card
    assert "CC BY" in card


def test_the_box_is_listed_with_its_scores() -> None:
    (summary,) = [model for model in summarize_models() if model.name == "en-de"]
    assert (summary.origin, summary.languages, summary.quantization) == ("box", "en to de", "int8")
    assert summary.scores.startswith("BLEU ")


def test_everyday_sentences_are_translated_from_python() -> None:
    translator = mh.load("en-de", device="cpu", engine="torch")
    translations = translator.translate([QUESTION, "I am tired."])
    texts = [translation.text for translation in translations]
    assert texts == [ANSWER, "Ich bin müde."]


def test_a_first_line_is_translated_on_the_command_line_without_a_network() -> None:
    command = [sys.executable, "-m", "manyheads", "translate", "en-de", "--json"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "http_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        command, input=f"{QUESTION}\n", capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    translation = json.loads(done.stdout)
    assert translation["text"] == ANSWER
    assert translation["confidence"] > 0.5
