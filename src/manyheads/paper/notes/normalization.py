"""Layer against batch normalization: a vector by itself, or each number over all tokens of the batch.

Dropout is off, so that training and evaluation differ by the normalization alone.
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
BATCH_TOKENS = 256  # of a training batch, whose sentences have one length, as like lengths go together (5.1)
NUM_OTHER_SENTENCES = 20  # that a sentence is seen in
FINAL_STEPS = 50  # steps of training whose mean loss is told: lengths differ from step to step


@dataclass(frozen=True)
class NormalizationResults:
    """By way: layer and batch."""

    EXPECTED: ClassVar = ("company", "modes")

    batch_sizes: list[int]
    lengths: list[int]
    batch_dependence: dict[
        str, float
    ]  # change of a sentence's vectors by its company, largest, in training mode
    final_losses: dict[str, float]  # loss in the end of training
    by_batch: dict[str, dict[str, list[float]]]  # way, mode (train, eval): loss by size of the batch
    by_length: dict[str, dict[str, list[float]]]  # the same by length of the sentences
    steps: int

    def mode_gap(self, way: str) -> float:
        """The largest difference between the two modes, over sizes and lengths."""
        told = (self.by_batch[way], self.by_length[way])
        return max(abs(a - b) for one in told for a, b in zip(one["train"], one["eval"], strict=True))

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "company": self.batch_dependence["batch"] > 100 * self.batch_dependence["layer"],
            "modes": self.mode_gap("batch") > self.mode_gap("layer") + 0.02,
            "batch_learns_faster": self.final_losses["batch"] < self.final_losses["layer"],
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "steps": f"{self.steps}",
            "alone_train": f"{self.by_batch['batch']['train'][0]:.3f}",
            "alone_eval": f"{self.by_batch['batch']['eval'][0]:.3f}",
            "many": f"{self.batch_sizes[-1]}",
            "many_train": f"{self.by_batch['batch']['train'][-1]:.3f}",
            "many_eval": f"{self.by_batch['batch']['eval'][-1]:.3f}",
            "longest": f"{self.lengths[-1]}",
            "longest_train": f"{self.by_length['batch']['train'][-1]:.3f}",
            "longest_eval": f"{self.by_length['batch']['eval'][-1]:.3f}",
        }
        for way in VARIANTS:
            told[f"company_{way}"] = format_short(self.batch_dependence[way])
            told[f"gap_{way}"] = f"{self.mode_gap(way):.3f}"
            told[f"training_{way}"] = f"{self.final_losses[way]:.3f}"
        return told


def measure(report_progress: ReportProgress = ignore_progress, *, steps: int = 250) -> NormalizationResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    train = replace(TRAINING, steps=steps)
    models = {way: build_model(config) for way, config in VARIANTS.items()}
    company = {way: measure_batch_dependence(model) for way, model in models.items()}
    courses = {way: train_model(one, sample_equal_lengths(1), train, advance) for way, one in models.items()}
    judged = TASK.make_sampler(EVAL_SEED, 2 * max(BATCH_SIZES))()
    by_size = [split_batch(judged, size) for size in BATCH_SIZES]
    by_length = [[make_batch_of_length(length)] for length in LENGTHS]
    return NormalizationResults(
        batch_sizes=list(BATCH_SIZES),
        lengths=list(LENGTHS),
        batch_dependence=company,
        final_losses={way: mean(course.losses[-FINAL_STEPS:]) for way, course in courses.items()},
        by_batch={way: measure_by_mode(model, by_size) for way, model in models.items()},
        by_length={way: measure_by_mode(model, by_length) for way, model in models.items()},
        steps=steps,
    )


def sample_equal_lengths(seed: int) -> Callable[[], LabeledBatch]:
    """Each of one length, so many sentences that their tokens are about as many."""
    chance = torch.Generator().manual_seed(seed)

    def lesson() -> LabeledBatch:
        length = int(torch.randint(LENGTHS[0], LENGTHS[-1] + 1, (), generator=chance))
        return replace(TASK, min_length=length, max_length=length).sample_batch(
            chance, BATCH_TOKENS // length
        )

    return lesson


def split_batch(lesson: LabeledBatch, sentences: int) -> list[LabeledBatch]:
    """The same sentences, so many at a time."""
    answers, source = lesson.source.split(lesson.labels_T), lesson.source
    return [
        LabeledBatch(
            source.slice_sentences(first, first + sentences), torch.cat(answers[first : first + sentences])
        )
        for first in range(0, len(answers), sentences)
    ]


def make_batch_of_length(length: int) -> LabeledBatch:
    return replace(TASK, min_length=length, max_length=length).make_sampler(
        EVAL_SEED, BATCH_TOKENS // length
    )()


def measure_by_mode(model: Transformer, sets: list[list[LabeledBatch]]) -> dict[str, list[float]]:
    """The loss of each set, with the statistics of the batch at hand (train) and with those kept (eval)."""
    return {
        mode: [measure_loss(model, lessons, mode == "train") for lessons in sets]
        for mode in ("train", "eval")
    }


@torch.no_grad()
def measure_loss(model: Transformer, lessons: list[LabeledBatch], training: bool) -> float:
    copied = copy.deepcopy(model).train(training)  # what it keeps of a batch is forgotten
    total = tokens = 0.0
    for lesson in lessons:
        loss = reference_loss(copied.output(compute_hidden(copied, lesson)), lesson.labels_T, TRAINING)
        total, tokens = total + loss.nll.item(), tokens + loss.tokens
    return total / tokens


@torch.no_grad()
def measure_batch_dependence(model: Transformer) -> float:
    """One sentence beside another, and beside yet others: the largest difference of its vectors."""
    model = copy.deepcopy(model).train()
    lessons = TASK.make_sampler(1, 1)
    sentence, *others = (lessons().source.tokens.tolist() for _ in range(1 + NUM_OTHER_SENTENCES))
    outputs = [model.encode(Packed.of([sentence, other])).hidden[: len(sentence)] for other in others]
    return max((one - outputs[0]).abs().max().item() for one in outputs)


def make_table(numbers: NormalizationResults, labels: Labels) -> ReportTable:
    ways = [(way, mode) for way in VARIANTS for mode in ("train", "eval")]
    columns = [labels["batches"], *(f"{labels[way]}, {labels[mode]}" for way, mode in ways)]
    rows: list[list[Cell]] = []
    for name, sizes, losses in (
        ("batch_size", numbers.batch_sizes, numbers.by_batch),
        ("length", numbers.lengths, numbers.by_length),
    ):
        for place, size in enumerate(sizes):
            rows.append([f"{labels[name]}: {size}", *(losses[way][mode][place] for way, mode in ways)])
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: NormalizationResults, labels: Labels) -> Any:
    figure, axes = make_axes(3)
    for axis, sizes, losses, name in (
        (axes[0], numbers.batch_sizes, numbers.by_batch, "batch_size"),
        (axes[1], numbers.lengths, numbers.by_length, "length"),
    ):
        for way in VARIANTS:
            for mode, style in (("train", "--"), ("eval", "-")):
                label = f"{labels[way]}, {labels[mode]}"
                axis.plot(sizes, losses[way][mode], f"o{style}", color=VARIANT_COLORS[way], ms=4, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size}" for size in sizes])
        axis.set(xlabel=labels[name], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend(fontsize=8)
    places = range(len(VARIANTS))
    axes[2].bar(
        places,
        [numbers.batch_dependence[way] for way in VARIANTS],
        color=[VARIANT_COLORS[way] for way in VARIANTS],
        width=0.5,
    )
    axes[2].set_xticks(places, [labels[way] for way in VARIANTS])
    axes[2].set(ylabel=labels["company"])
    set_log_scale(axes[2])
    return figure
