"""Residuals at depth (3.1): the degradation problem. A deeper stack should do no worse than a shallow one.

The task is to say each word again, which a stack does by doing nothing: with residuals that is easy, without
them every layer has to learn it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from manyheads.config import ModelConfig, TrainConfig
from manyheads.paper.notes.drawing import BLUE, GREEN, ORANGE, Labels, frame, logarithmic
from manyheads.paper.notes.learning import PLAN, Advance, fresh, gradient_of, learn, untold
from manyheads.paper.notes.tasks import SAY_AGAIN
from manyheads.paper.report import Table
from manyheads.progress import ReportProgress, make_counter

STAGE = "residuals"
TASK = SAY_AGAIN
SMALL = ModelConfig(vocab_size=TASK.vocabulary, d_model=32, d_ff=64, heads=4, dropout=0.0)
WAYS = {
    "none": replace(SMALL, residuals=False),
    "post": SMALL,
    "pre": replace(SMALL, norm="pre"),
}
COLOUR_OF = {"none": ORANGE, "post": BLUE, "pre": GREEN}
DEPTHS = (2, 6, 12, 24)  # whose gradients are measured: cheap
TRAINED = (2, 6, 12)


@dataclass(frozen=True)
class Residuals:
    """By way: without residuals, with them and the norm after the sum (the paper's) or before it."""

    EXPECTED: ClassVar = ("gradient", "degrades", "mended")

    depths: list[int]
    gradients: dict[str, list[float]]  # norm of the first layer's, as a share of the last layer's, untrained
    trained: list[int]  # depths
    losses: dict[str, list[float]]  # on the lessons of the last steps of training
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        without, post, pre = (self.losses[way] for way in ("none", "post", "pre"))
        return {
            "gradient": self.gradients["none"][-1] < 0.5 * self.gradients["post"][-1],
            "degrades": without[-1] > without[0] + 0.1,
            "mended": min(post[-1], pre[-1]) < 0.5 * without[-1],
            "post_holds": post[-1] < 0.5 * without[-1],
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "shallow": f"{self.trained[0]}",
            "deep": f"{self.trained[-1]}",
            "deepest": f"{self.depths[-1]}",
            "steps": f"{self.steps}",
        }
        for way in WAYS:
            told[f"gradient_{way}"] = f"{self.gradients[way][-1]:.2g}"
            told[f"shallow_{way}"] = f"{self.losses[way][0]:.3f}"
            told[f"deep_{way}"] = f"{self.losses[way][-1]:.3f}"
        return told


def measure(
    tell: ReportProgress = untold,
    *,
    depths: tuple[int, ...] = DEPTHS,
    trained: tuple[int, ...] = TRAINED,
    steps: int = 100,
) -> Residuals:
    advance = make_counter(tell, STAGE, steps * len(WAYS) * sum(trained))
    train = replace(PLAN, steps=steps, warmup=max(1, steps // 6), learning_rate=1e-3)
    return Residuals(
        depths=list(depths),
        gradients={
            way: [first_to_last(replace(one, layers=n), train) for n in depths] for way, one in WAYS.items()
        },
        trained=list(trained),
        losses={
            way: [last_loss(replace(one, layers=layers), train, advance) for layers in trained]
            for way, one in WAYS.items()
        },
        steps=steps,
    )


def first_to_last(config: ModelConfig, train: TrainConfig) -> float:
    """How much of the gradient reaches the first layer of a stack that is not trained yet."""
    model = fresh(config)
    gradient_of(model, TASK.lessons(1, 64)(), train)
    return norm_of_gradient(model.encoder[0]) / norm_of_gradient(model.encoder[-1])


def norm_of_gradient(layer: nn.Module) -> float:
    return torch.nn.utils.get_total_norm(
        [one.grad for one in layer.parameters() if one.grad is not None]
    ).item()


def last_loss(config: ModelConfig, train: TrainConfig, advance: Advance) -> float:
    """A step of a deep stack takes longer, and counts as many as its layers."""
    course = learn(fresh(config), TASK.lessons(1, 24), train, lambda step: advance(step * config.layers))
    return course.last_loss


def table(numbers: Residuals, labels: Labels) -> Table:
    told = ("gradient", "loss")
    columns = [labels["layers"], *(f"{labels[name]}: {labels[way]}" for name in told for way in WAYS)]
    losses = {way: dict(zip(numbers.trained, numbers.losses[way], strict=True)) for way in WAYS}
    rows = [
        [depth, *(numbers.gradients[way][place] for way in WAYS), *(losses[way].get(depth) for way in WAYS)]
        for place, depth in enumerate(numbers.depths)
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Residuals, labels: Labels) -> Any:
    figure, (left, right) = frame(2)
    for way, color in COLOUR_OF.items():
        left.plot(numbers.depths, numbers.gradients[way], "o-", color=color, label=labels[way])
        right.plot(numbers.trained, numbers.losses[way], "o-", color=color, label=labels[way])
    left.set(xlabel=labels["layers"], ylabel=labels["gradient"], xticks=numbers.depths)
    logarithmic(left)
    right.set(xlabel=labels["layers"], ylabel=labels["loss"], ylim=(0, None), xticks=numbers.trained)
    right.legend(loc="center right")
    return figure
