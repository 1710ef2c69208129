"""Layer against batch normalization: over one vector, or over each component of all tokens of the batch.

Dropout is off, so that training and evaluation differ only in the normalization.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import TransformerConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes, set_log_scale
from manyheads.paper.notes.learning import (
    TRAINING,
    LabeledBatch,
    build_model,
    compute_hidden,
    format_short,
    ignore_progress,
    mean,
    train_model,
)
from manyheads.paper.notes.tasks import EVAL_SEED, PREVIOUS_WORD_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.progress import ReportProgress, make_counter
from manyheads.train.loss import reference_loss

STAGE = "normalization"
TASK = PREVIOUS_WORD_TASK
VARIANT_COLORS = {"layer": BLUE, "batch": ORANGE}
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
VARIANTS = {"layer": SMALL, "batch": replace(SMALL, normalization="batch")}
BATCH_SIZES = (1, 2, 4, 16, 64)  # sentences
LENGTHS = (2, 4, 8, 16)
BATCH_TOKENS = 256  # of a training batch, whose sentences have equal length (5.1)
NUM_OTHER_SENTENCES = 20  # that a sentence is paired with
FINAL_STEPS = 50  # whose mean is the final loss: lengths differ from step to step


@dataclass(frozen=True)
class NormalizationResults:
    """By variant: layer and batch normalization."""

    EXPECTED: ClassVar = ("batch_dependence", "modes")

    batch_sizes: list[int]
    lengths: list[int]
    batch_dependence: dict[
        str, float
    ]  # maximum change of a sentence's vectors by the other sentence, in training mode
    final_losses: dict[str, float]  # training loss of the last steps
    by_batch: dict[str, dict[str, list[float]]]  # variant, mode (train, eval): loss by batch size
    by_length: dict[str, dict[str, list[float]]]  # the same by sentence length
    steps: int

    def mode_gap(self, variant: str) -> float:
        """Return the maximum difference between the two modes over sizes and lengths."""
        groups = (self.by_batch[variant], self.by_length[variant])
        return max(
            abs(a - b) for losses in groups for a, b in zip(losses["train"], losses["eval"], strict=True)
        )

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "batch_dependence": self.batch_dependence["batch"] > 100 * self.batch_dependence["layer"],
            "modes": self.mode_gap("batch") > self.mode_gap("layer") + 0.02,
            "batch_learns_faster": self.final_losses["batch"] < self.final_losses["layer"],
        }

    @property
    def placeholders(self) -> dict[str, str]:
        values = {
            "steps": f"{self.steps}",
            "alone_train": f"{self.by_batch['batch']['train'][0]:.3f}",
            "alone_eval": f"{self.by_batch['batch']['eval'][0]:.3f}",
            "many": f"{self.batch_sizes[-1]}",
            "many_train": f"{self.by_batch['batch']['train'][-1]:.3f}",
            "many_eval": f"{self.by_batch['batch']['eval'][-1]:.3f}",
            "max_length": f"{self.lengths[-1]}",
            "max_length_train": f"{self.by_length['batch']['train'][-1]:.3f}",
            "max_length_eval": f"{self.by_length['batch']['eval'][-1]:.3f}",
        }
        for variant in VARIANTS:
            values[f"dependence_{variant}"] = format_short(self.batch_dependence[variant])
            values[f"gap_{variant}"] = f"{self.mode_gap(variant):.3f}"
            values[f"training_{variant}"] = f"{self.final_losses[variant]:.3f}"
        return values


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 250) -> NormalizationResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {variant: build_model(config) for variant, config in VARIANTS.items()}
    batch_dependence = {variant: measure_batch_dependence(model) for variant, model in models.items()}
    histories = {
        variant: train_model(model, sample_equal_lengths(1), train, advance)
        for variant, model in models.items()
    }
    eval_batch = TASK.make_sampler(EVAL_SEED, 2 * max(BATCH_SIZES))()
    by_size = [split_batch(eval_batch, size) for size in BATCH_SIZES]
    by_length = [[make_batch_of_length(length)] for length in LENGTHS]
    return NormalizationResults(
        batch_sizes=list(BATCH_SIZES),
        lengths=list(LENGTHS),
        batch_dependence=batch_dependence,
        final_losses={variant: mean(history.losses[-FINAL_STEPS:]) for variant, history in histories.items()},
        by_batch={variant: measure_by_mode(model, by_size) for variant, model in models.items()},
        by_length={variant: measure_by_mode(model, by_length) for variant, model in models.items()},
        steps=steps,
    )


def sample_equal_lengths(seed: int) -> Callable[[], LabeledBatch]:
    """Return a sampler of batches of equal length and about equal tokens."""
    generator = torch.Generator().manual_seed(seed)

    def sample() -> LabeledBatch:
        length = int(torch.randint(LENGTHS[0], LENGTHS[-1] + 1, (), generator=generator))
        return replace(TASK, min_length=length, max_length=length).sample_batch(
            generator, BATCH_TOKENS // length
        )

    return sample


def split_batch(batch: LabeledBatch, num_sentences: int) -> list[LabeledBatch]:
    """Split a batch into batches of `num_sentences`."""
    labels, source = batch.source.split(batch.labels_T), batch.source
    return [
        LabeledBatch(
            source.slice_sentences(start, start + num_sentences),
            torch.cat(labels[start : start + num_sentences]),
        )
        for start in range(0, len(labels), num_sentences)
    ]


def make_batch_of_length(length: int) -> LabeledBatch:
    return replace(TASK, min_length=length, max_length=length).make_sampler(
        EVAL_SEED, BATCH_TOKENS // length
    )()


def measure_by_mode(model: Transformer, batch_lists: list[list[LabeledBatch]]) -> dict[str, list[float]]:
    """Return the loss with the statistics of the batch (train) and with running statistics (eval)."""
    return {
        mode: [measure_loss(model, batches, mode == "train") for batches in batch_lists]
        for mode in ("train", "eval")
    }


@torch.no_grad()
def measure_loss(model: Transformer, batches: list[LabeledBatch], training: bool) -> float:
    copied = copy.deepcopy(model).train(training)  # running statistics of the original are unchanged
    total = tokens = 0.0
    for batch in batches:
        loss = reference_loss(copied.output(compute_hidden(copied, batch)), batch.labels_T, TRAINING)
        total, tokens = total + loss.nll.item(), tokens + loss.tokens
    return total / tokens


@torch.no_grad()
def measure_batch_dependence(model: Transformer) -> float:
    """Return the maximum change of a sentence's vectors when the other sentence of its batch changes."""
    model = copy.deepcopy(model).train()
    next_batch = TASK.make_sampler(1, 1)
    sentence, *others = (next_batch().source.tokens.tolist() for _ in range(1 + NUM_OTHER_SENTENCES))
    outputs = [model.encode(Packed.of([sentence, other])).hidden[: len(sentence)] for other in others]
    return max((output - outputs[0]).abs().max().item() for output in outputs)


def make_table(results: NormalizationResults, labels: Labels) -> ReportTable:
    variant_modes = [(variant, mode) for variant in VARIANTS for mode in ("train", "eval")]
    columns = [labels["batches"], *(f"{labels[variant]}, {labels[mode]}" for variant, mode in variant_modes)]
    rows: list[list[Cell]] = []
    for name, sizes, losses in (
        ("batch_size", results.batch_sizes, results.by_batch),
        ("length", results.lengths, results.by_length),
    ):
        for index, size in enumerate(sizes):
            rows.append(
                [
                    f"{labels[name]}: {size}",
                    *(losses[variant][mode][index] for variant, mode in variant_modes),
                ]
            )
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: NormalizationResults, labels: Labels) -> Any:
    figure, axes = make_axes(3)
    for axis, sizes, losses, name in (
        (axes[0], results.batch_sizes, results.by_batch, "batch_size"),
        (axes[1], results.lengths, results.by_length, "length"),
    ):
        for variant in VARIANTS:
            for mode, style in (("train", "--"), ("eval", "-")):
                label = f"{labels[variant]}, {labels[mode]}"
                axis.plot(
                    sizes,
                    losses[variant][mode],
                    f"o{style}",
                    color=VARIANT_COLORS[variant],
                    ms=4,
                    label=label,
                )
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size}" for size in sizes])
        axis.set(xlabel=labels[name], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend(fontsize=8)
    positions = range(len(VARIANTS))
    axes[2].bar(
        positions,
        [results.batch_dependence[variant] for variant in VARIANTS],
        color=[VARIANT_COLORS[variant] for variant in VARIANTS],
        width=0.5,
    )
    axes[2].set_xticks(positions, [labels[variant] for variant in VARIANTS])
    axes[2].set(ylabel=labels["batch_dependence"])
    set_log_scale(axes[2])
    return figure
