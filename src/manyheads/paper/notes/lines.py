"""The five notes line by line: what no other question answers, computed at once or by a short run.

Shapes: N positions, D width, H heads.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.paper.layer_measurements import count_hops, measure_depth, measure_peak_bytes, measure_seconds
from manyheads.paper.layer_types import LAYERS, LayerCall, LayerSize
from manyheads.paper.notes.drawing import BLUE, GREEN, ORANGE, Labels, make_axes, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    XAVIER_GAIN,
    LabeledBatch,
    build_model,
    compute_hidden,
    ignore_progress,
    initial_gain,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.small_examples import (
    format_number,
    format_small_examples,
    measure_masking,
    measure_positions_and_rate,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.presets import BASE
from manyheads.progress import ReportProgress, make_counter

STAGE = "line by line"
WIDTHS = (16, 32, 64, 128, 256)  # d_k of the compared compatibility functions
TRAINED_WIDTHS = (16, 256)
FUNCTIONS = ("additive", "dot", "scaled-dot")
COST_LENGTH = 256  # positions
NUM_PATH = 81  # positions of path lengths, a power of k
NUM_CHAIN = 128
SAMPLES = {"few": 1, "some": 100, "many": 10_000}  # of hard attention
OVERFIT_SENTENCES = 24
LENGTHS = {"short": 128, "long": 2048}  # of sentences whose attention weights are held
FACTOR = 8  # width over the rank of a factorized recurrence


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


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 600) -> LineResults:
    torch.manual_seed(0)
    numbers, texts = measure_distance() | measure_sampling() | measure_masking(), format_small_examples()
    numbers |= measure_resolution() | measure_positions_and_rate() | measure_paths()
    numbers |= measure_memory() | measure_factorization()
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
            for gain in (XAVIER_GAIN, BASE.init_gain):
                with initial_gain(gain):
                    model = build_model(config)
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


@torch.no_grad()
def measure_memory() -> dict[str, float]:
    """How many sentences fit into a GiB if the weights of eight heads are kept, as equation (1) has them."""
    values: dict[str, float] = {}
    for name, n in LENGTHS.items():
        q, k = torch.randn(8, n, 64), torch.randn(8, n, 64)
        weights = (q @ k.mT / 8).softmax(-1)
        values |= {f"{name}_length": float(n), f"{name}_batch": float(2**30 // weights.nbytes)}
    return values


def measure_factorization(d: int = 64) -> dict[str, float]:
    """A recurrence with a factorized matrix U = A B: fewer multiplications, and no shorter chain."""
    x, a, b = torch.randn(NUM_CHAIN, 1, d), torch.randn(d, d // FACTOR) / d, torch.randn(d // FACTOR, d) / d

    def run() -> Tensor:
        state, states = torch.zeros(1, d), []
        for x_BD in x:
            state = (x_BD + state @ a @ b).tanh()
            states.append(state)
        return torch.stack(states)

    with torch.no_grad():
        chain = measure_depth(LayerCall((x,), run))
    return {"factor_share": 100 * 2 * (d // FACTOR) / d, "chain_factorized": float(chain)}


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


# ---- note E


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
