"""Label smoothing (5.4): its effect on confidence, calibration and perplexity.

Shapes: T target tokens, K = vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from manyheads.config import TrainConfig
from manyheads.model.transformer import Transformer
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes
from manyheads.paper.notes.learning import compute_hidden
from manyheads.paper.notes.scale import compute_entropy
from manyheads.paper.notes.translation import TranslationData, make_batch
from manyheads.paper.report import Cell, ReportTable
from manyheads.train.loss import smoothed_targets

SMOOTHING = TrainConfig().label_smoothing  # the paper's
NUM_BINS = 10  # of confidence
VARIANT_COLORS = {"plain": ORANGE, "smoothed": BLUE}


@dataclass(frozen=True)
class Confidence:
    """Confidence and calibration of one model on held-out sentences."""

    accuracy: float
    mean_confidence: float  # mean probability of the most likely token
    entropy: float  # mean, in bits
    perplexity: float  # unsmoothed, per subword
    calibration_error: (
        float  # expected calibration error: mean |confidence - accuracy| over bins, weighted by tokens
    )
    bin_shares: list[float]  # of all tokens
    bin_accuracies: list[float | None]  # None: the bin is empty


@dataclass(frozen=True)
class SmoothingResults:
    """The same model trained without and with label smoothing."""

    EXPECTED: ClassVar = ("less_confident", "perplexity_rises", "accuracy_holds")

    smoothing: float
    target_confidence: float  # probability of the correct token in the smoothed target
    plain: Confidence
    smoothed: Confidence
    tokens: int
    sentences: int
    vocab_size: int
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "less_confident": self.smoothed.mean_confidence < self.plain.mean_confidence
            and self.smoothed.entropy > self.plain.entropy,
            "perplexity_rises": self.smoothed.perplexity > self.plain.perplexity,
            "accuracy_holds": self.smoothed.accuracy > self.plain.accuracy - 0.005,
            "better_calibrated": self.smoothed.calibration_error < self.plain.calibration_error,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        values = {
            "smoothing": f"{self.smoothing:g}",
            "target_top": f"{self.target_confidence:.1%}",
            "tokens": f"{self.tokens:,}",
            "sentences": f"{self.sentences}",
            "vocab_size": f"{self.vocab_size:,}",
            "steps": f"{self.steps}",
        }
        for variant in VARIANT_COLORS:
            confidence: Confidence = getattr(self, variant)
            values[f"accuracy_{variant}"] = f"{confidence.accuracy:.2%}"
            values[f"top_{variant}"] = f"{confidence.mean_confidence:.1%}"
            values[f"entropy_{variant}"] = f"{confidence.entropy:.2f}"
            values[f"perplexity_{variant}"] = f"{confidence.perplexity:.3f}"
            values[f"calibration_{variant}"] = f"{100 * confidence.calibration_error:.1f}"
        return values


def measure(
    data: TranslationData, plain: Transformer, with_smoothing: Transformer, *, steps: int
) -> SmoothingResults:
    """Compare two models trained on the same batches for `steps` steps."""
    vocab_size = len(data.subwords)
    label = torch.zeros(1, dtype=torch.int64)
    return SmoothingResults(
        smoothing=SMOOTHING,
        target_confidence=smoothed_targets(label, vocab_size, TrainConfig(label_smoothing=SMOOTHING))
        .max()
        .item(),
        plain=measure_confidence(plain, data),
        smoothed=measure_confidence(with_smoothing, data),
        tokens=len(make_batch(data.valid).labels_T),
        sentences=len(data.valid),
        vocab_size=vocab_size,
        steps=steps,
    )


@torch.no_grad()
def measure_confidence(model: Transformer, data: TranslationData) -> Confidence:
    model.eval()
    batch = make_batch(data.valid)
    log_p_TK = model.output(compute_hidden(model, batch)).log_softmax(-1)
    confidence_T, predicted_T = log_p_TK.exp().max(-1)
    correct_T = (predicted_T == batch.labels_T).double()
    shares, accuracies, error = bin_by_confidence(confidence_T.double(), correct_T)
    nll = -log_p_TK.gather(1, batch.labels_T[:, None]).double().mean().item()
    return Confidence(
        accuracy=correct_T.mean().item(),
        mean_confidence=confidence_T.mean().item(),
        entropy=compute_entropy(log_p_TK.exp()).mean().item(),
        perplexity=math.exp(nll),
        calibration_error=error,
        bin_shares=shares,
        bin_accuracies=accuracies,
    )


def bin_by_confidence(
    confidence_T: Tensor, correct_T: Tensor
) -> tuple[list[float], list[float | None], float]:
    """Return the shares and accuracies of tokens by confidence, and the expected calibration error."""
    bin_T = (confidence_T * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    shares: list[float] = []
    accuracies: list[float | None] = []
    error = 0.0
    for index in range(NUM_BINS):
        in_bin = bin_T == index
        share = in_bin.double().mean().item()
        shares.append(share)
        accuracies.append(correct_T[in_bin].mean().item() if share else None)
        if share:
            error += share * abs(correct_T[in_bin].mean() - confidence_T[in_bin].mean()).item()
    return shares, accuracies, error


def make_table(results: SmoothingResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("training", "right", "top", "entropy", "perplexity", "calibration")]
    rows: list[list[Cell]] = []
    for variant in VARIANT_COLORS:
        confidence: Confidence = getattr(results, variant)
        shares = [f"{confidence.accuracy:.2%}", f"{confidence.mean_confidence:.1%}"]
        rows.append(
            [
                labels[variant],
                *shares,
                confidence.entropy,
                confidence.perplexity,
                confidence.calibration_error,
            ]
        )
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: SmoothingResults, labels: Labels) -> Any:
    figure, (left, middle, right) = make_axes(3)
    centers = [(index + 0.5) / NUM_BINS for index in range(NUM_BINS)]
    for variant, shift in (("plain", -0.02), ("smoothed", 0.02)):
        confidence: Confidence = getattr(results, variant)
        label, color = labels[variant], VARIANT_COLORS[variant]
        left.bar([x + shift for x in centers], confidence.bin_shares, width=0.04, color=color, label=label)
        known = [(x, y) for x, y in zip(centers, confidence.bin_accuracies, strict=True) if y is not None]
        middle.plot(*zip(*known, strict=True), "o-", color=color, label=label)
    middle.plot([0, 1], [0, 1], color="0.6", linestyle=":", label=labels["calibrated"])
    left.set(xlabel=labels["top"], ylabel=labels["share"])
    middle.set(xlabel=labels["top"], ylabel=labels["accuracy"], xlim=(0, 1), ylim=(0, 1.05))
    left.legend(loc="upper left")
    middle.legend(loc="lower right")
    names = ("perplexity", "entropy")
    for index, variant in enumerate(VARIANT_COLORS):
        values = [getattr(getattr(results, variant), name) for name in names]
        positions = [position + 0.4 * index - 0.2 for position in range(len(names))]
        bars = right.bar(positions, values, width=0.38, color=VARIANT_COLORS[variant])
        right.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=8)
    right.set_xticks(range(len(names)), [labels[name] for name in names])
    return figure
