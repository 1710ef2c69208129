"""Why several heads (3.2.2): one head has one set of weights, and averages what two relations need.

Row (A) of the paper's Table 3 at a small scale: equal parameters, divided among more or fewer heads.
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
    """Accuracy of one layer by number of heads and seed."""

    EXPECTED: ClassVar = ("several",)

    head_counts: list[int]
    parameters: list[int]  # of the encoder, by number of heads
    accuracies: list[list[float]]  # by number of heads and seed
    neighbor_shares: list[
        list[list[float]]
    ]  # by number of heads and head: on the previous and on the next word
    num_words: int
    num_pairs: int
    steps: int

    @property
    def errors(self) -> list[float]:
        """Mean error rate over seeds, by number of heads."""
        return [1 - mean(by_seed) for by_seed in self.accuracies]

    @property
    def best_index(self) -> int:
        """Index of the number of heads with the lowest error."""
        return self.errors.index(min(self.errors))

    @property
    def findings(self) -> dict[str, bool]:
        return {
            "several": self.errors[0] > 1.25 * min(self.errors[1:]),
            "too_many": self.errors[-1] > min(self.errors),
        }

    @property
    def placeholders(self) -> dict[str, str]:
        single = self.neighbor_shares[0][0]
        several = self.neighbor_shares[self.best_index]
        return {
            "words": f"{self.num_words}",
            "pairs": f"{self.num_pairs}",
            "steps": f"{self.steps}",
            "seeds": f"{len(self.accuracies[0])}",
            "parameters": f"{self.parameters[0]:,}",
            "right_one": f"{1 - self.errors[0]:.1%}",
            "wrong_one": f"{self.errors[0]:.1%}",
            "best": f"{self.head_counts[self.best_index]}",
            "right_best": f"{1 - self.errors[self.best_index]:.1%}",
            "wrong_best": f"{self.errors[self.best_index]:.1%}",
            "max_heads": f"{self.head_counts[-1]}",
            "right_max": f"{1 - self.errors[-1]:.1%}",
            "before_one": f"{single[0]:.0%}",
            "after_one": f"{single[1]:.0%}",
            "before_best": f"{max(share[0] for share in several):.0%}",
            "after_best": f"{max(share[1] for share in several):.0%}",
        }


def measure(
    report_progress: ReportProgress = ignore_progress,
    *,
    head_counts: tuple[int, ...] = HEAD_COUNTS,
    seeds: int = 2,
    steps: int = 250,
) -> HeadResults:
    advance = make_counter(report_progress, STAGE, steps * len(head_counts) * seeds)
    train = replace(TRAINING, steps=steps)
    eval_batch = TASK.make_eval_batch()
    accuracies: list[list[float]] = [[] for _ in head_counts]
    models = []
    for by_seed, count in zip(accuracies, head_counts, strict=True):
        for seed in range(seeds):
            model = build_model(replace(SMALL, heads=count), seed)
            train_model(model, TASK.make_sampler(seed + 1, 64), train, advance)
            by_seed.append(measure_accuracy(model, eval_batch))
        models.append(model)
    return HeadResults(
        head_counts=list(head_counts),
        parameters=[count_module_parameters(model.encoder) for model in models],
        accuracies=accuracies,
        neighbor_shares=[measure_neighbor_attention(model, eval_batch) for model in models],
        num_words=TASK.num_words,
        num_pairs=TASK.num_words**2,
        steps=steps,
    )


@torch.no_grad()
def measure_neighbor_attention(model: Transformer, batch: LabeledBatch) -> list[list[float]]:
    """Return the mean weight of each head on the previous and the next word, where both exist."""
    trace = Trace()
    model.encode(batch.source, trace)
    weights = []
    for map_HQL in trace.encoder[0]:
        before_HQ = map_HQL.diagonal(-1, 1, 2)[:, :-1]
        after_HQ = map_HQL.diagonal(1, 1, 2)[:, 1:]
        weights.append(torch.stack((before_HQ, after_HQ), 1))
    shares: list[list[float]] = torch.cat(weights, -1).mean(-1).tolist()
    return shares


def make_table(results: HeadResults, labels: Labels) -> ReportTable:
    columns = [labels["heads"], labels["parameters"], labels["right"], labels["each_seed"]]
    rows: list[list[Cell]] = [
        [count, size, f"{mean(by_seed):.2%}", ", ".join(f"{accuracy:.2%}" for accuracy in by_seed)]
        for count, size, by_seed in zip(
            results.head_counts, results.parameters, results.accuracies, strict=True
        )
    ]
    return ReportTable(labels["table"], columns, rows)


def draw_figure(results: HeadResults, labels: Labels) -> Any:
    figure, (left, right) = make_axes(2, widths=[1, 1.5])
    positions = range(len(results.head_counts))
    left.bar(positions, [100 * error for error in results.errors], color=BLUE, width=0.6)
    for position, by_seed in zip(positions, results.accuracies, strict=True):
        left.plot(
            [position] * len(by_seed),
            [100 * (1 - accuracy) for accuracy in by_seed],
            "o",
            color="black",
            ms=3,
        )
    left.set_xticks(positions, [f"{count}" for count in results.head_counts])
    left.set(xlabel=labels["heads"], ylabel=labels["error"])
    names, before, after = [], [], []
    for count, shares in zip(results.head_counts, results.neighbor_shares, strict=True):
        for head, (before_share, after_share) in enumerate(shares if count <= 4 else []):
            names.append(f"{head + 1}/{count}")
            before.append(before_share)
            after.append(after_share)
    bars = range(len(names))
    right.bar([bar - 0.2 for bar in bars], before, width=0.4, color=BLUE, label=labels["before"])
    right.bar([bar + 0.2 for bar in bars], after, width=0.4, color=ORANGE, label=labels["after"])
    right.set_xticks(bars, names)
    right.set(xlabel=labels["head_of"], ylabel=labels["share"], ylim=(0, 1.3 * max(before + after)))
    right.legend(ncols=2, loc="upper center")
    return figure
