"""Residual connections and depth (3.1): the degradation problem. A deeper stack should do no worse.

The task is to copy each word, the identity: with residuals that is easy, without them every layer has to
learn it.
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
DEPTHS = (2, 6, 12, 24)  # whose gradients are measured
TRAINED_DEPTHS = (2, 6, 12, 24)


@dataclass(frozen=True)
class ResidualResults:
    """By variant: without residuals, and with them in post-norm (the paper's) or pre-norm."""

    EXPECTED: ClassVar = ("gradient", "degrades", "residuals_help")

    depths: list[int]
    gradient_ratios: dict[
        str, list[float]
    ]  # gradient norm of the first layer divided by the last layer's, untrained
    trained_depths: list[int]  # depths
    losses: dict[str, list[float]]  # training loss of the last steps
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        without, post, pre = (self.losses[variant] for variant in ("none", "post", "pre"))
        return {
            "gradient": self.gradient_ratios["none"][-1] < 0.5 * self.gradient_ratios["post"][-1],
            "degrades": without[-1] > without[0] + 0.1,
            "residuals_help": min(post[-1], pre[-1]) < 0.5 * without[-1],
            "post_norm_learns": post[-1] < 0.5 * without[-1],
        }

    @property
    def placeholders(self) -> dict[str, str]:
        values = {
            "shallow": f"{self.trained_depths[0]}",
            "deep": f"{self.trained_depths[-1]}",
            "deepest": f"{self.depths[-1]}",
            "steps": f"{self.steps}",
        }
        for variant in VARIANTS:
            values[f"gradient_{variant}"] = f"{self.gradient_ratios[variant][-1]:.2g}"
            values[f"shallow_{variant}"] = f"{self.losses[variant][0]:.3f}"
            values[f"deep_{variant}"] = f"{self.losses[variant][-1]:.3f}"
        return values


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
            variant: [measure_gradient_ratio(replace(config, layers=depth), train) for depth in depths]
            for variant, config in VARIANTS.items()
        },
        trained_depths=list(trained_depths),
        losses={
            variant: [
                measure_final_loss(replace(config, layers=depth), train, advance) for depth in trained_depths
            ]
            for variant, config in VARIANTS.items()
        },
        steps=steps,
    )


def measure_gradient_ratio(config: TransformerConfig, train: TrainConfig) -> float:
    """Return the ratio of the gradient norms of the first and the last layer of an untrained stack."""
    model = build_model(config)
    compute_gradient(model, TASK.make_sampler(1, 64)(), train)
    return compute_gradient_norm(model.encoder[0]) / compute_gradient_norm(model.encoder[-1])


def compute_gradient_norm(layer: nn.Module) -> float:
    return torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    ).item()


def measure_final_loss(config: TransformerConfig, train: TrainConfig, advance: Advance) -> float:
    """Train and return the final loss. Progress counts steps times layers."""
    history = train_model(
        build_model(config),
        TASK.make_sampler(1, 24),
        train,
        lambda steps: advance(steps * config.encoder_layers),
    )
    return history.final_loss


def make_table(results: ResidualResults, labels: Labels) -> ReportTable:
    measures = ("gradient", "loss")
    columns = [
        labels["layers"],
        *(f"{labels[name]}: {labels[variant]}" for name in measures for variant in VARIANTS),
    ]
    losses = {
        variant: dict(zip(results.trained_depths, results.losses[variant], strict=True))
        for variant in VARIANTS
    }
    rows = [
        [
            depth,
            *(results.gradient_ratios[variant][index] for variant in VARIANTS),
            *(losses[variant].get(depth) for variant in VARIANTS),
        ]
        for index, depth in enumerate(results.depths)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: ResidualResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    for variant, color in VARIANT_COLORS.items():
        left.plot(results.depths, results.gradient_ratios[variant], "o-", color=color, label=labels[variant])
        right.plot(results.trained_depths, results.losses[variant], "o-", color=color, label=labels[variant])
    left.set(xlabel=labels["layers"], ylabel=labels["gradient"], xticks=results.depths)
    set_log_scale(left)
    right.set(xlabel=labels["layers"], ylabel=labels["loss"], ylim=(0, None), xticks=results.trained_depths)
    right.legend(loc="center right")
    return figure
