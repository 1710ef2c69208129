"""The model card: what training writes at its end, and `manyheads card` again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint
from manyheads.data.store import Store
from manyheads.errors import CheckpointError
from manyheads.evaluate.bleu import Score
from manyheads.evaluate.stress_results import (
    Calibration,
    CopyRow,
    Failures,
    StressReport,
    StressRow,
    WordRow,
)
from manyheads.evaluate.weaknesses import list_weaknesses
from manyheads.presets import PRESETS
from manyheads.train import model_card
from manyheads.train.model_card import find_license, format_recipe, write_model_card
from manyheads.train.run import train
from support.small_run import make_config


@pytest.fixture(scope="module")
def carded_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("card") / "run"
    assert train(make_config(data, steps=6, card=True), run, device="cpu") == "steps"
    return run


def test_training_writes_a_card_beside_the_weights(carded_run: Path) -> None:
    text = (carded_run / "model" / "model_card.md").read_text(encoding="utf-8")
    assert text.startswith("# Translation from en to ko\n")
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Scores", "What it is not for", "Stress tests", "Training data", "Recipe", "Training", "License",
    ]  # fmt: skip
    assert "- test, 7 of 7 lines" in text
    assert "tok:char" in text
    assert "| capitals\\* | 7 |" in text
    assert "Not for text of another kind than its training data (a)" in text
    assert "nor from ko to en" in text
    assert "| a | 1 | 144 | 130 |" in text
    assert "| `model.d_model` | 16 | " in text
    assert "model of step 6 of 6" in text
    assert "hardware: " in text
    assert "- a: not stated" in text
    assert str(carded_run) not in text


def test_the_card_is_no_part_of_the_manifest(carded_run: Path, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(carded_run, run)
    card = run / "model" / "model_card.md"
    card.write_text("edited", encoding="utf-8")
    assert checkpoint.read_info(run / "model").step == 6
    assert train(make_config(data, steps=6, card=True), run, device="cpu") == "steps"  # the model is replaced
    assert card.read_text(encoding="utf-8").startswith("# Translation")


def test_a_run_killed_while_it_writes_the_card_resumes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    config = make_config(data, steps=6, card=True)
    with monkeypatch.context() as patch:
        patch.setattr(model_card, "write_text_atomically", kill)
        with pytest.raises(Killed):
            train(config, tmp_path / "run", device="cpu")
    assert checkpoint.read_info(tmp_path / "run" / "model").step == 6
    assert train(config, tmp_path / "run", device="cpu") == "steps"
    assert (tmp_path / "run" / "model" / "model_card.md").exists()


def test_a_card_that_fails_leaves_the_run_finished(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise mh.RequestError("no tokenizer")

    monkeypatch.setattr(model_card, "run_stress_tests", fail)
    assert train(make_config(data, steps=6, card=True), tmp_path / "run", device="cpu") == "steps"
    assert "no model card (no tokenizer)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "model" / "model_card.md").exists()


def test_a_card_can_be_switched_off(finished_run: Path) -> None:
    assert not (finished_run / "model" / "model_card.md").exists()


def test_the_command_writes_the_card_again(carded_run: Path, data: Path, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "manyheads", "card", str(carded_run / "model"), "--device", "cpu"]
    options = ["--license", "CC BY 2.0 FR", "--out", str(tmp_path / "한국어 card.md"), "--json"]
    done = subprocess.run([*call, *options], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    path = Path(json.loads(done.stdout)["card"])
    assert path == tmp_path / "한국어 card.md"
    text = path.read_text(encoding="utf-8")
    assert "Training data: CC BY 2.0 FR" in text
    assert "weights: " in text  # from the log of the run that the model is in


def test_a_card_needs_the_data_of_the_model(carded_run: Path, tmp_path: Path) -> None:
    from manyheads.config import Recipe
    from manyheads.data.prepare import prepare

    for code, word in (("en", "other"), ("ko", "다른")):
        lines = "".join(f"{word} {n} {word}\n" for n in range(60))
        (tmp_path / f"b.{code}").write_text(lines, encoding="utf-8")
    files = [f"{tmp_path}/b.en", f"{tmp_path}/b.ko"]
    tables = {"train": [{"files": files}], "subwords": {"vocab_size": 300}, "corpus": {"hold_out": 3}}
    prepare(Recipe.from_mapping(tables), tmp_path / "data")
    with pytest.raises(CheckpointError, match="subwords"):
        write_model_card(carded_run / "model", Store.open(tmp_path / "data"), device="cpu")


def test_the_recipe_is_a_difference_from_the_nearest_preset() -> None:
    assert list(format_recipe(PRESETS["base"])) == ["The preset `base`."]
    changed = replace(PRESETS["big"], train=replace(PRESETS["big"].train, steps=7))
    text = "\n".join(format_recipe(changed))
    assert "preset `big`" in text
    assert "| `train.steps` | 7 | 300000 |" in text
    assert text.count("\n| `") == 1


def test_licenses_of_fetched_corpora_are_known(tmp_path: Path) -> None:
    from manyheads.text.datasets.fetched import FetchedCorpus

    assert find_license([tmp_path / "train.en"]) is None
    FetchedCorpus(
        "c", "en-ko", "C", "CC0", "https://example.org", "2026-11-17", {}, tmp_path
    ).write_manifest()
    assert find_license([tmp_path / "train.en"]) == "CC0 (https://example.org)"


# ---- weaknesses


def make_row(name: str, chrf: float, clean: float = 60.0) -> StressRow:
    bleu = Score("BLEU", chrf / 2, "signature")
    return StressRow(name, "", 100, False, bleu, Score("chrF", chrf, "signature"), clean, Failures(100))


SOUND = StressReport(
    languages=("en", "ko"),
    engine="torch",
    lines=100,
    seed=1,
    rows=[make_row("clean", 60.0), make_row("capitals", 59.0)],
    skipped=[],
    copies=[CopyRow("URL", 100, 100, [])],
    words=WordRow(100, 100, []),
    failures=Failures(outputs=1000),
    calibration=Calibration(100, 40, 0.9, 0.9, 0.01, 0.9, 0.95, [1.0], [0.4]),
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda report: report, []),
        (
            lambda report: replace(report, rows=[report.clean, make_row("capitals", 29.0)]),
            ["Not for text in capitals: chrF 29.0 instead of 60.0."],
        ),
        (
            lambda report: replace(report, rows=[report.clean, make_row("typos", 40.0)]),
            ["Weak on text with typos: chrF 40.0 instead of 60.0."],
        ),
        (
            lambda report: replace(report, rows=[make_row("clean", 30.0, 30.0)]),
            ["Not without review: chrF is 30.0 even on clean text like that of its training."],
        ),
        (
            lambda report: replace(report, copies=[CopyRow("URL", 100, 40, [])]),
            ["Not for text with tokens that must be kept: so many came out intact: URL 40%."],
        ),
        (
            lambda report: replace(report, failures=Failures(outputs=1000, loops=5)),
            ["Not without a check of its output: of 10,000 outputs of these tests, loops 50."],
        ),
        (
            lambda report: replace(report, words=WordRow(100, 50, [])),
            ["Not as a dictionary: 50 of 100 single words became a sentence, a loop or nothing."],
        ),
        (
            lambda report: replace(report, calibration=None),
            ["It does not say how sure it is: the model has no confidences."],
        ),
    ],
)
def test_weaknesses_are_those_that_were_measured(
    change: Callable[[StressReport], StressReport], expected: list[str]
) -> None:
    assert list_weaknesses(change(SOUND)) == expected
