"""What positions do (3.5): without them a sentence is a bag of words. Measured on outputs and on a task."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import NUM_SPECIAL_TOKENS, TransformerConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes, plot_curve, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    build_model,
    format_short,
    ignore_progress,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.progress import ReportProgress, make_counter

STAGE = "positions"
TASK = PREVIOUS_WORD_TASK
VARIANT_COLORS = {"sinusoid": BLUE, "none": ORANGE}
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
VARIANTS = {"sinusoid": SMALL, "none": replace(SMALL, positions="none")}
DOG, BITES, MAN = range(NUM_SPECIAL_TOKENS, NUM_SPECIAL_TOKENS + 3)
LENGTH, NUM_SHUFFLES = 10, 50


@dataclass(frozen=True)
class PositionResults:
    """By variant: with the paper's sinusoids, and without positions."""

    EXPECTED: ClassVar = ("equivariant", "learning")

    length: int  # of the shuffled sentence
    shuffles: int
    permutation_change: dict[str, float]  # maximum difference between f(shuffled x) and shuffled f(x)
    output_rms: dict[str, float]  # root mean square of the outputs, for comparison
    dog_change: dict[str, float]  # maximum difference of "dog" in "dog bites man" and "man bites dog"
    accuracy: dict[str, float]
    losses: dict[str, list[float]]
    chance_accuracy: float  # of a random word

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "equivariant": self.permutation_change["none"] < 1e-4 < self.permutation_change["sinusoid"],
            "learning": self.accuracy["sinusoid"] > self.accuracy["none"] + 0.2,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        values = {
            "length": f"{self.length}",
            "shuffles": f"{self.shuffles}",
            "guess": f"{self.chance_accuracy:.1%}",
            "steps": f"{len(self.losses['none'])}",
        }
        for variant, name in (("sinusoid", "with"), ("none", "without")):
            values[f"moved_{name}"] = format_short(self.permutation_change[variant])
            values[f"dog_{name}"] = format_short(self.dog_change[variant])
            values[f"accuracy_{name}"] = f"{self.accuracy[variant]:.1%}"
        return values


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 200) -> PositionResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {variant: build_model(config) for variant, config in VARIANTS.items()}
    shuffled = {variant: measure_permutation_change(model) for variant, model in models.items()}
    return PositionResults(
        length=LENGTH,
        shuffles=NUM_SHUFFLES,
        permutation_change={variant: change for variant, (change, _) in shuffled.items()},
        output_rms={variant: rms for variant, (_, rms) in shuffled.items()},
        dog_change={variant: measure_dog_change(model) for variant, model in models.items()},
        losses={
            variant: train_model(model, TASK.make_sampler(1, 64), train, advance).losses
            for variant, model in models.items()
        },
        accuracy={
            variant: measure_accuracy(model, TASK.make_eval_batch()) for variant, model in models.items()
        },
        chance_accuracy=1 / TASK.num_words,
    )


@torch.no_grad()
def measure_permutation_change(model: Transformer) -> tuple[float, float]:
    """Return the maximum |f(P x) - P f(x)| over shuffles P of a sentence x, and the RMS of f(x)."""
    generator = torch.Generator().manual_seed(0)
    words_T = torch.randint(TASK.num_words, (LENGTH,), generator=generator) + NUM_SPECIAL_TOKENS
    original_TD = model.encode(Packed.of([words_T.tolist()])).hidden
    largest = 0.0
    for _ in range(NUM_SHUFFLES):
        order_T = torch.randperm(LENGTH, generator=generator)
        shuffled_TD = model.encode(Packed.of([words_T[order_T].tolist()])).hidden
        largest = max(largest, (shuffled_TD - original_TD[order_T]).abs().max().item())
    return largest, original_TD.square().mean().sqrt().item()


@torch.no_grad()
def measure_dog_change(model: Transformer) -> float:
    first, second = Packed.of([[DOG, BITES, MAN]]), Packed.of([[MAN, BITES, DOG]])
    return (model.encode(first).hidden[0] - model.encode(second).hidden[2]).abs().max().item()


def make_table(results: PositionResults, labels: Labels) -> ReportTable:
    columns = [labels["positions"], labels["moved"], labels["dog"], labels["right"]]
    rows: list[list[Cell]] = [
        [
            labels[variant],
            results.permutation_change[variant],
            results.dog_change[variant],
            f"{results.accuracy[variant]:.1%}",
        ]
        for variant in VARIANTS
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: PositionResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    positions = range(len(VARIANTS))
    left.bar(
        positions,
        [max(results.permutation_change[variant], 1e-9) for variant in VARIANTS],
        color=[VARIANT_COLORS[variant] for variant in VARIANTS],
        width=0.5,
    )
    set_log_scale(left)
    left.set_xticks(positions, [labels[variant] for variant in VARIANTS])
    left.set(ylabel=labels["moved"])
    for variant in VARIANTS:
        plot_curve(right, results.losses[variant], VARIANT_COLORS[variant], labels[variant])
    right.set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    right.legend()
    return figure
