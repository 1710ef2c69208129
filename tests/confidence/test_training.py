"""Calibration at the end of a run."""

from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads import checkpoint, load, playground
from manyheads.data.store import Store
from manyheads.demo import prepare_corpus
from manyheads.errors import CheckpointError
from manyheads.train.calibrate import calibrate_model
from manyheads.train.log import read_log
from manyheads.train.run import train


def make_config(data: Path, **changes: Any) -> mh.Config:
    model = mh.TransformerConfig(layers=1, d_model=16, d_ff=32, heads=2)
    training = {"steps": 4, "warmup": 2, "checkpoint_every": 4, "bleu_sentences": 0, "card": False, **changes}
    decoding = mh.DecodingConfig(beam=1, max_extra_length=2)
    data_config = mh.DataConfig(folder=str(data), batch_tokens=500)
    return mh.Config(model=model, data=data_config, train=mh.TrainConfig(**training), decoding=decoding)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    corpus = playground.generate_corpus(
        "en-ko", train=300, valid=40, test=5, seed=1, constructions=["tense"], words=6
    )
    prepare_corpus(folder / "corpus", "en-ko", corpus, 500)
    return folder / "corpus" / "data"


def test_a_run_calibrates_its_model_and_its_weights_stay_the_same(data: Path, tmp_path: Path) -> None:
    train(make_config(data), tmp_path / "with", device="cpu")
    train(make_config(data, calibrate=False), tmp_path / "without", device="cpu")
    confidence = load(tmp_path / "with" / "model", device="cpu").translate("I go.").confidence
    assert confidence is not None
    assert not (tmp_path / "without" / "model" / checkpoint.CONFIDENCE).exists()
    weights = [(tmp_path / name / "model" / checkpoint.WEIGHTS).read_bytes() for name in ("with", "without")]
    assert weights[0] == weights[1]
    end = read_log(tmp_path / "with" / "log.jsonl")[-1]
    assert end["event"] == "end"
    assert end["calibration_seconds"] > 0
    assert 0 <= end["calibration_ece"] <= 1


def test_a_run_that_was_killed_while_it_calibrated_ends_when_it_is_resumed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("manyheads.train.validation.calibrate", die)
        with pytest.raises(KeyboardInterrupt):
            train(make_config(data), tmp_path / "run", device="cpu")
    assert load(tmp_path / "run" / "model", device="cpu").translate("I go.").confidence is None
    assert train(make_config(data), tmp_path / "run", device="cpu") == "steps"
    assert load(tmp_path / "run" / "model", device="cpu").translate("I go.").confidence is not None


def test_a_model_is_calibrated_with_its_own_data_only(data: Path, tmp_path: Path) -> None:
    train(make_config(data, calibrate=False), tmp_path / "run", device="cpu")
    model = tmp_path / "run" / "model"
    measures = calibrate_model(model, data, "cpu", lambda stage, done, total: None)
    assert "auroc.shuffled" in measures
    assert load(model, device="cpu").confidence is not None
    corpus = playground.generate_corpus("en-de", train=300, valid=40, test=5, seed=2, words=6)
    prepare_corpus(tmp_path / "other", "en-de", corpus, 500)
    with pytest.raises(CheckpointError, match="other subwords"):
        calibrate_model(model, tmp_path / "other" / "data", "cpu", lambda stage, done, total: None)


def test_blank_sources_are_nothing_to_calibrate_with(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(make_config(data, calibrate=False), tmp_path / "run", device="cpu")
    monkeypatch.setattr(Store, "read_text", lambda store, split: ([" "] * 40, ["."] * 40))
    with pytest.raises(mh.DataError, match="0 validation pairs with text of at most"):
        calibrate_model(tmp_path / "run" / "model", data, "cpu", lambda *_: None)
