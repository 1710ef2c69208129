"""Why several heads (3.2.2): one head has one set of weights, and must mix what two relations would bring.

Row (A) of the paper's Table 3, at a small scale: as many parameters, shared out among more or fewer heads.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import TransformerConfig
from manyheads.model.encoder_decoder import Trace
from manyheads.model.transformer import Transformer
from manyheads.paper.notes.drawing import BLUE, ORANGE, Labels, make_axes
from manyheads.paper.notes.learning import (
    TRAINING,
    LabeledBatch,
    build_model,
    ignore_progress,
    mean,
    measure_accuracy,
    train_model,
)
from manyheads.paper.notes.projections import count_module_parameters
from manyheads.paper.notes.tasks import NEIGHBOR_PAIR_TASK
from manyheads.paper.report import Cell, ReportTable
from manyheads.progress import ReportProgress, make_counter

STAGE = "several heads"
TASK = NEIGHBOR_PAIR_TASK
HEAD_COUNTS = (1, 2, 4, 8)
SMALL = TransformerConfig(vocab_size=TASK.vocab_size, layers=1, d_model=64, d_ff=128, dropout=0.0)


@dataclass(frozen=True)
class HeadResults:
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
    def placeholders(self) -> dict[str, str]:
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
    report_progress: ReportProgress = ignore_progress,
    *,
    heads: tuple[int, ...] = HEAD_COUNTS,
    seeds: int = 2,
    steps: int = 250,
) -> HeadResults:
    advance = make_counter(report_progress, STAGE, steps * len(heads) * seeds)
    train = replace(TRAINING, steps=steps)
    judged = TASK.make_eval_batch()
    accuracies: list[list[float]] = [[] for _ in heads]
    models = []
    for by_seed, count in zip(accuracies, heads, strict=True):
        for seed in range(seeds):
            model = build_model(replace(SMALL, heads=count), seed)
            train_model(model, TASK.make_sampler(seed + 1, 64), train, advance)
            by_seed.append(measure_accuracy(model, judged))
        models.append(model)
    return HeadResults(
        heads=list(heads),
        parameters=[count_module_parameters(model.encoder) for model in models],
        accuracies=accuracies,
        shares=[measure_neighbor_attention(model, judged) for model in models],
        words=TASK.num_words,
        pairs=TASK.num_words**2,
        steps=steps,
    )


@torch.no_grad()
def measure_neighbor_attention(model: Transformer, lesson: LabeledBatch) -> list[list[float]]:
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


def make_table(numbers: HeadResults, labels: Labels) -> ReportTable:
    columns = [labels["heads"], labels["parameters"], labels["right"], labels["each_seed"]]
    rows: list[list[Cell]] = [
        [count, size, f"{mean(own):.2%}", ", ".join(f"{one:.2%}" for one in own)]
        for count, size, own in zip(numbers.heads, numbers.parameters, numbers.accuracies, strict=True)
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(numbers: HeadResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2, widths=[1, 1.5])
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
