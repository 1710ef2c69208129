"""Why scale (3.2.1): q . k of unit-variance vectors has variance d_k, and large scores hold a softmax fast.

Shapes: Q queries, L keys, K = d_k.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from manyheads.config import ModelConfig
from manyheads.model.attention import AttentionSpec, attention_scores
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, curve, frame, logarithmic
from manyheads.paper.notes.learning import PLAN, accuracy, fresh, learn, untold
from manyheads.paper.notes.tasks import SAY_THE_ONE_BEFORE
from manyheads.paper.report import Table
from manyheads.progress import ReportProgress, make_counter

STAGE = "scaling"
COLOUR_OF = {"scaled-dot": BLUE, "dot": ORANGE}
WIDTHS = (4, 16, 64, 256, 1024)
QUERIES, KEYS = 1000, 32
TASK = SAY_THE_ONE_BEFORE
SMALL = ModelConfig(vocab_size=TASK.vocabulary, layers=1, d_model=128, d_ff=128, heads=1, dropout=0.0)
WAYS = {"scaled-dot": SMALL, "dot": replace(SMALL, attention="dot")}


@dataclass(frozen=True)
class Scale:
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
    def told(self) -> dict[str, str]:
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


def measure(tell: ReportProgress = untold, *, steps: int = 200) -> Scale:
    torch.manual_seed(0)
    by_way = {
        way: [drawn(d_k, AttentionSpec("dot" if way == "dot" else "scaled-dot")) for d_k in WIDTHS] for way in WAYS
    }
    advance = make_counter(tell, STAGE, 2 * steps)
    train = replace(PLAN, steps=steps)
    models = {way: fresh(config) for way, config in WAYS.items()}
    return Scale(
        widths=list(WIDTHS),
        keys=KEYS,
        **{name: {way: [one[name] for one in by_way[way]] for way in WAYS} for name in by_way["dot"][0]},
        trained_width=SMALL.head_dim_k,
        losses={way: learn(one, TASK.lessons(1, 32), train, advance).losses for way, one in models.items()},
        accuracy={way: accuracy(one, TASK.judged()) for way, one in models.items()},
    )


def drawn(d_k: int, rule: AttentionSpec) -> dict[str, float]:
    """Of queries and keys whose numbers are independent, with mean 0 and variance 1."""
    q_1QK, k_1LK = torch.randn(1, QUERIES, d_k), torch.randn(1, KEYS, d_k)
    scores_QL = attention_scores(q_1QK, k_1LK, rule)[0].requires_grad_()
    weights_QL = scores_QL.softmax(-1)
    return {
        "variance": scores_QL.var().item(),
        "entropy": entropy(weights_QL.detach()).mean().item(),
        "top": weights_QL.detach().amax(-1).mean().item(),
        "gradient": through_the_softmax(weights_QL, scores_QL),
    }


def entropy(weights: Tensor) -> Tensor:
    """-sum p log2 p, in bits."""
    return -torch.xlogy(weights, weights).sum(-1) / math.log(2)


def through_the_softmax(weights_QL: Tensor, scores_QL: Tensor) -> float:
    """A gradient of random direction and of norm 1 comes to the weights: the mean norm of what goes on."""
    arriving_QL = torch.nn.functional.normalize(torch.randn_like(weights_QL), dim=-1)
    (going_on_QL,) = torch.autograd.grad(weights_QL, scores_QL, arriving_QL)
    sizes_Q: Tensor = going_on_QL.norm(dim=-1)
    return sizes_Q.mean().item()


def table(numbers: Scale, labels: Labels) -> Table:
    told = ("variance", "entropy", "gradient")
    columns = ["d_k", *(f"{labels[name]}: {labels[way]}" for name in told for way in ("dot", "scaled-dot"))]
    rows = [
        [d_k, *(getattr(numbers, name)[way][place] for name in told for way in ("dot", "scaled-dot"))]
        for place, d_k in enumerate(numbers.widths)
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Scale, labels: Labels) -> Any:
    figure, axes = frame(2, 2)
    panels = zip(axes, ("variance", "entropy", "gradient"), strict=False)
    for axis, name in panels:
        for way in WAYS:
            values = getattr(numbers, name)[way]
            axis.plot(numbers.widths, values, "o-", color=COLOUR_OF[way], label=labels[way])
        axis.set_xscale("log", base=4)
        axis.set_xticks(numbers.widths, [f"{width}" for width in numbers.widths])
        axis.set(xlabel="d_k", ylabel=labels[name])
    logarithmic(axes[0])
    axes[0].plot(numbers.widths, numbers.widths, color="0.6", linestyle=":", label=labels["d_k"])
    axes[1].set_ylim(0, math.log2(numbers.keys))
    axes[2].set_ylim(0, None)
    for way in WAYS:
        curve(axes[3], numbers.losses[way], COLOUR_OF[way], labels[way])
    axes[3].set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend()
    axes[3].legend()
    return figure
