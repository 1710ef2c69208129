"""The probability that a translation is adequate, from its features.

Two steps: a logistic regression ranks translations, fitted on held-out, corrupted and off-domain sources; a
monotone map turns its scores into probabilities that hold on held-out text. A translation is adequate if its
chrF against the reference is at least CHRF_THRESHOLD. Whatever comes of shuffled words and of text of no
domain counts as not adequate.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.features import FEATURES, FeatureExtractor, PieceTable
from manyheads.confidence.logistic import fit_logistic, fit_monotone, sigmoid
from manyheads.confidence.metrics import MAX_BINS, MIN_BIN, compute_auroc, compute_ece
from manyheads.confidence.ragged import Floats
from manyheads.confidence.source_model import SourceModel
from manyheads.errors import CheckpointError
from manyheads.text.subwords import SubwordPair

FORMAT = 1
CHRF_THRESHOLD = 40.0
L2 = 1.0  # of the standardized coefficients
MAX_DEVIATION = 8.0  # standard deviations from the mean of held-out text that count
MAX_CREDIT = 1.0  # of them in favor of a translation
OTHER_SHARE = 0.05  # weight of all corrupted and off-domain examples together in the monotone map
SMOOTHING_BINS = 16  # of the monotone map
SIGMOID_SHARE = 0.02  # of the sigmoid in the map, so that it rises everywhere
HELD_OUT_PARTS = 3  # every third example is left out to measure the calibration
HELD_OUT = "held-out"  # the group of text like that of training
MAX_LOG_RATIO = 10.0  # of target to source pieces
ARRAYS = ("means", "scales", "coefficients", "knots", "values")


@dataclass(frozen=True, eq=False)
class ConfidenceParameters:
    """A model's confidence: all that its file holds."""

    source_model: SourceModel
    log_length_ratio: float
    means: Floats  # [F] of held-out text
    scales: Floats  # [F]
    coefficients: Floats  # [F + 1], the bias last
    knots: Floats  # [K] scores, rising
    values: Floats  # [K] their probabilities
    measures: dict[str, float]  # on examples that were not fitted

    def score(self, features_NF: Floats) -> Floats:
        """Return the score of the logistic regression, by which translations are ranked."""
        scaled = (features_NF - self.means) / self.scales
        return apply_coefficients(np.nan_to_num(scaled), self.coefficients)

    def compute_confidence(self, features_NF: Floats) -> Floats:
        """Return the probability that each translation is adequate; nan where its log p is unknown."""
        scores = self.score(features_NF)
        mapped = np.interp(scores, self.knots, self.values)
        confidences = (1 - SIGMOID_SHARE) * mapped + SIGMOID_SHARE * sigmoid(scores)
        return np.where(np.isnan(features_NF).any(1), np.nan, confidences)

    # ---- the file

    def to_bytes(self) -> bytes:
        from safetensors.numpy import save

        description = {
            "format": FORMAT,
            "features": FEATURES,
            "chrf": CHRF_THRESHOLD,
            "measures": self.measures,
        }
        text = np.frombuffer(json.dumps(description).encode(), np.uint8)
        own = {name: np.asarray(getattr(self, name), np.float32) for name in ARRAYS}
        ratio = np.array([self.log_length_ratio], np.float32)
        return save({"description": text, "length_ratio": ratio, **own, **self.source_model.to_arrays()})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], where: str) -> "ConfidenceParameters":
        """Return what a file holds; `where` names it in messages."""
        remedy = "calibrate the model again (manyheads calibrate MODEL --data DATA)"
        try:
            description = json.loads(bytes(arrays["description"]))
            number, features = description["format"], tuple(description["features"])
            if number != FORMAT or features != FEATURES:
                raise CheckpointError(
                    f"{where}: format {number}, but this version reads format {FORMAT}: {remedy}"
                )
            own = {name: arrays[name].astype(np.float64) for name in ARRAYS}
            ratio = float(arrays["length_ratio"][0])
            source_model = SourceModel.from_arrays(arrays)
            check_shapes(own)
            check_values(own, ratio)
            measures = {str(name): float(value) for name, value in description["measures"].items()}
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError):
            raise CheckpointError(f"{where}: not a calibration, or damaged: {remedy}") from None
        return cls(source_model, ratio, **own, measures=measures)


@dataclass(frozen=True, eq=False)
class ConfidenceModel:
    """A calibration with the vocabularies of its model."""

    calibration: ConfidenceParameters
    subwords: SubwordPair
    languages: tuple[str, str]  # source and target

    def __post_init__(self) -> None:
        num_pieces, known = len(self.subwords.source), len(self.calibration.source_model.unigrams)
        if known < num_pieces:
            raise CheckpointError(
                f"the calibration knows {known:,} source pieces, but the model has {num_pieces:,}: calibrate "
                f"it again (manyheads calibrate MODEL --data DATA)"
            )

    @cached_property
    def extractor(self) -> FeatureExtractor:
        source, target = self.subwords.source, self.subwords.target
        return FeatureExtractor(
            self.calibration.source_model,
            PieceTable.of(source, self.languages[0]),
            PieceTable.of(target, self.languages[1]),
            self.calibration.log_length_ratio,
        )

    def compute(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], log_p: Sequence[float]
    ) -> Floats:
        """Return the confidence of each translation. Sources end with the end token, outputs do not."""
        return self.calibration.compute_confidence(self.extractor.compute(sources, outputs, log_p))


def check_shapes(arrays: Mapping[str, Floats]) -> None:
    """Raise a ValueError if arrays do not fit together."""
    shapes = {"means": len(FEATURES), "scales": len(FEATURES), "coefficients": len(FEATURES) + 1}
    shapes["values"] = max(1, len(arrays["knots"]))
    for name, length in shapes.items():
        if arrays[name].shape != (length,):
            raise ValueError(name)


def check_values(arrays: Mapping[str, Floats], log_length_ratio: float) -> None:
    """Raise a ValueError if numbers are not those of a calibration."""
    if not abs(log_length_ratio) <= MAX_LOG_RATIO or not all(
        np.isfinite(own).all() for own in arrays.values()
    ):
        raise ValueError("not finite")
    if (arrays["scales"] <= 0).any() or (np.diff(arrays["knots"]) < 0).any():
        raise ValueError("scales must be greater than 0, and knots must rise")
    if (arrays["values"] < 0).any() or (arrays["values"] > 1).any():
        raise ValueError("values must be probabilities")


# ---- fitting


@dataclass(frozen=True, eq=False)
class Examples:
    """Translations whose quality is known."""

    features: Floats  # [N, F]
    labels: Floats  # [N] 1 if adequate
    groups: NDArray[np.str_]  # [N] HELD_OUT, or the kind of corruption

    def select(self, chosen: NDArray[np.bool_]) -> "Examples":
        return Examples(self.features[chosen], self.labels[chosen], self.groups[chosen])

    @property
    def is_held_out(self) -> NDArray[np.bool_]:
        return np.asarray(self.groups == HELD_OUT)


def fit_calibration(
    examples: Examples, source_model: SourceModel, log_length_ratio: float
) -> ConfidenceParameters:
    """Fit all examples; the measures are those of a fit of two thirds on the last third."""
    is_left = np.arange(len(examples.labels)) % HELD_OUT_PARTS == HELD_OUT_PARTS - 1
    trial = fit_parts(examples.select(~is_left), source_model, log_length_ratio)
    measures = measure(trial, examples.select(is_left))
    return replace(fit_parts(examples, source_model, log_length_ratio), measures=measures)


def fit_parts(examples: Examples, source_model: SourceModel, log_length_ratio: float) -> ConfidenceParameters:
    held_out = examples.features[examples.is_held_out]
    means, scales = held_out.mean(0), np.maximum(held_out.std(0), min_scales(examples.features))
    scaled = np.clip((examples.features - means) / scales, -MAX_DEVIATION, MAX_DEVIATION)
    _, inverse, counts = np.unique(examples.is_held_out, return_inverse=True, return_counts=True)
    balanced = (len(inverse) / len(counts) / counts)[inverse]  # both kinds count the same
    coefficients = fit_logistic(scaled, examples.labels, balanced, L2)
    scores = apply_coefficients(scaled, coefficients)
    weights = np.where(
        examples.is_held_out, 1.0, OTHER_SHARE * len(held_out) / max(1, len(scores) - len(held_out))
    )
    knots, values = fit_map(scores, examples.labels, weights)
    return ConfidenceParameters(
        source_model, log_length_ratio, means, scales, coefficients, knots, values, {}
    )


def apply_coefficients(scaled_NF: Floats, coefficients: Floats) -> Floats:
    """Return scores. A feature that is better than typical by more than MAX_CREDIT deviations counts as that.

    What is unlike held-out text may not gain by it: such as a source far longer than those that went well.
    """
    terms = np.clip(scaled_NF, -MAX_DEVIATION, MAX_DEVIATION) * coefficients[:-1]
    credit = MAX_CREDIT * np.abs(coefficients[:-1])
    return np.asarray(np.minimum(terms, credit).sum(1) + coefficients[-1])


def min_scales(features_NF: Floats) -> Floats:
    """Return a lower bound of the scales: a share that is 0 in all held-out text does not deviate."""
    return np.asarray(np.maximum(0.1 * features_NF.std(0), 1e-3))


def fit_map(scores: Floats, labels: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return a rising map from scores to probabilities, linear between the means of some bins.

    A bin's share of adequate translations is drawn to that of the logistic curve of the scores by the weight
    of two examples, so that few examples make no 0 and no 1.
    """
    slope, bias = fit_logistic(scores[:, None], labels, weights, 1e-3)
    order = np.argsort(scores, kind="stable")
    mass = np.cumsum(np.sqrt(weights[order]))  # bins are narrower where there is more weight, but not only
    edges = np.searchsorted(mass, np.linspace(0, mass[-1], SMOOTHING_BINS + 1)[1:-1])
    bins = [part for part in np.split(order, edges) if len(part)]
    own = np.array([weights[part].sum() for part in bins])
    centers = np.array([np.average(scores[part], weights=weights[part]) for part in bins])
    curve = sigmoid(max(slope, 1e-3) * centers + bias)
    shares = (np.array([weights[part] @ labels[part] for part in bins]) + 2 * curve) / (own + 2)
    return fit_monotone(centers, shares, own)


def measure(calibration: ConfidenceParameters, examples: Examples) -> dict[str, float]:
    """Return ECE on held-out text, AUROC of adequate against not, and of held-out text against each group."""
    confidences = calibration.compute_confidence(examples.features)
    held_out, labels = examples.is_held_out, examples.labels
    num_bins = min(MAX_BINS, max(2, int(held_out.sum()) // MIN_BIN))
    measures = {
        "examples": float(held_out.sum()),
        "adequate": float(labels[held_out].mean()) if held_out.any() else float("nan"),
        "ece": compute_ece(confidences[held_out], labels[held_out], num_bins),
        "auroc": compute_auroc(confidences[held_out], labels[held_out]),
    }
    for group in sorted(set(examples.groups.tolist()) - {HELD_OUT}):
        chosen = held_out | (examples.groups == group)
        measures[f"auroc.{group}"] = compute_auroc(confidences[chosen], held_out[chosen])
    return {name: value for name, value in measures.items() if np.isfinite(value)}


def format_measures(measures: Mapping[str, float]) -> str:
    """Return one line about a calibration."""
    groups = [
        f"{name.removeprefix('auroc.')} {value:.3f}"
        for name, value in measures.items()
        if name.startswith("auroc.")
    ]
    return (
        f"calibrated, ECE {measures.get('ece', float('nan')):.3f}; AUROC of held-out text against "
        + ", ".join(groups)
    )
