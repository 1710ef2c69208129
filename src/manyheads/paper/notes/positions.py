"""What positions do (3.5): without them a sentence is a bag of words; by numbers, and by a task."""

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
    """By way: with the paper's sinusoids, and without positions."""

    EXPECTED: ClassVar = ("equivariant", "learning")

    length: int  # words of the sentence that is shuffled
    shuffles: int
    permutation_change: dict[str, float]  # the largest difference between f(shuffled x) and shuffled f(x)
    output_rms: dict[str, float]  # the root mean square of the outputs, to compare it with
    dog_change: dict[str, float]  # the largest difference of "dog" in "dog bites man" and "man bites dog"
    accuracy: dict[str, float]
    losses: dict[str, list[float]]
    chance_accuracy: float  # one word in so many

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "equivariant": self.permutation_change["none"] < 1e-4 < self.permutation_change["sinusoid"],
            "learning": self.accuracy["sinusoid"] > self.accuracy["none"] + 0.2,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "length": f"{self.length}",
            "shuffles": f"{self.shuffles}",
            "guess": f"{self.chance_accuracy:.1%}",
            "steps": f"{len(self.losses['none'])}",
        }
        for way, name in (("sinusoid", "with"), ("none", "without")):
            told[f"moved_{name}"] = format_short(self.permutation_change[way])
            told[f"dog_{name}"] = format_short(self.dog_change[way])
            told[f"accuracy_{name}"] = f"{self.accuracy[way]:.1%}"
        return told


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 200) -> PositionResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {way: build_model(config) for way, config in VARIANTS.items()}
    shuffled = {way: measure_permutation_change(model) for way, model in models.items()}
    return PositionResults(
        length=LENGTH,
        shuffles=NUM_SHUFFLES,
        permutation_change={way: moved for way, (moved, _) in shuffled.items()},
        output_rms={way: size for way, (_, size) in shuffled.items()},
        dog_change={way: measure_dog_change(model) for way, model in models.items()},
        losses={
            way: train_model(one, TASK.make_sampler(1, 64), train, advance).losses
            for way, one in models.items()
        },
        accuracy={way: measure_accuracy(one, TASK.make_eval_batch()) for way, one in models.items()},
        chance_accuracy=1 / TASK.num_words,
    )


@torch.no_grad()
def measure_permutation_change(model: Transformer) -> tuple[float, float]:
    """The largest |f(P x) - P f(x)| over shuffles P of a sentence x, and the size of f(x)."""
    chance = torch.Generator().manual_seed(0)
    words_T = torch.randint(TASK.num_words, (LENGTH,), generator=chance) + NUM_SPECIAL_TOKENS
    as_it_was_TD = model.encode(Packed.of([words_T.tolist()])).hidden
    largest = 0.0
    for _ in range(NUM_SHUFFLES):
        order_T = torch.randperm(LENGTH, generator=chance)
        shuffled_TD = model.encode(Packed.of([words_T[order_T].tolist()])).hidden
        largest = max(largest, (shuffled_TD - as_it_was_TD[order_T]).abs().max().item())
    return largest, as_it_was_TD.square().mean().sqrt().item()


@torch.no_grad()
def measure_dog_change(model: Transformer) -> float:
    one, other = Packed.of([[DOG, BITES, MAN]]), Packed.of([[MAN, BITES, DOG]])
    return (model.encode(one).hidden[0] - model.encode(other).hidden[2]).abs().max().item()


def make_table(numbers: PositionResults, labels: Labels) -> ReportTable:
    columns = [labels["positions"], labels["moved"], labels["dog"], labels["right"]]
    rows: list[list[Cell]] = [
        [
            labels[way],
            numbers.permutation_change[way],
            numbers.dog_change[way],
            f"{numbers.accuracy[way]:.1%}",
        ]
        for way in VARIANTS
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: PositionResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    places = range(len(VARIANTS))
    left.bar(
        places,
        [max(numbers.permutation_change[way], 1e-9) for way in VARIANTS],
        color=[VARIANT_COLORS[one] for one in VARIANTS],
        width=0.5,
    )
    set_log_scale(left)
    left.set_xticks(places, [labels[way] for way in VARIANTS])
    left.set(ylabel=labels["moved"])
    for way in VARIANTS:
        plot_curve(right, numbers.losses[way], VARIANT_COLORS[way], labels[way])
    right.set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    right.legend()
    return figure
