"""What the warm-up does to the first steps (5.3): Adam's first updates are as large as the learning rate.

A post-norm stack of the paper's depth is trained on the same batches with the same peak learning rate,
reached at once or gradually.
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
FIRST_STEPS = 10


@dataclass(frozen=True)
class WarmupResults:
    """By variant: with and without warm-up."""

    EXPECTED: ClassVar = ("first_updates", "learning")

    warmup: int  # steps
    peak_learning_rate: float
    layers: int
    losses: dict[str, list[float]]
    gradient_norms: dict[str, list[float]]
    update_ratios: dict[str, list[float]]
    final_loss: dict[str, float]
    accuracy: dict[str, float]
    paper_first_rate: float  # at step 1 of the paper's schedule, and at its peak
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
        values = {
            "warmup": f"{self.warmup}",
            "steps": f"{len(self.losses['with'])}",
            "peak": f"{self.peak_learning_rate:g}",
            "layers": f"{self.layers}",
            "first": f"{FIRST_STEPS}",
            "times": f"{self.first_update('without') / self.first_update('with'):.0f}",
            "paper_first": f"{self.paper_first_rate:.2e}",
            "paper_peak": f"{self.paper_peak_rate:.2e}",
        }
        for variant in VARIANT_COLORS:
            values[f"update_{variant}"] = f"{self.first_update(variant):.2%}"
            values[f"gradient_first_{variant}"] = f"{self.gradient_norms[variant][0]:.2f}"
            values[f"gradient_{variant}"] = f"{mean(self.gradient_norms[variant][-FIRST_STEPS:]):.2f}"
            values[f"loss_{variant}"] = f"{self.final_loss[variant]:.2f}"
            values[f"accuracy_{variant}"] = f"{self.accuracy[variant]:.1%}"
        return values


def measure(
    report_progress: ReportProgress = ignore_progress, *, steps: int = 150, warmup: int = 60
) -> WarmupResults:
    advance = make_counter(report_progress, STAGE, 2 * steps)
    gradual = replace(TRAINING, steps=steps, warmup=warmup, learning_rate=PEAK_LEARNING_RATE)
    histories: dict[str, TrainingHistory] = {}
    accuracy: dict[str, float] = {}
    for variant, train in (("with", gradual), ("without", replace(gradual, warmup=1))):
        model = build_model(SMALL)
        histories[variant] = train_model(model, TASK.make_sampler(1, 32), train, advance)
        accuracy[variant] = measure_accuracy(model, TASK.make_eval_batch())
    paper = TrainConfig()
    return WarmupResults(
        warmup=warmup,
        peak_learning_rate=PEAK_LEARNING_RATE,
        layers=SMALL.encoder_layers,
        losses={variant: history.losses for variant, history in histories.items()},
        gradient_norms={variant: history.gradient_norms for variant, history in histories.items()},
        update_ratios={variant: history.update_ratios for variant, history in histories.items()},
        final_loss={variant: history.final_loss for variant, history in histories.items()},
        accuracy=accuracy,
        paper_first_rate=learning_rate(1, paper, BASE.d_model),
        paper_peak_rate=learning_rate(paper.warmup, paper, BASE.d_model),
    )


def make_table(results: WarmupResults, labels: Labels) -> ReportTable:
    columns = [labels[name] for name in ("variant", "first_update", "final_gradient", "final_loss", "right")]
    rows: list[list[Cell]] = [
        [
            labels[variant],
            f"{results.first_update(variant):.2%}",
            mean(results.gradient_norms[variant][-FIRST_STEPS:]),
            results.final_loss[variant],
            f"{results.accuracy[variant]:.1%}",
        ]
        for variant in VARIANT_COLORS
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: WarmupResults, labels: Labels) -> Any:
    figure, axes = make_axes(3)
    measures = (("update_ratios", 100.0), ("gradient_norms", 1.0), ("losses", 1.0))
    for axis, (name, factor) in zip(axes, measures, strict=True):
        for variant, color in VARIANT_COLORS.items():
            plot_curve(
                axis, [factor * value for value in getattr(results, name)[variant]], color, labels[variant]
            )
        axis.axvline(results.warmup, color="0.7", linestyle=":")
        axis.set(xlabel=labels["step"], ylabel=labels[name], ylim=(0, None))
    axes[0].legend()
    return figure
