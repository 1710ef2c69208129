"""Why Q, K and V apart (3.2): a vector is most like itself, so without projections every word sees itself.

Shapes: N sentences of T tokens each, D = d_model.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from manyheads.config import NUM_SPECIAL_TOKENS, TransformerConfig
from manyheads.model.attention import MultiHeadAttention
from manyheads.model.layers import EncoderLayer
from manyheads.model.transformer import Transformer
from manyheads.ops.attention import attention_scores
from manyheads.ops.attention_spec import AttentionSpec
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import COLORS, Labels, make_axes, plot_curve
from manyheads.paper.notes.learning import (
    TRAINING,
    build_model,
    ignore_progress,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK, SequenceTask
from manyheads.paper.report import Cell, ReportTable
from manyheads.progress import ReportProgress, make_counter

STAGE = "Q, K and V apart"
TASK = PREVIOUS_WORD_TASK
SMALL = TransformerConfig(layers=1, d_model=64, d_ff=128, heads=4, dropout=0.0)
VARIANTS = ("raw", "tied", "apart")  # raw inputs; one shared projection; three projections
WIDTHS = (8, 32, 128, 512)
NUM_SENTENCES = 40  # whose mean is taken
LENGTH = 10


@dataclass(frozen=True)
class ProjectionResults:
    """Diagonal shares of untrained attention by variant and width; the rest is from trained models."""

    EXPECTED: ClassVar = ("diagonal", "learning")

    widths: list[int]
    length: int  # words of a sentence
    diagonal: dict[str, list[float]]
    asymmetry: dict[str, float]  # |S - S^T| / |S| of the scores, at the largest width
    accuracy: dict[str, float]
    losses: dict[str, list[float]]
    parameters: dict[str, int]  # of the encoder

    @property
    def findings(self) -> dict[str, bool]:
        widest = {variant: shares[-1] for variant, shares in self.diagonal.items()}
        return {
            "diagonal": widest["raw"] > 0.5 > widest["apart"],
            "learning": self.accuracy["apart"] > self.accuracy["tied"] + 0.05,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        return {
            "length": f"{self.length}",
            "width": f"{self.widths[-1]}",
            "even": f"{1 / self.length:.1%}",
            **{f"diagonal_{variant}": f"{shares[-1]:.1%}" for variant, shares in self.diagonal.items()},
            **{f"asymmetry_{variant}": f"{value:.2f}" for variant, value in self.asymmetry.items()},
            **{f"accuracy_{variant}": f"{value:.1%}" for variant, value in self.accuracy.items()},
            **{f"parameters_{variant}": f"{value:,}" for variant, value in self.parameters.items()},
            "steps": f"{len(self.losses['apart'])}",
        }


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 200) -> ProjectionResults:
    diagonal: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    asymmetry = dict.fromkeys(VARIANTS, 0.0)
    for width in WIDTHS:
        for variant, scores_NTT in compute_untrained_scores(width).items():
            diagonal[variant].append(scores_NTT.softmax(-1).diagonal(dim1=-2, dim2=-1).mean().item())
            asymmetry[variant] = ((scores_NTT - scores_NTT.mT).norm() / scores_NTT.norm()).item()
    advance = make_counter(report_progress, STAGE, 2 * steps)
    models = {variant: build_variant(TASK, tied=variant == "tied") for variant in ("tied", "apart")}
    train = replace(TRAINING, steps=steps)
    return ProjectionResults(
        widths=list(WIDTHS),
        length=LENGTH,
        diagonal=diagonal,
        asymmetry=asymmetry,
        losses={
            variant: train_model(model, TASK.make_sampler(1, 64), train, advance).losses
            for variant, model in models.items()
        },
        accuracy={
            variant: measure_accuracy(model, TASK.make_eval_batch()) for variant, model in models.items()
        },
        parameters={variant: count_module_parameters(model.encoder) for variant, model in models.items()},
    )


@torch.no_grad()
def compute_untrained_scores(width: int) -> dict[str, Tensor]:
    """Of sentences as the model reads them, embedded and with positions; one head. [N, T, T]"""
    model = build_model(replace(SMALL, vocab_size=1000, d_model=width, heads=1))
    source = Packed.of(torch.randint(NUM_SPECIAL_TOKENS, 1000, (NUM_SENTENCES, LENGTH)).tolist())
    x_ND = model.embed(
        source.tokens, model.source_embedding, model.source_positions, source.positions, source.max_length
    )
    attention = get_first_attention(model)
    x, q, k = (
        torch.stack(source.split(vectors_ND))
        for vectors_ND in (x_ND, attention.w_q(x_ND), attention.w_k(x_ND))
    )
    pairs = {"raw": (x, x), "tied": (q, q), "apart": (q, k)}
    return {
        variant: attention_scores(left, right, AttentionSpec()) for variant, (left, right) in pairs.items()
    }


def build_variant(task: SequenceTask, tied: bool) -> Transformer:
    """Build a one-layer model. If q and k share a matrix, d_ff grows by the parameters that this saves.

    V keeps its own matrix: what is lost is then due to the scores alone.
    """
    config = replace(SMALL, vocab_size=task.vocab_size)
    if not tied:
        return build_model(config)
    d_model = config.d_model
    saved, per_unit = d_model**2 + d_model, 2 * d_model + 1
    model = build_model(replace(config, d_ff=config.d_ff + saved // per_unit))
    attention = get_first_attention(model)
    attention.w_k = attention.w_q
    return model


def get_first_attention(model: Transformer) -> MultiHeadAttention:
    return cast(EncoderLayer, model.encoder[0]).self_attention


def count_module_parameters(module: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def make_table(results: ProjectionResults, labels: Labels) -> ReportTable:
    columns = ["d_model", *(labels[variant] for variant in VARIANTS)]
    shares = zip(*(results.diagonal[variant] for variant in VARIANTS), strict=True)
    rows: list[list[Cell]] = [
        [width, *(f"{share:.1%}" for share in row)] for width, row in zip(results.widths, shares, strict=True)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: ProjectionResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2)
    for variant, color in zip(VARIANTS, COLORS, strict=False):
        left.plot(results.widths, results.diagonal[variant], "o-", color=color, label=labels[variant])
    left.axhline(1 / results.length, color="0.6", linestyle=":", label=labels["even"])
    left.set_xscale("log", base=2)
    left.set_xticks(results.widths, [f"{width}" for width in results.widths])
    left.set(xlabel="d_model", ylabel=labels["diagonal"], ylim=(0, 1.05))
    left.legend()
    for variant, color in zip(VARIANTS, COLORS, strict=False):
        if variant in results.losses:
            plot_curve(right, results.losses[variant], color, labels[variant])
    right.set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    right.legend()
    return figure
