"""Residuals at depth (3.1): the degradation problem. A deeper stack should do no worse than a shallow one.

The task is to say each word again, which a stack does by doing nothing: with residuals that is easy, without
them every layer has to learn it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.paper.notes.drawing import BLUE, GREEN, ORANGE, Labels, make_axes, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    Advance,
    build_model,
    compute_gradient,
    ignore_progress,
    train_model,
)
from manyheads.paper.notes.tasks import COPY_TASK
from manyheads.paper.report import ReportTable
from manyheads.progress import ReportProgress, make_counter

STAGE = "residuals"
TASK = COPY_TASK
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, d_model=32, d_ff=64, heads=4, dropout=0.0)
VARIANTS = {
    "none": replace(SMALL, residuals=False),
    "post": SMALL,
    "pre": replace(SMALL, norm="pre"),
}
VARIANT_COLORS = {"none": ORANGE, "post": BLUE, "pre": GREEN}
DEPTHS = (2, 6, 12, 24)  # whose gradients are measured: cheap
TRAINED_DEPTHS = (2, 6, 12)


@dataclass(frozen=True)
class ResidualResults:
    """By way: without residuals, with them and the norm after the sum (the paper's) or before it."""

    EXPECTED: ClassVar = ("gradient", "degrades", "mended")

    depths: list[int]
    gradient_ratios: dict[
        str, list[float]
    ]  # norm of the first layer's, as a share of the last layer's, untrained
    trained_depths: list[int]  # depths
    losses: dict[str, list[float]]  # on the lessons of the last steps of training
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        without, post, pre = (self.losses[way] for way in ("none", "post", "pre"))
        return {
            "gradient": self.gradient_ratios["none"][-1] < 0.5 * self.gradient_ratios["post"][-1],
            "degrades": without[-1] > without[0] + 0.1,
            "mended": min(post[-1], pre[-1]) < 0.5 * without[-1],
            "post_holds": post[-1] < 0.5 * without[-1],
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "shallow": f"{self.trained_depths[0]}",
            "deep": f"{self.trained_depths[-1]}",
            "deepest": f"{self.depths[-1]}",
            "steps": f"{self.steps}",
        }
        for way in VARIANTS:
            told[f"gradient_{way}"] = f"{self.gradient_ratios[way][-1]:.2g}"
            told[f"shallow_{way}"] = f"{self.losses[way][0]:.3f}"
            told[f"deep_{way}"] = f"{self.losses[way][-1]:.3f}"
        return told


def measure(
    report_progress: ReportProgress = ignore_progress,
    *,
    depths: tuple[int, ...] = DEPTHS,
    trained_depths: tuple[int, ...] = TRAINED_DEPTHS,
    steps: int = 100,
) -> ResidualResults:
    advance = make_counter(report_progress, STAGE, steps * len(VARIANTS) * sum(trained_depths))
    train = replace(TRAINING, steps=steps, warmup=max(1, steps // 6), learning_rate=1e-3)
    return ResidualResults(
        depths=list(depths),
        gradient_ratios={
            way: [measure_gradient_ratio(replace(one, layers=n), train) for n in depths]
            for way, one in VARIANTS.items()
        },
        trained_depths=list(trained_depths),
        losses={
            way: [
                measure_final_loss(replace(one, layers=layers), train, advance) for layers in trained_depths
            ]
            for way, one in VARIANTS.items()
        },
        steps=steps,
    )


def measure_gradient_ratio(config: TransformerConfig, train: TrainConfig) -> float:
    """How much of the gradient reaches the first layer of a stack that is not trained yet."""
    model = build_model(config)
    compute_gradient(model, TASK.make_sampler(1, 64)(), train)
    return compute_gradient_norm(model.encoder[0]) / compute_gradient_norm(model.encoder[-1])


def compute_gradient_norm(layer: nn.Module) -> float:
    return torch.nn.utils.get_total_norm(
        [one.grad for one in layer.parameters() if one.grad is not None]
    ).item()


def measure_final_loss(config: TransformerConfig, train: TrainConfig, advance: Advance) -> float:
    """A step of a deep stack takes longer, and counts as many as its layers."""
    course = train_model(
        build_model(config),
        TASK.make_sampler(1, 24),
        train,
        lambda step: advance(step * config.encoder_layers),
    )
    return course.final_loss


def make_table(numbers: ResidualResults, labels: Labels) -> ReportTable:
    told = ("gradient", "loss")
    columns = [labels["layers"], *(f"{labels[name]}: {labels[way]}" for name in told for way in VARIANTS)]
    losses = {way: dict(zip(numbers.trained_depths, numbers.losses[way], strict=True)) for way in VARIANTS}
    rows = [
        [
            depth,
            *(numbers.gradient_ratios[way][place] for way in VARIANTS),
            *(losses[way].get(depth) for way in VARIANTS),
        ]
        for place, depth in enumerate(numbers.depths)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: ResidualResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    for way, color in VARIANT_COLORS.items():
        left.plot(numbers.depths, numbers.gradient_ratios[way], "o-", color=color, label=labels[way])
        right.plot(numbers.trained_depths, numbers.losses[way], "o-", color=color, label=labels[way])
    left.set(xlabel=labels["layers"], ylabel=labels["gradient"], xticks=numbers.depths)
    set_log_scale(left)
    right.set(xlabel=labels["layers"], ylabel=labels["loss"], ylim=(0, None), xticks=numbers.trained_depths)
    right.legend(loc="center right")
    return figure
