"""Layer against batch normalization: a vector by itself, or each number over all tokens of the batch.

Dropout is off, so that training and evaluation differ by the normalization alone.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import ModelConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, frame, logarithmic
from manyheads.paper.notes.learning import PLAN, Lesson, fresh, hidden, in_short, learn, mean, untold
from manyheads.paper.notes.tasks import JUDGED_SEED, SAY_THE_ONE_BEFORE
from manyheads.paper.report import Table, Value
from manyheads.progress import ReportProgress, make_counter
from manyheads.train.loss import reference_loss

STAGE = "normalization"
TASK = SAY_THE_ONE_BEFORE
COLOUR_OF = {"layer": BLUE, "batch": ORANGE}
SMALL = ModelConfig(vocab_size=TASK.vocabulary, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
WAYS = {"layer": SMALL, "batch": replace(SMALL, normalization="batch")}
BATCHES = (1, 2, 4, 16, 64)  # sentences
LENGTHS = (2, 4, 8, 16)
TOKENS = 256  # of a training batch, whose sentences have one length, as like lengths go together (5.1)
COMPANIES = 20  # that a sentence is seen in
LAST = 50  # steps of training whose mean loss is told: lengths differ from step to step


@dataclass(frozen=True)
class Normalization:
    """By way: layer and batch."""

    EXPECTED: ClassVar = ("company", "modes")

    batches: list[int]
    lengths: list[int]
    company: dict[str, float]  # change of a sentence's vectors by its company, largest, in training mode
    training: dict[str, float]  # loss in the end of training
    by_batch: dict[str, dict[str, list[float]]]  # way, mode (train, eval): loss by size of the batch
    by_length: dict[str, dict[str, list[float]]]  # the same by length of the sentences
    steps: int

    def gap(self, way: str) -> float:
        """The largest difference between the two modes, over sizes and lengths."""
        told = (self.by_batch[way], self.by_length[way])
        return max(abs(a - b) for one in told for a, b in zip(one["train"], one["eval"], strict=True))

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "company": self.company["batch"] > 100 * self.company["layer"],
            "modes": self.gap("batch") > self.gap("layer") + 0.02,
            "batch_learns_faster": self.training["batch"] < self.training["layer"],
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "steps": f"{self.steps}",
            "alone_train": f"{self.by_batch['batch']['train'][0]:.3f}",
            "alone_eval": f"{self.by_batch['batch']['eval'][0]:.3f}",
            "many": f"{self.batches[-1]}",
            "many_train": f"{self.by_batch['batch']['train'][-1]:.3f}",
            "many_eval": f"{self.by_batch['batch']['eval'][-1]:.3f}",
            "longest": f"{self.lengths[-1]}",
            "longest_train": f"{self.by_length['batch']['train'][-1]:.3f}",
            "longest_eval": f"{self.by_length['batch']['eval'][-1]:.3f}",
        }
        for way in WAYS:
            told[f"company_{way}"] = in_short(self.company[way])
            told[f"gap_{way}"] = f"{self.gap(way):.3f}"
            told[f"training_{way}"] = f"{self.training[way]:.3f}"
        return told


def measure(tell: ReportProgress = untold, *, steps: int = 250) -> Normalization:
    advance = make_counter(tell, STAGE, 2 * steps)
    train = replace(PLAN, steps=steps)
    models = {way: fresh(config) for way, config in WAYS.items()}
    company = {way: changed_by_company(model) for way, model in models.items()}
    courses = {way: learn(one, lessons_of_like_length(1), train, advance) for way, one in models.items()}
    judged = TASK.lessons(JUDGED_SEED, 2 * max(BATCHES))()
    by_size = [in_batches(judged, size) for size in BATCHES]
    by_length = [[of_length(length)] for length in LENGTHS]
    return Normalization(
        batches=list(BATCHES),
        lengths=list(LENGTHS),
        company=company,
        training={way: mean(course.losses[-LAST:]) for way, course in courses.items()},
        by_batch={way: by_mode(model, by_size) for way, model in models.items()},
        by_length={way: by_mode(model, by_length) for way, model in models.items()},
        steps=steps,
    )


def lessons_of_like_length(seed: int) -> Callable[[], Lesson]:
    """Each of one length, so many sentences that their tokens are about as many."""
    chance = torch.Generator().manual_seed(seed)

    def lesson() -> Lesson:
        length = int(torch.randint(LENGTHS[0], LENGTHS[-1] + 1, (), generator=chance))
        return replace(TASK, shortest=length, longest=length).lesson(chance, TOKENS // length)

    return lesson


def in_batches(lesson: Lesson, sentences: int) -> list[Lesson]:
    """The same sentences, so many at a time."""
    answers, source = lesson.source.split(lesson.labels_T), lesson.source
    return [
        Lesson(source.slice_sentences(first, first + sentences), torch.cat(answers[first : first + sentences]))
        for first in range(0, len(answers), sentences)
    ]


def of_length(length: int) -> Lesson:
    return replace(TASK, shortest=length, longest=length).lessons(JUDGED_SEED, TOKENS // length)()


def by_mode(model: Transformer, sets: list[list[Lesson]]) -> dict[str, list[float]]:
    """The loss of each set, with the statistics of the batch at hand (train) and with those kept (eval)."""
    return {
        mode: [loss_of(model, lessons, mode == "train") for lessons in sets] for mode in ("train", "eval")
    }


@torch.no_grad()
def loss_of(model: Transformer, lessons: list[Lesson], training: bool) -> float:
    copied = copy.deepcopy(model).train(training)  # what it keeps of a batch is forgotten
    total = tokens = 0.0
    for lesson in lessons:
        loss = reference_loss(copied.output(hidden(copied, lesson)), lesson.labels_T, PLAN)
        total, tokens = total + loss.nll.item(), tokens + loss.tokens
    return total / tokens


@torch.no_grad()
def changed_by_company(model: Transformer) -> float:
    """One sentence beside another, and beside yet others: the largest difference of its vectors."""
    model = copy.deepcopy(model).train()
    lessons = TASK.lessons(1, 1)
    sentence, *others = (lessons().source.tokens.tolist() for _ in range(1 + COMPANIES))
    outputs = [model.encode(Packed.of([sentence, other])).hidden[: len(sentence)] for other in others]
    return max((one - outputs[0]).abs().max().item() for one in outputs)


def table(numbers: Normalization, labels: Labels) -> Table:
    ways = [(way, mode) for way in WAYS for mode in ("train", "eval")]
    columns = [labels["batches"], *(f"{labels[way]}, {labels[mode]}" for way, mode in ways)]
    rows: list[list[Value]] = []
    for name, sizes, losses in (
        ("batch_size", numbers.batches, numbers.by_batch),
        ("length", numbers.lengths, numbers.by_length),
    ):
        for place, size in enumerate(sizes):
            rows.append([f"{labels[name]}: {size}", *(losses[way][mode][place] for way, mode in ways)])
    return Table(labels["table"], columns, rows)


def draw(numbers: Normalization, labels: Labels) -> Any:
    figure, axes = frame(3)
    for axis, sizes, losses, name in (
        (axes[0], numbers.batches, numbers.by_batch, "batch_size"),
        (axes[1], numbers.lengths, numbers.by_length, "length"),
    ):
        for way in WAYS:
            for mode, style in (("train", "--"), ("eval", "-")):
                label = f"{labels[way]}, {labels[mode]}"
                axis.plot(sizes, losses[way][mode], f"o{style}", color=COLOUR_OF[way], ms=4, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size}" for size in sizes])
        axis.set(xlabel=labels[name], ylabel=labels["loss"], ylim=(0, None))
    axes[0].legend(fontsize=8)
    places = range(len(WAYS))
    axes[2].bar(
        places, [numbers.company[way] for way in WAYS], color=[COLOUR_OF[way] for way in WAYS], width=0.5
    )
    axes[2].set_xticks(places, [labels[way] for way in WAYS])
    axes[2].set(ylabel=labels["company"])
    logarithmic(axes[2])
    return figure
