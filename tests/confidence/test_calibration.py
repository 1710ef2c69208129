"""The logistic regression, the monotone map, and the file of a calibration."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from manyheads import checkpoint, load
from manyheads.checkpoint.arrays import read_arrays
from manyheads.confidence.calibration import (
    HELD_OUT,
    ConfidenceParameters,
    Examples,
    fit_calibration,
)
from manyheads.confidence.corruption import (
    CORRUPTIONS,
    corrupt_sources,
    list_foreign_sentences,
    make_letter_strings,
)
from manyheads.confidence.features import FEATURES
from manyheads.confidence.logistic import fit_logistic, fit_monotone, sigmoid
from manyheads.confidence.metrics import compute_auroc, compute_ece
from manyheads.confidence.source_model import SourceModel
from manyheads.errors import CheckpointError
from support.untrained_model import save_untrained_model

SOURCE_MODEL = SourceModel.train(np.tile([3, 4, 5, 2], 50), 320)


def make_examples(count: int = 1200, seed: int = 0) -> Examples:
    """Two informative features: the first decides on held-out text, the second tells corrupted sources."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, len(FEATURES)))
    is_held_out = np.arange(count) % 2 == 0
    features[~is_held_out, 1] -= 4
    adequate = random.random(count) < sigmoid(2 * features[:, 0] + 1)
    labels = np.where(is_held_out, adequate, 0.0).astype(np.float64)
    return Examples(features, labels, np.where(is_held_out, HELD_OUT, "shuffled"))


def test_the_regression_finds_the_known_optimum() -> None:
    """With one binary input and no penalty the optimum is the log odds of each side."""
    inputs = np.array([[0.0]] * 10 + [[1.0]] * 10)
    labels = np.array([1.0] * 3 + [0.0] * 7 + [1.0] * 8 + [0.0] * 2)
    slope, bias = fit_logistic(inputs, labels, np.ones(20), l2=0.0)
    assert bias == pytest.approx(np.log(3 / 7), abs=1e-5)
    assert slope + bias == pytest.approx(np.log(8 / 2), abs=1e-5)


def test_weights_count_like_copies_and_a_penalty_shrinks() -> None:
    random = np.random.default_rng(1)
    inputs, labels = random.normal(size=(60, 3)), (random.random(60) < 0.4).astype(np.float64)
    weights = random.integers(1, 4, 60)
    copied = fit_logistic(
        np.repeat(inputs, weights, 0), np.repeat(labels, weights), np.ones(weights.sum()), 1.0
    )
    weighted = fit_logistic(inputs, labels, weights.astype(np.float64), 1.0)
    assert weighted == pytest.approx(copied, abs=1e-6)
    smaller = fit_logistic(inputs, labels, weights.astype(np.float64), 100.0)
    assert np.abs(smaller[:-1]).sum() < np.abs(weighted[:-1]).sum()


def test_labels_that_can_be_separated_have_finite_coefficients() -> None:
    inputs = np.array([[-1.0], [1.0]])
    assert np.isfinite(fit_logistic(inputs, np.array([0.0, 1.0]), np.ones(2), 0.1)).all()
    assert np.isfinite(fit_logistic(inputs, np.ones(2), np.ones(2), 0.1)).all()


def test_falling_neighbors_are_pooled() -> None:
    scores, values = fit_monotone(
        np.array([3.0, 1, 2, 4]), np.array([0.0, 0, 1, 1]), np.array([3.0, 1, 1, 1])
    )
    assert scores.tolist() == [1, 2, 3, 4]
    assert values.tolist() == [0, 0.25, 0.25, 1]


def test_confidence_is_calibrated_on_held_out_text_and_low_on_the_rest() -> None:
    calibration = fit_calibration(make_examples(6000), SOURCE_MODEL, 0.0)
    others = make_examples(6000, seed=5)
    confidences = calibration.compute_confidence(others.features)
    held_out = others.is_held_out
    assert compute_ece(confidences[held_out], others.labels[held_out]) < 0.05
    assert calibration.measures["ece"] < 0.05
    assert compute_auroc(confidences, held_out) > 0.9
    assert confidences.min() >= 0
    assert confidences.max() <= 1


def test_confidence_rises_with_the_score_everywhere() -> None:
    calibration = fit_calibration(make_examples(), SOURCE_MODEL, 0.0)
    features = np.zeros((200, len(FEATURES)))
    features[:, 0] = np.linspace(-6, 0.8, 200)
    assert (np.diff(calibration.compute_confidence(features)) > 0).all()


def test_what_is_far_better_than_typical_gains_nothing() -> None:
    calibration = fit_calibration(make_examples(), SOURCE_MODEL, 0.0)
    features = np.zeros((2, len(FEATURES)))
    features[:, 0] = 2, 6
    good, unusual = calibration.compute_confidence(features)
    assert good == unusual


def test_without_log_p_there_is_no_confidence() -> None:
    calibration = fit_calibration(make_examples(), SOURCE_MODEL, 0.0)
    features = np.zeros((2, len(FEATURES)))
    features[1, 0] = np.nan
    assert np.isnan(calibration.compute_confidence(features)).tolist() == [False, True]


def test_labels_of_one_kind_alone_can_be_fitted() -> None:
    examples = make_examples(90)
    good = Examples(examples.features, examples.is_held_out.astype(np.float64), examples.groups)
    bad = Examples(examples.features, np.zeros(90), examples.groups)
    for own, bounds in ((good, (0.8, 1)), (bad, (0, 0.2))):
        confidences = fit_calibration(own, SOURCE_MODEL, 0.0).compute_confidence(own.features)
        assert bounds[0] <= np.median(confidences[own.is_held_out]) <= bounds[1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = save_untrained_model(tmp_path / "model")
    checkpoint.write_confidence(folder, fit_calibration(make_examples(), SOURCE_MODEL, 0.1).to_bytes())
    return folder


def test_the_file_returns_what_was_written(model: Path) -> None:
    calibration = fit_calibration(make_examples(), SOURCE_MODEL, 0.1)
    arrays = read_arrays(model / checkpoint.CONFIDENCE)
    read = ConfidenceParameters.from_arrays(arrays, "here")
    features = make_examples(seed=3).features
    assert read.compute_confidence(features) == pytest.approx(
        calibration.compute_confidence(features), abs=1e-5
    )
    assert read.measures == calibration.measures
    assert read.source_model.checks.tolist() == SOURCE_MODEL.checks.tolist()


def test_a_model_folder_stays_intact_and_keeps_its_card(tmp_path: Path) -> None:
    folder = save_untrained_model(tmp_path / "model")
    assert load(folder, device="cpu").translate("I go home.").confidence is None
    (folder / checkpoint.MODEL_CARD).write_text("a card", encoding="utf-8")
    before = checkpoint.read_info(folder)
    for _ in range(2):  # the second replaces the first
        checkpoint.write_confidence(folder, fit_calibration(make_examples(), SOURCE_MODEL, 0.1).to_bytes())
    assert checkpoint.read_info(folder) == before
    assert checkpoint.CONFIDENCE in checkpoint.read_model_manifest(folder)["files"]
    assert (folder / checkpoint.MODEL_CARD).read_text(encoding="utf-8") == "a card"
    assert load(folder, device="cpu").translate("I go home.").confidence is not None


def test_a_damaged_file_is_refused(model: Path) -> None:
    path = model / checkpoint.CONFIDENCE
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"confidence\.safetensors: damaged"):
        load(model, device="cpu")


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("knots"),
        lambda arrays: arrays.update(description=arrays["description"][:-3]),
        lambda arrays: arrays.update(coefficients=arrays["coefficients"][:-2]),
        lambda arrays: arrays.update(values=arrays["values"][:0], knots=arrays["knots"][:0]),
    ],
)
def test_a_file_with_other_contents_is_refused(
    model: Path, damage: Callable[[dict[str, object]], None]
) -> None:
    arrays = read_arrays(model / checkpoint.CONFIDENCE)
    damage(arrays)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="manyheads calibrate"):
        ConfidenceParameters.from_arrays(arrays, "here")


def test_an_ensemble_has_no_confidence(model: Path) -> None:
    assert load(model, model, device="cpu").translate("I go home.").confidence is None


def test_corruptions_are_seeded_and_change_the_sentence() -> None:
    sources = [f"나는 {n} 번 집에 갔다 그리고 왔다" for n in range(40)]
    for corruption in CORRUPTIONS:
        corrupted = corrupt_sources(sources, corruption, 10, seed=1)
        assert corrupted == corrupt_sources(sources, corruption, 10, seed=1)
        assert len(corrupted) == 10
        if corruption != "capitals":  # which Korean does not have
            assert all(text != sources[n] for n, text in corrupted)
    for n, text in corrupt_sources(sources, "shuffled", 10, seed=1):
        assert sorted(text.split()) == sorted(sources[n].split())


def test_off_domain_sentences_are_not_in_the_language_of_the_source() -> None:
    assert not any("약국" in text for text in list_foreign_sentences("ko"))
    assert any("약국" in text for text in list_foreign_sentences("en-US"))
    assert make_letter_strings(3, 1) == make_letter_strings(3, 1)
