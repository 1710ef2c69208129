"""What the warm-up does to the first steps (5.3): Adam's first updates are as large as the rate allows.

A post-norm stack of the paper's depth learns the same lessons at the same peak rate, reached at once or
little by little.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from manyheads.config import TrainConfig, TransformerConfig
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes, plot_curve
from manyheads.paper.notes.learning import (
    TRAINING,
    TrainingHistory,
    build_model,
    ignore_progress,
    mean,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.tasks import PREVIOUS_WORD_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.presets import BASE
from manyheads.progress import ReportProgress, make_counter
from manyheads.train.schedule import learning_rate

STAGE = "warm-up"
TASK = PREVIOUS_WORD_TASK
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, layers=6, d_model=64, d_ff=128, heads=4, dropout=0.0)
PEAK_LEARNING_RATE = 4e-3
VARIANT_COLORS = {"with": BLUE, "without": ORANGE}
FIRST_STEPS = 10  # steps


@dataclass(frozen=True)
class WarmupResults:
    """By way: with and without."""

    EXPECTED: ClassVar = ("first_updates", "learning")

    warmup: int  # steps
    peak_learning_rate: float  # learning rate
    layers: int
    losses: dict[str, list[float]]
    gradient_norms: dict[str, list[float]]
    update_ratios: dict[str, list[float]]
    final_loss: dict[str, float]
    accuracy: dict[str, float]
    paper_first_rate: float  # the paper's learning rate at step 1, and at its peak
    paper_peak_rate: float

    def first_update(self, variant: str) -> float:
        """Return the mean update ratio of the first steps."""
        return mean(self.update_ratios[variant][:FIRST_STEPS])

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "first_updates": self.first_update("without") > 2 * self.first_update("with"),
            "learning": self.final_loss["with"] < self.final_loss["without"] - 0.1,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        told = {
            "warmup": f"{self.warmup}",
            "steps": f"{len(self.losses['with'])}",
            "peak": f"{self.peak_learning_rate:g}",
            "layers": f"{self.layers}",
            "first": f"{FIRST_STEPS}",
            "times": f"{self.first_update('without') / self.first_update('with'):.0f}",
            "paper_first": f"{self.paper_first_rate:.2e}",
            "paper_peak": f"{self.paper_peak_rate:.2e}",
        }
        for way in VARIANT_COLORS:
            told[f"update_{way}"] = f"{self.first_update(way):.2%}"
            told[f"gradient_first_{way}"] = f"{self.gradient_norms[way][0]:.2f}"
            told[f"gradient_{way}"] = f"{mean(self.gradient_norms[way][-FIRST_STEPS:]):.2f}"
            told[f"loss_{way}"] = f"{self.final_loss[way]:.2f}"
            told[f"accuracy_{way}"] = f"{self.accuracy[way]:.1%}"
        return told


def measure(
    report_progress: ReportProgress = ignore_progress, *, steps: int = 150, warmup: int = 60
) -> WarmupResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    gradual = replace(TRAINING, steps=steps, warmup=warmup, learning_rate=PEAK_LEARNING_RATE)
    courses: dict[str, TrainingHistory] = {}
    right: dict[str, float] = {}
    for way, train in (("with", gradual), ("without", replace(gradual, warmup=1))):
        model = build_model(SMALL)
        courses[way] = train_model(model, TASK.make_sampler(1, 32), train, advance)
        right[way] = measure_accuracy(model, TASK.make_eval_batch())
    paper = TrainConfig()
    return WarmupResults(
        warmup=warmup,
        peak_learning_rate=PEAK_LEARNING_RATE,
        layers=SMALL.encoder_layers,
        losses={way: course.losses for way, course in courses.items()},
        gradient_norms={way: course.gradient_norms for way, course in courses.items()},
        update_ratios={way: course.update_ratios for way, course in courses.items()},
        final_loss={way: course.final_loss for way, course in courses.items()},
        accuracy=right,
        paper_first_rate=learning_rate(1, paper, BASE.d_model),
        paper_peak_rate=learning_rate(paper.warmup, paper, BASE.d_model),
    )


def make_table(numbers: WarmupResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("way", "first_update", "gradient_then", "loss_then", "right")]
    rows: list[list[Cell]] = [
        [
            labels[way],
            f"{numbers.first_update(way):.2%}",
            mean(numbers.gradient_norms[way][-FIRST_STEPS:]),
            numbers.final_loss[way],
            f"{numbers.accuracy[way]:.1%}",
        ]
        for way in VARIANT_COLORS
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: WarmupResults, labels: Labels) -> Any:
    figure, axes = make_axes(3)
    told = (("updates", 100.0), ("gradients", 1.0), ("losses", 1.0))
    for axis, (name, unit) in zip(axes, told, strict=True):
        for way, color in VARIANT_COLORS.items():
            plot_curve(axis, [unit * one for one in getattr(numbers, name)[way]], color, labels[way])
        axis.axvline(numbers.warmup, color="0.7", linestyle=":")
        axis.set(xlabel=labels["step"], ylabel=labels[name], ylim=(0, None))
    axes[0].legend()
    return figure
