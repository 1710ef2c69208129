"""Why several heads (3.2.2): one head has one set of weights, and must mix what two relations would bring.

Row (A) of the paper's Table 3, at a small scale: as many parameters, shared out among more or fewer heads.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import ModelConfig
from manyheads.model.encoder_decoder import Trace
from manyheads.model.transformer import Transformer
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, frame
from manyheads.paper.notes.learning import PLAN, Lesson, accuracy, fresh, learn, mean, untold
from manyheads.paper.notes.projections import size_of
from manyheads.paper.notes.tasks import SAY_BOTH_NEIGHBOURS
from manyheads.paper.report import Table, Value
from manyheads.progress import ReportProgress, make_counter

STAGE = "several heads"
TASK = SAY_BOTH_NEIGHBOURS
HEADS = (1, 2, 4, 8)
SMALL = ModelConfig(vocab_size=TASK.vocabulary, layers=1, d_model=64, d_ff=128, dropout=0.0)


@dataclass(frozen=True)
class Heads:
    """One layer of so many heads, each number of heads learned from so many seeds."""

    EXPECTED: ClassVar = ("several",)

    heads: list[int]
    parameters: list[int]  # of the encoder, by number of heads
    accuracies: list[list[float]]  # by number of heads and seed
    shares: list[list[list[float]]]  # by number of heads, head: on the word before, and on the one after
    words: int
    pairs: int
    steps: int

    @property
    def errors(self) -> list[float]:
        """By number of heads, the mean over seeds."""
        return [1 - mean(by_seed) for by_seed in self.accuracies]

    @property
    def best(self) -> int:
        """Which number of heads errs least."""
        return self.errors.index(min(self.errors))

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "several": self.errors[0] > 1.25 * min(self.errors[1:]),
            "too_many": self.errors[-1] > min(self.errors),
        }

    @property
    def told(self) -> dict[str, str]:
        one = self.shares[0][0]
        several = self.shares[self.best]
        return {
            "words": f"{self.words}",
            "pairs": f"{self.pairs}",
            "steps": f"{self.steps}",
            "seeds": f"{len(self.accuracies[0])}",
            "parameters": f"{self.parameters[0]:,}",
            "right_one": f"{1 - self.errors[0]:.1%}",
            "wrong_one": f"{self.errors[0]:.1%}",
            "best": f"{self.heads[self.best]}",
            "right_best": f"{1 - self.errors[self.best]:.1%}",
            "wrong_best": f"{self.errors[self.best]:.1%}",
            "most": f"{self.heads[-1]}",
            "right_most": f"{1 - self.errors[-1]:.1%}",
            "before_one": f"{one[0]:.0%}",
            "after_one": f"{one[1]:.0%}",
            "before_best": f"{max(share[0] for share in several):.0%}",
            "after_best": f"{max(share[1] for share in several):.0%}",
        }


def measure(
    tell: ReportProgress = untold, *, heads: tuple[int, ...] = HEADS, seeds: int = 2, steps: int = 250
) -> Heads:
    advance = make_counter(tell, STAGE, steps * len(heads) * seeds)
    train = replace(PLAN, steps=steps)
    judged = TASK.judged()
    accuracies: list[list[float]] = [[] for _ in heads]
    models = []
    for by_seed, count in zip(accuracies, heads, strict=True):
        for seed in range(seeds):
            model = fresh(replace(SMALL, heads=count), seed)
            learn(model, TASK.lessons(seed + 1, 64), train, advance)
            by_seed.append(accuracy(model, judged))
        models.append(model)
    return Heads(
        heads=list(heads),
        parameters=[size_of(model.encoder) for model in models],
        accuracies=accuracies,
        shares=[neighbors_seen(model, judged) for model in models],
        words=TASK.words,
        pairs=TASK.words**2,
        steps=steps,
    )


@torch.no_grad()
def neighbors_seen(model: Transformer, lesson: Lesson) -> list[list[float]]:
    """Of each head the mean weight on the word before and on the word after, where there are both."""
    trace = Trace()
    model.encode(lesson.source, trace)
    weights = []
    for map_HQL in trace.encoder[0]:
        before_HQ = map_HQL.diagonal(-1, 1, 2)[:, :-1]
        after_HQ = map_HQL.diagonal(1, 1, 2)[:, 1:]
        weights.append(torch.stack((before_HQ, after_HQ), 1))
    shares: list[list[float]] = torch.cat(weights, -1).mean(-1).tolist()
    return shares


def table(numbers: Heads, labels: Labels) -> Table:
    columns = [labels["heads"], labels["parameters"], labels["right"], labels["each_seed"]]
    rows: list[list[Value]] = [
        [count, size, f"{mean(own):.2%}", ", ".join(f"{one:.2%}" for one in own)]
        for count, size, own in zip(numbers.heads, numbers.parameters, numbers.accuracies, strict=True)
    ]
    return Table(labels["table"], columns, rows)


def draw(numbers: Heads, labels: Labels) -> Any:
    figure, (left, right) = frame(2, widths=[1, 1.5])
    places = range(len(numbers.heads))
    left.bar(places, [100 * error for error in numbers.errors], color=BLUE, width=0.6)
    for place, by_seed in zip(places, numbers.accuracies, strict=True):
        left.plot([place] * len(by_seed), [100 * (1 - one) for one in by_seed], "o", color="black", ms=3)
    left.set_xticks(places, [f"{count}" for count in numbers.heads])
    left.set(xlabel=labels["heads"], ylabel=labels["error"])
    names, before, after = [], [], []
    for count, shares in zip(numbers.heads, numbers.shares, strict=True):
        for number, (one, other) in enumerate(shares if count <= 4 else []):
            names.append(f"{number + 1}/{count}")
            before.append(one)
            after.append(other)
    spots = range(len(names))
    right.bar([spot - 0.2 for spot in spots], before, width=0.4, color=BLUE, label=labels["before"])
    right.bar([spot + 0.2 for spot in spots], after, width=0.4, color=ORANGE, label=labels["after"])
    right.set_xticks(spots, names)
    right.set(xlabel=labels["head_of"], ylabel=labels["share"], ylim=(0, 1.3 * max(before + after)))
    right.legend(ncols=2, loc="upper center")
    return figure
