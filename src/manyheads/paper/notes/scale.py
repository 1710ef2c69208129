"""Why scale (3.2.1): q . k of unit-variance vectors has variance d_k, and large scores hold a softmax fast.

Shapes: Q queries, L keys, K = d_k.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from manyheads.config import TransformerConfig
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes, plot_curve, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    build_model,
    ignore_progress,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK
from manyheads.paper.report import ReportTable
from manyheads.progress import ReportProgress, make_counter

STAGE = "scaling"
VARIANT_COLORS = {"scaled-dot": BLUE, "dot": ORANGE}
WIDTHS = (4, 16, 64, 256, 1024)
NUM_QUERIES, NUM_KEYS = 1000, 32
TASK = PREVIOUS_WORD_TASK
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, layers=1, d_model=128, d_ff=128, heads=1, dropout=0.0)
VARIANTS = {"scaled-dot": SMALL, "dot": replace(SMALL, attention="dot")}


@dataclass(frozen=True)
class ScalingResults:
    """By way (scaled-dot, dot) and width; trained models have one head of `trained_width`."""

    EXPECTED: ClassVar = ("variance", "entropy", "gradient", "learning")

    widths: list[int]  # d_k
    keys: int
    variance: dict[str, list[float]]
    entropy: dict[str, list[float]]  # of the weights, in bits
    top: dict[str, list[float]]  # the largest weight
    gradient: dict[str, list[float]]  # norm of what a gradient of norm about 1 leaves behind the softmax
    trained_width: int
    accuracy: dict[str, float]
    losses: dict[str, list[float]]

    @property
    def findings(self) -> dict[str, bool]:
        pairs = zip(self.widths, self.variance["dot"], strict=True)
        return {
            "variance": all(0.8 < variance / d_k < 1.25 for d_k, variance in pairs),
            "entropy": self.entropy["dot"][-1] < 0.8 * self.entropy["scaled-dot"][-1],
            "gradient": self.gradient["dot"][-1] < 0.5 * self.gradient["scaled-dot"][-1],
            "learning": self.accuracy["scaled-dot"] > self.accuracy["dot"] + 0.05,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        place = self.widths.index(64) if 64 in self.widths else len(self.widths) // 2
        told = {
            "width": f"{self.widths[place]}",
            "widest": f"{self.widths[-1]}",
            "keys": f"{self.keys}",
            "most_bits": f"{math.log2(self.keys):.1f}",
            "trained_width": f"{self.trained_width}",
            "steps": f"{len(self.losses['dot'])}",
            "variance": f"{self.variance['dot'][place]:.1f}",
            "variance_scaled": f"{self.variance['scaled-dot'][place]:.2f}",
            "weaker": f"{self.gradient['scaled-dot'][-1] / self.gradient['dot'][-1]:.1f}",
        }
        for way, name in (("scaled-dot", "scaled"), ("dot", "dot")):
            told[f"entropy_{name}"] = f"{self.entropy[way][place]:.2f}"
            told[f"top_{name}"] = f"{self.top[way][place]:.1%}"
            told[f"gradient_{name}"] = f"{self.gradient[way][-1]:.4f}"
            told[f"accuracy_{name}"] = f"{self.accuracy[way]:.1%}"
        return told


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 200) -> ScalingResults:
    torch.manual_seed(0)
    by_way = {
        way: [
            measure_random_scores(d_k, AttentionSpec("dot" if way == "dot" else "scaled-dot"))
            for d_k in WIDTHS
        ]
        for way in VARIANTS
    }
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {way: build_model(config) for way, config in VARIANTS.items()}
    return ScalingResults(
        widths=list(WIDTHS),
        keys=NUM_KEYS,
        **{name: {way: [one[name] for one in by_way[way]] for way in VARIANTS} for name in by_way["dot"][0]},
        trained_width=SMALL.head_dim_k,
        losses={
            way: train_model(one, TASK.make_sampler(1, 32), train, advance).losses
            for way, one in models.items()
        },
        accuracy={way: measure_accuracy(one, TASK.make_eval_batch()) for way, one in models.items()},
    )


def measure_random_scores(d_k: int, rule: AttentionSpec) -> dict[str, float]:
    """Of queries and keys whose numbers are independent, with mean 0 and variance 1."""
    q_1QK, k_1LK = torch.randn(1, NUM_QUERIES, d_k), torch.randn(1, NUM_KEYS, d_k)
    scores_QL = attention_scores(q_1QK, k_1LK, rule)[0].requires_grad_()
    weights_QL = scores_QL.softmax(-1)
    return {
        "variance": scores_QL.var().item(),
        "entropy": compute_entropy(weights_QL.detach()).mean().item(),
        "top": weights_QL.detach().amax(-1).mean().item(),
        "gradient": measure_softmax_gradient(weights_QL, scores_QL),
    }


def compute_entropy(weights: Tensor) -> Tensor:
    """-sum p log2 p, in bits."""
    return -torch.xlogy(weights, weights).sum(-1) / math.log(2)


def measure_softmax_gradient(weights_QL: Tensor, scores_QL: Tensor) -> float:
    """A gradient of random direction and of norm 1 comes to the weights: the mean norm of what goes on."""
    arriving_QL = torch.nn.functional.normalize(torch.randn_like(weights_QL), dim=-1)
    (going_on_QL,) = torch.autograd.grad(weights_QL, scores_QL, arriving_QL)
    sizes_Q: Tensor = going_on_QL.norm(dim=-1)
    return sizes_Q.mean().item()


def make_table(numbers: ScalingResults, labels: Labels) -> ReportTable:
    told = ("variance", "entropy", "gradient")
    columns = ["d_k", *(f"{labels[name]}: {labels[way]}" for name in told for way in ("dot", "scaled-dot"))]
    rows = [
        [d_k, *(getattr(numbers, name)[way][place] for name in told for way in ("dot", "scaled-dot"))]
        for place, d_k in enumerate(numbers.widths)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: ScalingResults, labels: Labels) -> Any:
    figure, axes = make_axes(2, 2)
    panels = zip(axes, ("variance", "entropy", "gradient"), strict=False)
    for axis, name in panels:
        for way in VARIANTS:
            values = getattr(numbers, name)[way]
            axis.plot(numbers.widths, values, "o-", color=VARIANT_COLORS[way], label=labels[way])
        axis.set_xscale("log", base=4)
        axis.set_xticks(numbers.widths, [f"{width}" for width in numbers.widths])
        axis.set(xlabel="d_k", ylabel=labels[name])
    set_log_scale(axes[0])
    axes[0].plot(numbers.widths, numbers.widths, color="0.6", linestyle=":", label=labels["d_k"])
    axes[1].set_ylim(0, math.log2(numbers.keys))
    axes[2].set_ylim(0, None)
    for way in VARIANTS:
        plot_curve(axes[3], numbers.losses[way], VARIANT_COLORS[way], labels[way])
    axes[3].set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend()
    axes[3].legend()
    return figure
