"""Residual connections and depth (3.1): the degradation problem. A deeper stack should do no worse.

The task is to copy each word, the identity: with residuals that is easy, without them every layer has to
learn it.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.layers import FeedForward
from manyheads.model.transformer import Transformer
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
HEALTHY = (0.5, 2.0)  # gradient norm of the first layer over the last layer's
FUNCTION_STEPS = 300  # of a layer that learns the identity or zero


@dataclass(frozen=True)
class ResidualResults:
    """By variant: without residuals, and with them in post-norm (the paper's) or pre-norm."""

    EXPECTED: ClassVar = ("healthy", "degrades", "residuals_help", "identity", "unneeded")

    depths: list[int]
    gradient_ratios: dict[
        str, list[float]
    ]  # gradient norm of the first layer divided by the last layer's, untrained
    trained_depths: list[int]  # depths
    losses: dict[str, list[float]]  # training loss of the last steps
    branch_ratio: float  # |F(x)| / |x| of a layer of the deepest trained pre-norm stack: the median
    branch_ratio_untrained: float  # the same before training
    function_losses: dict[str, float]  # of one feed-forward layer that learns f(x) = x or f(x) = 0
    steps: int

    @property
    def healthy(self) -> int | None:
        """Index of the deepest stack without residuals whose first layer has a gradient, and trains worse."""
        without, with_residuals = self.losses["none"], self.losses["pre"]
        indices = [
            index
            for index, depth in enumerate(self.trained_depths)
            if HEALTHY[0] <= self.gradient_at(depth) <= HEALTHY[1]
            and without[index] > with_residuals[index] + 0.1
        ]
        return indices[-1] if indices else None

    def gradient_at(self, depth: int) -> float:
        """Return the gradient ratio without residuals at a trained depth; 0: not measured there."""
        return dict(zip(self.depths, self.gradient_ratios["none"], strict=True)).get(depth, 0.0)

    @property
    def findings(self) -> dict[str, bool]:
        without, post, pre = (self.losses[variant] for variant in ("none", "post", "pre"))
        return {
            "gradient": self.gradient_ratios["none"][-1] < 0.5 * self.gradient_ratios["post"][-1],
            "healthy": self.healthy is not None,
            "identity": self.function_losses["identity"] > 2 * self.function_losses["zero"],
            "unneeded": self.branch_ratio < 0.5,
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
            "branch": f"{self.branch_ratio:.2g}",
            "branch_untrained": f"{self.branch_ratio_untrained:.2g}",
            "function_steps": f"{FUNCTION_STEPS}",
            **{f"loss_{name}": f"{loss:.2g}" for name, loss in self.function_losses.items()},
        }
        index = self.healthy or 0
        values["healthy_depth"] = f"{self.trained_depths[index]}"
        values["healthy_gradient"] = f"{self.gradient_at(self.trained_depths[index]):.2g}"
        values["healthy_loss"] = f"{self.losses['none'][index]:.3f}"
        values["healthy_residual_loss"] = f"{self.losses['pre'][index]:.3f}"
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
    losses: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for variant, config in VARIANTS.items():
        for depth in trained_depths:
            model = build_model(replace(config, layers=depth))
            losses[variant].append(train_stack(model, train, advance))
    return ResidualResults(
        depths=list(depths),
        gradient_ratios={
            variant: [measure_gradient_ratio(replace(config, layers=depth), train) for depth in depths]
            for variant, config in VARIANTS.items()
        },
        trained_depths=list(trained_depths),
        losses=losses,
        branch_ratio=measure_branch_ratio(model),
        branch_ratio_untrained=measure_branch_ratio(build_model(model.config)),
        function_losses={name: learn_function(name) for name in ("identity", "zero")},
        steps=steps,
    )


@torch.no_grad()
def measure_branch_ratio(model: Transformer) -> float:
    """Return the median over layers of |F(x)| / |x|: how much a layer adds to its input, with pre-norm."""
    inputs: list[Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
        for layer in model.encoder
    ]
    model.eval()
    model.encode(TASK.make_eval_batch().source)
    for hook in hooks:
        hook.remove()
    ratios = [
        ((after - before).norm(dim=-1) / before.norm(dim=-1)).mean() for before, after in pairwise(inputs)
    ]
    return torch.stack(ratios).median().item()


def learn_function(name: str, d: int = 32) -> float:
    """Train one feed-forward layer to return its input, or zero; return the final squared error."""
    torch.manual_seed(0)
    layer = FeedForward(replace(SMALL, d_model=d, d_ff=2 * d))
    optimizer = torch.optim.Adam(layer.parameters(), 1e-3)
    for _ in range(FUNCTION_STEPS):
        x = torch.randn(64, d)
        error: Tensor = (layer(x) - (x if name == "identity" else 0)).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


def measure_gradient_ratio(config: TransformerConfig, train: TrainConfig) -> float:
    """Return the ratio of the gradient norms of the first and the last layer of an untrained stack."""
    model = build_model(config)
    compute_gradient(model, TASK.make_sampler(1, 64)(), train)
    return compute_gradient_norm(model.encoder[0]) / compute_gradient_norm(model.encoder[-1])


def compute_gradient_norm(layer: nn.Module) -> float:
    return torch.nn.utils.get_total_norm(
        [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    ).item()


def train_stack(model: Transformer, train: TrainConfig, advance: Advance) -> float:
    """Train and return the final loss. Progress counts steps times layers."""
    layers = model.config.encoder_layers
    history = train_model(model, TASK.make_sampler(1, 24), train, lambda steps: advance(steps * layers))
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
