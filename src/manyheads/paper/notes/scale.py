"""Why scale (3.2.1): q . k of unit-variance vectors has variance d_k, and large scores saturate the softmax.

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
    """By variant (scaled-dot, dot) and width; trained models have one head of `trained_width`."""

    EXPECTED: ClassVar = ("variance", "entropy", "gradient", "learning")

    widths: list[int]  # d_k
    keys: int
    variance: dict[str, list[float]]
    entropy: dict[str, list[float]]  # of the weights, in bits
    max_weight: dict[str, list[float]]  # mean over queries
    gradient: dict[str, list[float]]  # norm at q . k of a gradient of norm 1 at the weights: median
    gradient_mean: dict[str, list[float]]  # the same, the mean over queries
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
        index = self.widths.index(64) if 64 in self.widths else len(self.widths) // 2
        values = {
            "width": f"{self.widths[index]}",
            "widest": f"{self.widths[-1]}",
            "keys": f"{self.keys}",
            "max_bits": f"{math.log2(self.keys):.1f}",
            "trained_width": f"{self.trained_width}",
            "steps": f"{len(self.losses['dot'])}",
            "variance": f"{self.variance['dot'][index]:.1f}",
            "variance_scaled": f"{self.variance['scaled-dot'][index]:.2f}",
            "weaker": f"{self.gradient['scaled-dot'][-1] / max(1e-30, self.gradient['dot'][-1]):.3g}",
        }
        for variant, name in (("scaled-dot", "scaled"), ("dot", "dot")):
            values[f"entropy_{name}"] = f"{self.entropy[variant][index]:.2f}"
            values[f"top_{name}"] = f"{self.max_weight[variant][index]:.1%}"
            values[f"gradient_{name}"] = f"{self.gradient[variant][-1]:.2g}"
            values[f"mean_{name}"] = f"{self.gradient_mean[variant][-1]:.2g}"
            values[f"accuracy_{name}"] = f"{self.accuracy[variant]:.1%}"
        return values


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 200) -> ScalingResults:
    torch.manual_seed(0)
    by_variant = {
        variant: [
            measure_random_scores(d_k, AttentionSpec("dot" if variant == "dot" else "scaled-dot"))
            for d_k in WIDTHS
        ]
        for variant in VARIANTS
    }
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {variant: build_model(config) for variant, config in VARIANTS.items()}
    return ScalingResults(
        widths=list(WIDTHS),
        keys=NUM_KEYS,
        **{
            name: {variant: [row[name] for row in by_variant[variant]] for variant in VARIANTS}
            for name in by_variant["dot"][0]
        },
        trained_width=SMALL.head_dim_k,
        losses={
            variant: train_model(model, TASK.make_sampler(1, 32), train, advance).losses
            for variant, model in models.items()
        },
        accuracy={
            variant: measure_accuracy(model, TASK.make_eval_batch()) for variant, model in models.items()
        },
    )


def measure_random_scores(d_k: int, rule: AttentionSpec) -> dict[str, float]:
    """Measure scores of random queries and keys with mean 0 and variance 1."""
    q_1QK, k_1LK = torch.randn(1, NUM_QUERIES, d_k), torch.randn(1, NUM_KEYS, d_k)
    products_QL = attention_scores(q_1QK, k_1LK, AttentionSpec("dot"))[0].requires_grad_()
    scores_QL = products_QL if rule.score == "dot" else products_QL / d_k**0.5
    weights_QL = scores_QL.softmax(-1)
    norms_Q = measure_softmax_gradient(weights_QL, products_QL)
    return {
        "variance": scores_QL.var().item(),
        "entropy": compute_entropy(weights_QL.detach()).mean().item(),
        "max_weight": weights_QL.detach().amax(-1).mean().item(),
        "gradient": norms_Q.median().item(),
        "gradient_mean": norms_Q.mean().item(),
    }


def compute_entropy(weights: Tensor) -> Tensor:
    """Return the entropy -sum p log2 p in bits."""
    return -torch.xlogy(weights, weights).sum(-1) / math.log(2)


def measure_softmax_gradient(weights_QL: Tensor, scores_QL: Tensor) -> Tensor:
    """Return the norms, at the inputs of the softmax, of random gradients of norm 1 at the weights."""
    incoming_QL = torch.nn.functional.normalize(torch.randn_like(weights_QL), dim=-1)
    (outgoing_QL,) = torch.autograd.grad(weights_QL, scores_QL, incoming_QL)
    norms_Q: Tensor = outgoing_QL.norm(dim=-1)
    return norms_Q


def make_table(results: ScalingResults, labels: Labels) -> ReportTable:
    measures = ("variance", "entropy", "gradient")
    columns = [
        "d_k",
        *(f"{labels[name]}: {labels[variant]}" for name in measures for variant in ("dot", "scaled-dot")),
    ]
    rows = [
        [
            d_k,
            *(
                getattr(results, name)[variant][index]
                for name in measures
                for variant in ("dot", "scaled-dot")
            ),
        ]
        for index, d_k in enumerate(results.widths)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: ScalingResults, labels: Labels) -> Any:
    figure, axes = make_axes(2, 2)
    panels = zip(axes, ("variance", "entropy", "gradient"), strict=False)
    for axis, name in panels:
        for variant in VARIANTS:
            values = getattr(results, name)[variant]
            axis.plot(results.widths, values, "o-", color=VARIANT_COLORS[variant], label=labels[variant])
        axis.set_xscale("log", base=4)
        axis.set_xticks(results.widths, [f"{width}" for width in results.widths])
        axis.set(xlabel="d_k", ylabel=labels[name])
    set_log_scale(axes[0])
    axes[0].plot(results.widths, results.widths, color="0.6", linestyle=":", label=labels["d_k"])
    axes[1].set_ylim(0, math.log2(results.keys))
    axes[2].set_ylim(0, None)
    for variant in VARIANTS:
        plot_curve(axes[3], results.losses[variant], VARIANT_COLORS[variant], labels[variant])
    axes[3].set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend()
    axes[3].legend()
    return figure
