"""What the warm-up does to the first steps (5.3): Adam's first updates are as large as the rate allows.

A post-norm stack of the paper's depth learns the same lessons at the same peak rate, reached at once or
little by little.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from manyheads.config import ModelConfig, TrainConfig
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, curve, frame
from manyheads.paper.notes.learning import PLAN, Course, accuracy, fresh, learn, mean, untold
from manyheads.paper.notes.tasks import SAY_THE_ONE_BEFORE
from manyheads.paper.report import Table, Value
from manyheads.presets import BASE
from manyheads.progress import ReportProgress, make_counter
from manyheads.train.schedule import learning_rate

STAGE = "warm-up"
TASK = SAY_THE_ONE_BEFORE
SMALL = ModelConfig(vocab_size=TASK.vocabulary, layers=6, d_model=64, d_ff=128, heads=4, dropout=0.0)
PEAK = 4e-3
COLOUR_OF = {"with": BLUE, "without": ORANGE}
FIRST = 10  # steps


@dataclass(frozen=True)
class Warmup:
    """By way: with and without."""

    EXPECTED: ClassVar = ("first_updates", "learning")

    warmup: int  # steps
    peak: float  # learning rate
    layers: int
    losses: dict[str, list[float]]
    gradients: dict[str, list[float]]
    updates: dict[str, list[float]]
    last_loss: dict[str, float]
    accuracy: dict[str, float]
    paper_first: float  # the paper's learning rate at step 1, and at its peak
    paper_peak: float

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "first_updates": mean(self.updates["without"][:FIRST]) > 2 * mean(self.updates["with"][:FIRST]),
            "learning": self.last_loss["with"] < self.last_loss["without"] - 0.1,
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "warmup": f"{self.warmup}",
            "steps": f"{len(self.losses['with'])}",
            "peak": f"{self.peak:g}",
            "layers": f"{self.layers}",
            "first": f"{FIRST}",
            "times": f"{mean(self.updates['without'][:FIRST]) / mean(self.updates['with'][:FIRST]):.0f}",
            "paper_first": f"{self.paper_first:.2e}",
            "paper_peak": f"{self.paper_peak:.2e}",
        }
        for way in COLOUR_OF:
            told[f"update_{way}"] = f"{mean(self.updates[way][:FIRST]):.2%}"
            told[f"gradient_first_{way}"] = f"{self.gradients[way][0]:.2f}"
            told[f"gradient_{way}"] = f"{mean(self.gradients[way][-FIRST:]):.2f}"
            told[f"loss_{way}"] = f"{self.last_loss[way]:.2f}"
            told[f"accuracy_{way}"] = f"{self.accuracy[way]:.1%}"
        return told


def measure(tell: ReportProgress = untold, *, steps: int = 150, warmup: int = 60) -> Warmup:
    advance = make_counter(tell, STAGE, 2 * steps)
    gradual = replace(PLAN, steps=steps, warmup=warmup, learning_rate=PEAK)
    courses: dict[str, Course] = {}
    right: dict[str, float] = {}
    for way, train in (("with", gradual), ("without", replace(gradual, warmup=1))):
        model = fresh(SMALL)
        courses[way] = learn(model, TASK.lessons(1, 32), train, advance)
        right[way] = accuracy(model, TASK.judged())
    paper = TrainConfig()
    return Warmup(
        warmup=warmup,
        peak=PEAK,
        layers=SMALL.layers,
        losses={way: course.losses for way, course in courses.items()},
        gradients={way: course.gradients for way, course in courses.items()},
        updates={way: course.updates for way, course in courses.items()},
        last_loss={way: course.last_loss for way, course in courses.items()},
        accuracy=right,
        paper_first=learning_rate(1, paper, BASE.d_model),
        paper_peak=learning_rate(paper.warmup, paper, BASE.d_model),
    )


def table(numbers: Warmup, labels: Labels) -> Table:
    columns = [labels[name] for name in ("way", "first_update", "gradient_then", "loss_then", "right")]
    rows: list[list[Value]] = [
        [
            labels[way],
            f"{mean(numbers.updates[way][:FIRST]):.2%}",
            mean(numbers.gradients[way][-FIRST:]),
            numbers.last_loss[way],
            f"{numbers.accuracy[way]:.1%}",
        ]
        for way in COLOUR_OF
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Warmup, labels: Labels) -> Any:
    figure, axes = frame(3)
    told = (("updates", 100.0), ("gradients", 1.0), ("losses", 1.0))
    for axis, (name, unit) in zip(axes, told, strict=True):
        for way, color in COLOUR_OF.items():
            curve(axis, [unit * one for one in getattr(numbers, name)[way]], color, labels[way])
        axis.axvline(numbers.warmup, color="0.7", linestyle=":")
        axis.set(xlabel=labels["step"], ylabel=labels[name], ylim=(0, None))
    axes[0].legend()
    return figure
