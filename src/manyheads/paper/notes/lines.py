"""The five notes line by line: what no other question answers, computed at once or by a short run.

Shapes: N positions, D width, H heads.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.model.layers import FeedForward
from manyheads.paper.layer_measurements import count_hops, measure_depth, measure_peak_bytes, measure_seconds
from manyheads.paper.layer_types import LAYERS, LayerCall, LayerSize
from manyheads.paper.notes.drawing import BLUE, GREEN, ORANGE, Labels, make_axes, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    LabeledBatch,
    build_model,
    compute_hidden,
    ignore_progress,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.presets import BASE
from manyheads.progress import ReportProgress, make_counter
from manyheads.train.loss import chunked_loss
from manyheads.train.schedule import learning_rate

STAGE = "line by line"
WIDTHS = (16, 32, 64, 128, 256)  # d_k of the compared compatibility functions
TRAINED_WIDTHS = (16, 256)
FUNCTIONS = ("additive", "dot", "scaled-dot")
COST_LENGTH = 256  # positions
NUM_PATH = 81  # positions of path lengths, a power of k
NUM_CHAIN = 128
SAMPLES = {"few": 1, "some": 100, "many": 10_000}  # of hard attention
OVERFIT_SENTENCES = 24


@dataclass(frozen=True)
class LineResults:
    """Numbers by name; costs and accuracies by compatibility function and d_k."""

    EXPECTED: ClassVar = ("additive_costs",)

    numbers: dict[str, float]
    texts: dict[str, str]
    milliseconds: dict[str, list[float]]
    mebibytes: dict[str, list[float]]
    accuracy: dict[str, dict[int, list[float]]]  # by initial gain: that of the other questions, the default
    steps: int

    @property
    def findings(self) -> dict[str, bool]:
        ratio = self.milliseconds["additive"][-1] / self.milliseconds["scaled-dot"][-1]
        return {"additive_costs": ratio > 1.5}

    @property
    def placeholders(self) -> dict[str, str]:
        values = {name: format_number(value) for name, value in self.numbers.items()} | self.texts
        for name, costs in (("time", self.milliseconds), ("memory", self.mebibytes)):
            for index, place in ((0, "narrow"), (-1, "wide")):
                values[f"{name}_{place}"] = f"{costs['additive'][index] / costs['scaled-dot'][index]:.1f}"
        for function in FUNCTIONS:
            for width in TRAINED_WIDTHS:
                place = "narrow" if width == TRAINED_WIDTHS[0] else "wide"
                key = function.replace("-", "_")
                values[f"{key}_{place}"], values[f"{key}_{place}_default"] = (
                    f"{share:.1%}" for share in self.accuracy[function][width]
                )
        values |= {"narrow": f"{WIDTHS[0]}", "wide": f"{WIDTHS[-1]}", "steps": f"{self.steps}"}
        return values | {"length": f"{COST_LENGTH}"}


def format_number(value: float) -> str:
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.5g}" if abs(value) < 1e-3 else f"{value:.4g}"


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 150) -> LineResults:
    torch.manual_seed(0)
    numbers, texts = measure_distance() | measure_sampling() | measure_masking(), format_small_examples()
    numbers |= measure_resolution() | measure_positions_and_rate() | measure_paths()
    milliseconds, mebibytes = measure_compatibility_costs()
    runs = 2 * len(FUNCTIONS) * len(TRAINED_WIDTHS) + 2
    advance = make_counter(report_progress, STAGE, runs * steps)
    train = replace(TRAINING, steps=steps)
    accuracy: dict[str, dict[int, list[float]]] = {}
    for function in FUNCTIONS:
        accuracy[function] = {}
        for width in TRAINED_WIDTHS:
            config = TransformerConfig(
                vocab_size=PREVIOUS_WORD_TASK.vocab_size, layers=1, d_model=64, d_ff=128, heads=1,
                dropout=0.0, d_k=width, d_v=64, attention=function,  # type: ignore[arg-type]
            )  # fmt: skip
            accuracy[function][width] = []
            for gain in (1.0, BASE.init_gain):
                model = build_model(config, init_gain=gain)
                train_model(model, PREVIOUS_WORD_TASK.make_sampler(1, 32), train, advance)
                accuracy[function][width].append(
                    measure_accuracy(model, PREVIOUS_WORD_TASK.make_eval_batch())
                )
    numbers |= measure_overfitting(train, advance)
    return LineResults(numbers, texts, milliseconds, mebibytes, accuracy, steps)


# ---- notes A and B


def measure_distance(n: int = 10, d: int = 64) -> dict[str, float]:
    """Compare scores with distances: how often a word is nearest to itself, and how asymmetric they are."""
    x, w_q, w_k = torch.randn(200, n, d), torch.randn(d, d) / d**0.5, torch.randn(d, d) / d**0.5
    x = F.layer_norm(x, (d,))
    scores = {
        "distance": -torch.cdist(x, x).square(),
        "cosine": F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).mT,
        "learned": (x @ w_q) @ (x @ w_k).mT / d**0.5,
    }
    values = {}
    for name, score in scores.items():
        values[f"{name}_self"] = 100 * (score.argmax(-1) == torch.arange(n)).double().mean().item()
        values[f"{name}_asymmetry"] = ((score - score.mT).norm() / score.norm()).item()
    values["kernel_change"] = (position_kernel(x[0]) - position_kernel(x[1])).abs().mean().item()
    values["learned_change"] = (scores["learned"][0] - scores["learned"][1]).abs().mean().item()
    return {"distance_words": float(n), **values}


def position_kernel(x_ND: Tensor) -> Tensor:
    """Return scores that depend on the distance of positions alone. [N, N]"""
    positions = torch.arange(len(x_ND), dtype=torch.float32)
    return -(positions[:, None] - positions).abs()


def measure_sampling(n: int = 8, d: int = 16) -> dict[str, float]:
    """Read the weights as a distribution: entropy, and the error of outputs from sampled, hard attention."""
    weights, values = torch.randn(n).softmax(-1), torch.randn(n, d)
    expected = weights @ values
    result = {"weight_entropy": -(weights * weights.log2()).sum().item(), "max_entropy": math.log2(n)}
    for name, count in SAMPLES.items():
        sampled = values[torch.multinomial(weights, count, replacement=True)].mean(0)
        result |= {
            f"samples_{name}": float(count),
            f"sample_error_{name}": (sampled - expected).norm().item(),
        }
    result["output_deviation"] = (weights @ (values - expected).square()).mean().sqrt().item()
    return result


def measure_resolution(d: int = 32) -> dict[str, float]:
    """One averaging head cannot tell two words in either order apart; two heads can.

    The notes' three sentences: of "I", one head may gather actions, another places.
    """
    action, place = F.normalize(torch.randn(2, 3, d), dim=-1)  # went came took; school home rest
    action, place = action.mean(0), place.mean(0)
    averaged = (action + place) / 2
    swapped = (place + action) / 2
    separate, exchanged = torch.cat([action, place]), torch.cat([place, action])
    return {
        "one_head_difference": (averaged - swapped).norm().item(),
        "two_head_difference": (separate - exchanged).norm().item(),
        "one_head_similarity": F.cosine_similarity(averaged, action, dim=0).item(),
        "two_head_similarity": F.cosine_similarity(separate[:d], action, dim=0).item(),
    }


def measure_paths() -> dict[str, float]:
    """Sequential operations, and layers between two positions, as Table 1 measures them."""
    by_name = {layer.name: layer for layer in LAYERS}
    values = {"path_positions": float(NUM_PATH), "chain_positions": float(NUM_CHAIN)}
    for key, name, k in (
        ("attention", "self-attention", 0),
        ("contiguous", "convolution, contiguous", 3),
        ("dilated", "convolution, dilated", 3),
    ):
        values[f"hops_{key}"] = float(count_hops(by_name[name], NUM_PATH, k))
    for key, name in (("attention", "self-attention"), ("recurrent", "recurrent")):
        with torch.no_grad():
            values[f"chain_{key}"] = float(measure_depth(by_name[name].make_mixing(LayerSize(NUM_CHAIN, 64))))
    return values


def measure_compatibility_costs() -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measure milliseconds and MiB of the scores by each compatibility function, forward."""
    milliseconds: dict[str, list[float]] = {name: [] for name in FUNCTIONS}
    mebibytes: dict[str, list[float]] = {name: [] for name in FUNCTIONS}
    for width in WIDTHS:
        q, k, energy = torch.randn(COST_LENGTH, width), torch.randn(COST_LENGTH, width), torch.randn(width)
        calls = {
            "additive": LayerCall((q, k), lambda q=q, k=k, e=energy: (q[:, None] + k).tanh() @ e),  # type: ignore[misc]
            "dot": LayerCall((q, k), lambda q=q, k=k: q @ k.T),  # type: ignore[misc]
            "scaled-dot": LayerCall((q, k), lambda q=q, k=k, w=width: q @ k.T / w**0.5),  # type: ignore[misc]
        }
        with torch.no_grad():
            seconds = measure_seconds(calls, "cpu", 3)
            for name, call in calls.items():
                milliseconds[name].append(1e3 * seconds[name])
                mebibytes[name].append(measure_peak_bytes(call, "cpu") / 2**20)
    return milliseconds, mebibytes


# ---- notes C, D and E


def measure_masking() -> dict[str, float]:
    """Masking after the softmax (zero and renormalize) against minus infinity before it."""
    scores = torch.randn(6, 6, dtype=torch.float64)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    difference = (mask_before(scores, visible) - mask_after(scores, visible)).abs().max().item()
    far = torch.tensor([[0.0, 0.0, 120.0]])  # the hidden score is much larger
    seen = torch.tensor([[True, True, False]])
    before, after = mask_before(far, seen), mask_after(far, seen)
    learned = far.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mask_after(learned, seen)[0, 0], learned)
    hidden = torch.zeros(1, 3, dtype=torch.bool)
    return {
        "mask_difference": difference,
        "mask_gap": 120.0,
        "before_weight": before[0, 0].item(),
        "after_is_nan": float(after.isnan().sum().item()),
        "after_gradient_nan": float(gradient.isnan().sum().item()),
        "hidden_rows_nan": float(mask_after(far, hidden).isnan().sum().item()),
        "row_size": float(far.numel()),
    }


def mask_before(scores: Tensor, visible: Tensor) -> Tensor:
    return scores.masked_fill(~visible, -math.inf).softmax(-1)


def mask_after(scores: Tensor, visible: Tensor) -> Tensor:
    weights = scores.softmax(-1) * visible
    return weights / weights.sum(-1, keepdim=True)


def format_small_examples() -> dict[str, str]:
    """The notes' examples that are numbers themselves."""
    left, right = torch.tensor([1.0, -4.0]), torch.tensor([2.0, 3.0])
    node = torch.tensor([3.0, 5.0, -2.0])
    normalized = (node - node.mean()) / node.var(correction=0).sqrt()
    vector = torch.tensor([3.0, 5.0, -2.0, 6.0])
    group = F.group_norm(vector[None, :, None], 2, eps=0)[0, :, 0]
    weights = torch.tensor([112.0, 96.0]).div(64**0.5).softmax(-1)
    smoothed = {name: smoothing_target(name) for name in ("all", "others")}
    return {
        "left": format_vector(left), "right": format_vector(right), "sum": format_vector(left + right),
        "node": format_vector(node), "node_mean": f"{node.mean().item():g}",
        "node_normalized": format_vector(normalized, 2),
        "vector": format_vector(vector), "vector_layer": format_vector(F.layer_norm(vector, (4,), eps=0), 2),
        "vector_group": format_vector(group, 2),
        "thinking": f"{weights[0].item():.2f}", "machines": f"{weights[1].item():.2f}",
        "thinking_scores": "112, 96",
        "target_all": format_vector(smoothed["all"], 3),
        "target_others": format_vector(smoothed["others"], 3),
    }  # fmt: skip


def format_vector(vector: Tensor, digits: int | None = None) -> str:
    numbers = (f"{value:g}" if digits is None else f"{value:.{digits}f}" for value in vector.tolist())
    return f"({', '.join(numbers)})"


def smoothing_target(over: str) -> Tensor:
    """Return the target of our loss for five words: softmax minus the gradient at the logits."""
    logits = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    output = nn.Linear(5, 5, bias=False, dtype=torch.float64)
    with torch.no_grad():
        output.weight.copy_(torch.eye(5))
    train = TrainConfig(label_smoothing=0.1, label_smoothing_over=over)  # type: ignore[arg-type]
    chunked_loss(logits, output, torch.tensor([0]), train).total.backward()
    assert logits.grad is not None
    return (logits.softmax(-1) - logits.grad).detach()[0]


def measure_positions_and_rate() -> dict[str, float]:
    """Wavelengths, the rate at two steps, FFN as convolutions, what embeddings lose without their factor."""
    d = BASE.d_model
    feed_forward, x = FeedForward(replace(BASE, d_model=16, d_ff=32)), torch.randn(7, 16)
    convolved = x.T[None]
    for index, linear in enumerate((feed_forward.w_1, feed_forward.w_2)):
        convolved = F.conv1d(convolved, linear.weight[..., None], linear.bias)
        convolved = convolved.relu() if index == 0 else convolved
    train = TrainConfig()
    return {
        "shortest_wave": 2 * math.pi,
        "longest_wave": 2 * math.pi * 10000 ** ((d - 2) / d),
        "wave_bound": 2 * math.pi * 10000,
        "convolution_difference": (feed_forward(x) - convolved[0].T).abs().max().item(),
        "embedding_factor": d**0.5,
        "embedding_without": d**-0.5,
        "position_size": 0.5**0.5,
        "rate_first": learning_rate(1, train, d),
        "rate_peak": learning_rate(train.warmup, train, d),
        "rate_last": learning_rate(100_000, train, d),
        "last_step": 100_000.0,
        "peak_step": float(train.warmup),
    }


def measure_overfitting(train: TrainConfig, advance: Any) -> dict[str, float]:
    """Train on few sentences again and again, with and without smoothing: loss on them and on others."""
    task = PREVIOUS_WORD_TASK
    few, others = task.make_sampler(7, OVERFIT_SENTENCES)(), task.make_eval_batch()
    config = TransformerConfig(
        vocab_size=task.vocab_size, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0
    )
    values = {"overfit_sentences": float(OVERFIT_SENTENCES)}
    for name, smoothing in (("plain", 0.0), ("smoothed", 0.1)):
        model = build_model(config)
        train_model(model, lambda: few, replace(train, label_smoothing=smoothing), advance)
        values[f"overfit_train_{name}"] = measure_loss(model, few)
        values[f"overfit_valid_{name}"] = measure_loss(model, others)
    return values


@torch.no_grad()
def measure_loss(model: Any, batch: LabeledBatch) -> float:
    model.eval()
    return F.cross_entropy(model.output(compute_hidden(model, batch)), batch.labels_T).item()


# ---- report


def make_table(results: LineResults, labels: Labels) -> ReportTable:
    columns = [
        "d_k",
        *(f"{labels[measure_name]}: {labels[name]}" for measure_name in ("ms", "mib") for name in FUNCTIONS),
    ]
    rows: list[list[Cell]] = [
        [
            width,
            *(
                costs[name][index]
                for costs in (results.milliseconds, results.mebibytes)
                for name in FUNCTIONS
            ),
        ]
        for index, width in enumerate(WIDTHS)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: LineResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    for costs, axis, measure_name in ((results.milliseconds, left, "ms"), (results.mebibytes, right, "mib")):
        for name, color in zip(FUNCTIONS, (ORANGE, GREEN, BLUE), strict=True):
            axis.plot(WIDTHS, costs[name], "o-", color=color, label=labels[name])
        axis.set_xscale("log", base=2)
        axis.set_xticks(WIDTHS, [f"{width}" for width in WIDTHS])
        axis.set(xlabel="d_k", ylabel=labels[measure_name])
        set_log_scale(axis)
    left.legend()
    return figure
