"""What positions do (3.5): without them a sentence is a bag of words; by numbers, and by a task."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import NUM_SPECIAL_TOKENS, ModelConfig
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, curve, frame, logarithmic
from manyheads.paper.notes.learning import PLAN, accuracy, fresh, in_short, learn, untold
from manyheads.paper.notes.tasks import SAY_THE_ONE_BEFORE
from manyheads.paper.report import Table, Value
from manyheads.progress import ReportProgress, make_counter

STAGE = "positions"
TASK = SAY_THE_ONE_BEFORE
COLOUR_OF = {"sinusoid": BLUE, "none": ORANGE}
SMALL = ModelConfig(vocab_size=TASK.vocabulary, layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
WAYS = {"sinusoid": SMALL, "none": replace(SMALL, positions="none")}
DOG, BITES, MAN = range(NUM_SPECIAL_TOKENS, NUM_SPECIAL_TOKENS + 3)
LENGTH, SHUFFLES = 10, 50


@dataclass(frozen=True)
class Positions:
    """By way: with the paper's sinusoids, and without positions."""

    EXPECTED: ClassVar = ("equivariant", "learning")

    length: int  # words of the sentence that is shuffled
    shuffles: int
    moved: dict[str, float]  # the largest difference between f(shuffled x) and shuffled f(x)
    size: dict[str, float]  # the root mean square of the outputs, to compare it with
    dog: dict[str, float]  # the largest difference of "dog" in "dog bites man" and "man bites dog"
    accuracy: dict[str, float]
    losses: dict[str, list[float]]
    guess: float  # one word in so many

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "equivariant": self.moved["none"] < 1e-4 < self.moved["sinusoid"],
            "learning": self.accuracy["sinusoid"] > self.accuracy["none"] + 0.2,
        }

    @property
    def told(self) -> dict[str, str]:
        told = {
            "length": f"{self.length}",
            "shuffles": f"{self.shuffles}",
            "guess": f"{self.guess:.1%}",
            "steps": f"{len(self.losses['none'])}",
        }
        for way, name in (("sinusoid", "with"), ("none", "without")):
            told[f"moved_{name}"] = in_short(self.moved[way])
            told[f"dog_{name}"] = in_short(self.dog[way])
            told[f"accuracy_{name}"] = f"{self.accuracy[way]:.1%}"
        return told


def measure(tell: ReportProgress = untold, *, steps: int = 200) -> Positions:
    advance = make_counter(tell, STAGE, 2 * steps)
    train = replace(PLAN, steps=steps)
    models = {way: fresh(config) for way, config in WAYS.items()}
    shuffled = {way: shuffle_differences(model) for way, model in models.items()}
    return Positions(
        length=LENGTH,
        shuffles=SHUFFLES,
        moved={way: moved for way, (moved, _) in shuffled.items()},
        size={way: size for way, (_, size) in shuffled.items()},
        dog={way: dog_difference(model) for way, model in models.items()},
        losses={way: learn(one, TASK.lessons(1, 64), train, advance).losses for way, one in models.items()},
        accuracy={way: accuracy(one, TASK.judged()) for way, one in models.items()},
        guess=1 / TASK.words,
    )


@torch.no_grad()
def shuffle_differences(model: Transformer) -> tuple[float, float]:
    """The largest |f(P x) - P f(x)| over shuffles P of a sentence x, and the size of f(x)."""
    chance = torch.Generator().manual_seed(0)
    words_T = torch.randint(TASK.words, (LENGTH,), generator=chance) + NUM_SPECIAL_TOKENS
    as_it_was_TD = model.encode(Packed.of([words_T.tolist()])).hidden
    largest = 0.0
    for _ in range(SHUFFLES):
        order_T = torch.randperm(LENGTH, generator=chance)
        shuffled_TD = model.encode(Packed.of([words_T[order_T].tolist()])).hidden
        largest = max(largest, (shuffled_TD - as_it_was_TD[order_T]).abs().max().item())
    return largest, as_it_was_TD.square().mean().sqrt().item()


@torch.no_grad()
def dog_difference(model: Transformer) -> float:
    one, other = Packed.of([[DOG, BITES, MAN]]), Packed.of([[MAN, BITES, DOG]])
    return (model.encode(one).hidden[0] - model.encode(other).hidden[2]).abs().max().item()


def table(numbers: Positions, labels: Labels) -> Table:
    columns = [labels["positions"], labels["moved"], labels["dog"], labels["right"]]
    rows: list[list[Value]] = [
        [labels[way], numbers.moved[way], numbers.dog[way], f"{numbers.accuracy[way]:.1%}"] for way in WAYS
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Positions, labels: Labels) -> Any:
    figure, (left, right) = frame(2)
    places = range(len(WAYS))
    left.bar(
        places,
        [max(numbers.moved[way], 1e-9) for way in WAYS],
        color=[COLOUR_OF[one] for one in WAYS],
        width=0.5,
    )
    logarithmic(left)
    left.set_xticks(places, [labels[way] for way in WAYS])
    left.set(ylabel=labels["moved"])
    for way in WAYS:
        curve(right, numbers.losses[way], COLOUR_OF[way], labels[way])
    right.set(xlabel=labels["step"], ylabel=labels["loss"], ylim=(0, None))
    right.legend()
    return figure
