"""Label smoothing (5.4): how sure the model is, how sure it should be, and what that does to perplexity.

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
    """Of one model, over the tokens of sentences that it never saw."""

    accuracy: float
    mean_confidence: float  # mean probability of the likeliest word
    entropy: float  # mean, in bits
    perplexity: float  # of the right words: unsmoothed, per subword
    calibration_error: float  # mean distance of confidence and accuracy over bins, weighted by their tokens
    bin_shares: list[float]  # of all tokens
    bin_accuracies: list[float | None]  # None: no token is in it


@dataclass(frozen=True)
class SmoothingResults:
    """The same model trained twice."""

    EXPECTED: ClassVar = ("less_sure", "perplexity_rises", "accuracy_holds")

    smoothing: float
    target_confidence: float  # what the smoothed target gives the right word
    plain: Confidence
    smoothed: Confidence
    tokens: int
    sentences: int
    vocab_size: int
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "less_sure": self.smoothed.mean_confidence < self.plain.mean_confidence
            and self.smoothed.entropy > self.plain.entropy,
            "perplexity_rises": self.smoothed.perplexity > self.plain.perplexity,
            "accuracy_holds": self.smoothed.accuracy > self.plain.accuracy - 0.005,
            "better_calibrated": self.smoothed.calibration_error < self.plain.calibration_error,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "smoothing": f"{self.smoothing:g}",
            "target_top": f"{self.target_confidence:.1%}",
            "tokens": f"{self.tokens:,}",
            "sentences": f"{self.sentences}",
            "vocabulary": f"{self.vocab_size:,}",
            "steps": f"{self.steps}",
        }
        for way in VARIANT_COLORS:
            one: Confidence = getattr(self, way)
            told[f"accuracy_{way}"] = f"{one.accuracy:.2%}"
            told[f"top_{way}"] = f"{one.mean_confidence:.1%}"
            told[f"entropy_{way}"] = f"{one.entropy:.2f}"
            told[f"perplexity_{way}"] = f"{one.perplexity:.3f}"
            told[f"calibration_{way}"] = f"{100 * one.calibration_error:.1f}"
        return told


def measure(
    data: TranslationData, plain: Transformer, with_smoothing: Transformer, *, steps: int
) -> SmoothingResults:
    """Of two models that were trained on the same lessons for so many steps."""
    size = len(data.subwords)
    right = torch.zeros(1, dtype=torch.int64)
    return SmoothingResults(
        smoothing=SMOOTHING,
        target_confidence=smoothed_targets(right, size, TrainConfig(label_smoothing=SMOOTHING)).max().item(),
        plain=measure_confidence(plain, data),
        smoothed=measure_confidence(with_smoothing, data),
        tokens=len(make_batch(data.valid).labels_T),
        sentences=len(data.valid),
        vocab_size=size,
        steps=steps,
    )


@torch.no_grad()
def measure_confidence(model: Transformer, material: TranslationData) -> Confidence:
    model.eval()
    lesson = make_batch(material.valid)
    log_p_TK = model.output(compute_hidden(model, lesson)).log_softmax(-1)
    top_T, guessed_T = log_p_TK.exp().max(-1)
    right_T = (guessed_T == lesson.labels_T).double()
    shares, accuracies, error = bin_by_confidence(top_T.double(), right_T)
    nll = -log_p_TK.gather(1, lesson.labels_T[:, None]).double().mean().item()
    return Confidence(
        accuracy=right_T.mean().item(),
        mean_confidence=top_T.mean().item(),
        entropy=compute_entropy(log_p_TK.exp()).mean().item(),
        perplexity=math.exp(nll),
        calibration_error=error,
        bin_shares=shares,
        bin_accuracies=accuracies,
    )


def bin_by_confidence(top_T: Tensor, right_T: Tensor) -> tuple[list[float], list[float | None], float]:
    """Shares and accuracies of tokens by confidence, and the expected calibration error."""
    bin_T = (top_T * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    shares: list[float] = []
    accuracies: list[float | None] = []
    error = 0.0
    for number in range(NUM_BINS):
        inside = bin_T == number
        share = inside.double().mean().item()
        shares.append(share)
        accuracies.append(right_T[inside].mean().item() if share else None)
        if share:
            error += share * abs(right_T[inside].mean() - top_T[inside].mean()).item()
    return shares, accuracies, error


def make_table(numbers: SmoothingResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("training", "right", "top", "entropy", "perplexity", "calibration")]
    rows: list[list[Cell]] = []
    for way in VARIANT_COLORS:
        one: Confidence = getattr(numbers, way)
        shares = [f"{one.accuracy:.2%}", f"{one.mean_confidence:.1%}"]
        rows.append([labels[way], *shares, one.entropy, one.perplexity, one.calibration_error])
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: SmoothingResults, labels: Labels) -> Any:
    figure, (left, middle, right) = make_axes(3)
    middles = [(number + 0.5) / NUM_BINS for number in range(NUM_BINS)]
    for way, shift in (("plain", -0.02), ("smoothed", 0.02)):
        one: Confidence = getattr(numbers, way)
        label, color = labels[way], VARIANT_COLORS[way]
        left.bar([x + shift for x in middles], one.bin_shares, width=0.04, color=color, label=label)
        known = [(x, y) for x, y in zip(middles, one.bin_accuracies, strict=True) if y is not None]
        middle.plot(*zip(*known, strict=True), "o-", color=color, label=label)
    middle.plot([0, 1], [0, 1], color="0.6", linestyle=":", label=labels["calibrated"])
    left.set(xlabel=labels["top"], ylabel=labels["share"])
    middle.set(xlabel=labels["top"], ylabel=labels["accuracy"], xlim=(0, 1), ylim=(0, 1.05))
    left.legend(loc="upper left")
    middle.legend(loc="lower right")
    names = ("perplexity", "entropy")
    for number, way in enumerate(VARIANT_COLORS):
        values = [getattr(getattr(numbers, way), name) for name in names]
        spots = [place + 0.4 * number - 0.2 for place in range(len(names))]
        bars = right.bar(spots, values, width=0.38, color=VARIANT_COLORS[way])
        right.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=8)
    right.set_xticks(range(len(names)), [labels[name] for name in names])
    return figure
