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
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, frame
from manyheads.paper.notes.learning import hidden
from manyheads.paper.notes.scale import entropy
from manyheads.paper.notes.translation import Material, lesson_of
from manyheads.paper.report import Table, Value
from manyheads.train.loss import smoothed_targets

SMOOTHING = TrainConfig().label_smoothing  # the paper's
BINS = 10  # of confidence
COLOUR_OF = {"plain": ORANGE, "smoothed": BLUE}


@dataclass(frozen=True)
class Confidence:
    """Of one model, over the tokens of sentences that it never saw."""

    accuracy: float
    top: float  # mean probability of the likeliest word
    entropy: float  # mean, in bits
    perplexity: float  # of the right words: unsmoothed, per subword
    calibration_error: float  # mean distance of confidence and accuracy over bins, weighted by their tokens
    share_of_bin: list[float]  # of all tokens
    accuracy_of_bin: list[float | None]  # None: no token is in it


@dataclass(frozen=True)
class Smoothing:
    """The same model trained twice."""

    EXPECTED: ClassVar = ("less_sure", "perplexity_rises", "accuracy_holds")

    smoothing: float
    target_top: float  # what the smoothed target gives the right word
    plain: Confidence
    smoothed: Confidence
    tokens: int
    sentences: int
    vocabulary: int
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "less_sure": self.smoothed.top < self.plain.top and self.smoothed.entropy > self.plain.entropy,
            "perplexity_rises": self.smoothed.perplexity > self.plain.perplexity,
            "accuracy_holds": self.smoothed.accuracy > self.plain.accuracy - 0.005,
            "better_calibrated": self.smoothed.calibration_error < self.plain.calibration_error,
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "smoothing": f"{self.smoothing:g}",
            "target_top": f"{self.target_top:.1%}",
            "tokens": f"{self.tokens:,}",
            "sentences": f"{self.sentences}",
            "vocabulary": f"{self.vocabulary:,}",
            "steps": f"{self.steps}",
        }
        for way in COLOUR_OF:
            one: Confidence = getattr(self, way)
            told[f"accuracy_{way}"] = f"{one.accuracy:.2%}"
            told[f"top_{way}"] = f"{one.top:.1%}"
            told[f"entropy_{way}"] = f"{one.entropy:.2f}"
            told[f"perplexity_{way}"] = f"{one.perplexity:.3f}"
            told[f"calibration_{way}"] = f"{100 * one.calibration_error:.1f}"
        return told


def measure(material: Material, plain: Transformer, with_smoothing: Transformer, *, steps: int) -> Smoothing:
    """Of two models that were trained on the same lessons for so many steps."""
    size = len(material.subwords)
    right = torch.zeros(1, dtype=torch.int64)
    return Smoothing(
        smoothing=SMOOTHING,
        target_top=smoothed_targets(right, size, TrainConfig(label_smoothing=SMOOTHING)).max().item(),
        plain=confidence(plain, material),
        smoothed=confidence(with_smoothing, material),
        tokens=len(lesson_of(material.valid).labels_T),
        sentences=len(material.valid),
        vocabulary=size,
        steps=steps,
    )


@torch.no_grad()
def confidence(model: Transformer, material: Material) -> Confidence:
    model.eval()
    lesson = lesson_of(material.valid)
    log_p_TK = model.output(hidden(model, lesson)).log_softmax(-1)
    top_T, guessed_T = log_p_TK.exp().max(-1)
    right_T = (guessed_T == lesson.labels_T).double()
    shares, accuracies, error = by_bin(top_T.double(), right_T)
    nll = -log_p_TK.gather(1, lesson.labels_T[:, None]).double().mean().item()
    return Confidence(
        accuracy=right_T.mean().item(),
        top=top_T.mean().item(),
        entropy=entropy(log_p_TK.exp()).mean().item(),
        perplexity=math.exp(nll),
        calibration_error=error,
        share_of_bin=shares,
        accuracy_of_bin=accuracies,
    )


def by_bin(top_T: Tensor, right_T: Tensor) -> tuple[list[float], list[float | None], float]:
    """Shares and accuracies of tokens by confidence, and the expected calibration error."""
    bin_T = (top_T * BINS).long().clamp(max=BINS - 1)
    shares: list[float] = []
    accuracies: list[float | None] = []
    error = 0.0
    for number in range(BINS):
        inside = bin_T == number
        share = inside.double().mean().item()
        shares.append(share)
        accuracies.append(right_T[inside].mean().item() if share else None)
        if share:
            error += share * abs(right_T[inside].mean() - top_T[inside].mean()).item()
    return shares, accuracies, error


def table(numbers: Smoothing, labels: Labels) -> Table:
    columns = [labels[name] for name in ("training", "right", "top", "entropy", "perplexity", "calibration")]
    rows: list[list[Value]] = []
    for way in COLOUR_OF:
        one: Confidence = getattr(numbers, way)
        shares = [f"{one.accuracy:.2%}", f"{one.top:.1%}"]
        rows.append([labels[way], *shares, one.entropy, one.perplexity, one.calibration_error])
    return Table(labels["table"], columns, rows)


def draw(numbers: Smoothing, labels: Labels) -> Any:
    figure, (left, middle, right) = frame(3)
    middles = [(number + 0.5) / BINS for number in range(BINS)]
    for way, shift in (("plain", -0.02), ("smoothed", 0.02)):
        one: Confidence = getattr(numbers, way)
        label, color = labels[way], COLOUR_OF[way]
        left.bar([x + shift for x in middles], one.share_of_bin, width=0.04, color=color, label=label)
        known = [(x, y) for x, y in zip(middles, one.accuracy_of_bin, strict=True) if y is not None]
        middle.plot(*zip(*known, strict=True), "o-", color=color, label=label)
    middle.plot([0, 1], [0, 1], color="0.6", linestyle=":", label=labels["calibrated"])
    left.set(xlabel=labels["top"], ylabel=labels["share"])
    middle.set(xlabel=labels["top"], ylabel=labels["accuracy"], xlim=(0, 1), ylim=(0, 1.05))
    left.legend(loc="upper left")
    middle.legend(loc="lower right")
    names = ("perplexity", "entropy")
    for number, way in enumerate(COLOUR_OF):
        values = [getattr(getattr(numbers, way), name) for name in names]
        spots = [place + 0.4 * number - 0.2 for place in range(len(names))]
        bars = right.bar(spots, values, width=0.38, color=COLOUR_OF[way])
        right.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=8)
    right.set_xticks(range(len(names)), [labels[name] for name in names])
    return figure
