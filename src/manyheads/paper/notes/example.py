"""The worked examples of the notes: one sentence through the base model, and what a decoder may see.

Korean words, so that they can be compared with the notes; the weights are untrained, the shapes the paper's.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.look.forward_walk import WalkRecorder, walk_encoder
from manyheads.model.encoder_decoder import Trace
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.paper.notes.drawing import Labels, draw_heatmap, make_axes
from manyheads.paper.report import ReportTable
from manyheads.presets import BASE

SENTENCE = ("나는", "오늘", "점심을", "먹었어", "</s>")
SENTENCE_ROMANIZED = ("naneun", "oneul", "jeomsimeul", "meogeosseo", "</s>")  # where no font has Hangul
SOURCE = ("I", "go", "home", "</s>")
DECODER_INPUT = ("<s>", "나는", "집에", "간다")  # what the decoder reads: begin, and what was said before
DECODER_INPUT_ROMANIZED = ("<s>", "naneun", "jibe", "ganda")
DECODER_OUTPUT = ("나는", "집에", "간다", "</s>")  # what it is to say at each place


@dataclass(frozen=True)
class ForwardStep:
    """A step on the way through the first layer, and the shape of what it gives."""

    part: str
    name: str
    axes: str
    shape: list[int]


@dataclass(frozen=True)
class ExampleResults:
    """What is shown of both sentences."""

    EXPECTED: ClassVar = ("causal", "cross")

    words: list[str]
    d_model: int
    heads: int
    d_k: int
    stages: list[ForwardStep]
    weights: list[list[float]]  # of the first head, row by row
    row_sums: list[float]  # of all heads, the smallest and the largest
    read: list[str]
    written: list[str]
    source: list[str]
    visible: list[list[bool]]  # by place that looks, and place that is looked at
    changed: list[list[float]]  # output at a place, when the word at another is replaced: largest change
    cross_visible: bool  # every place sees every word of the source

    @property
    def findings(self) -> dict[str, bool]:
        pairs = [
            (seen, changed)
            for rows in zip(self.visible, self.changed, strict=True)
            for seen, changed in zip(*rows, strict=True)
        ]
        triangle = all(
            seen == (column <= row) for row, one in enumerate(self.visible) for column, seen in enumerate(one)
        )
        return {
            "causal": triangle and all((changed > 0) == seen for seen, changed in pairs),
            "cross": self.cross_visible,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        later = [self.changed[row][column] for row in range(4) for column in range(row + 1, 4)]
        return {
            "tokens": f"{len(self.words)}",
            "words": " ".join(self.words[:-1]),
            "d_model": f"{self.d_model}",
            "heads": f"{self.heads}",
            "d_k": f"{self.d_k}",
            "least_sum": f"{self.row_sums[0]:.6f}",
            "largest_sum": f"{self.row_sums[1]:.6f}",
            "read": " ".join(self.read),
            "written": " ".join(self.written),
            "source": " ".join(self.source[:-1]),
            "later": f"{max(later):g}",
            "earlier": f"{min(self.changed[row][0] for row in range(4)):.2g}",
        }


@torch.no_grad()
def measure() -> ExampleResults:
    torch.manual_seed(0)
    words = list(dict.fromkeys([*SENTENCE[:-1], *SOURCE[:-1], *DECODER_INPUT[1:]]))
    ids = {word: NUM_SPECIAL_TOKENS + number for number, word in enumerate(words)} | {
        "<s>": BOS_ID,
        "</s>": EOS_ID,
    }
    model = Transformer(replace(BASE, vocab_size=NUM_SPECIAL_TOKENS + len(words) + 1, layers=1)).eval()
    steps = WalkRecorder(width=8)
    walk_encoder(model, 0, Packed.of([[ids[word] for word in SENTENCE]]), steps)
    trace = Trace()
    model.encode(Packed.of([[ids[word] for word in SENTENCE]]), trace)
    weights_HTT = trace.encoder[0][0]
    sums = weights_HTT.sum(-1)
    source, read = [ids[word] for word in SOURCE], [ids[word] for word in DECODER_INPUT]
    model(Packed.of([source]), Packed.of([read]), trace)
    return ExampleResults(
        words=list(SENTENCE),
        d_model=BASE.d_model,
        heads=BASE.heads,
        d_k=BASE.head_dim_k,
        stages=[
            ForwardStep(one["part"], one["name"], "".join(one["axes"]), one["shape"]) for one in steps.steps
        ],
        weights=weights_HTT[0].tolist(),
        row_sums=[sums.min().item(), sums.max().item()],
        read=list(DECODER_INPUT),
        written=list(DECODER_OUTPUT),
        source=list(SOURCE),
        visible=(trace.decoder[0][0] > 0).all(0).tolist(),
        changed=measure_changes(model, source, read, other=NUM_SPECIAL_TOKENS + len(words)),
        cross_visible=bool((trace.cross[0][0] > 0).all()),
    )


def measure_changes(model: Transformer, source: list[int], read: list[int], other: int) -> list[list[float]]:
    """By place: how far its output moves when the word at each place becomes another word."""
    as_it_was = model.hidden(Packed.of([source]), Packed.of([read]))
    columns = []
    for place in range(len(read)):
        replaced = [*read[:place], other, *read[place + 1 :]]
        moved = model.hidden(Packed.of([source]), Packed.of([replaced])) - as_it_was
        columns.append(moved.abs().amax(-1))
    rows: list[list[float]] = torch.stack(columns, 1).tolist()
    return rows


def make_table(numbers: ExampleResults, labels: Labels) -> ReportTable:
    """Every step with its shape; steps of one name are told apart by the part that they belong to."""
    columns = [labels["part"], labels["step"], labels["axes"], labels["shape"]]
    rows = [
        [labels[f"part_{one.part}"], labels[f"step_{one.name}"], " ".join(one.axes), format_shape(one.shape)]
        for one in numbers.stages
    ]
    return ReportTable(labels["table"], columns, rows)


def format_shape(shape: list[int]) -> str:
    return " × ".join(map(str, shape))


def draw_figure(numbers: ExampleResults, labels: Labels, hangul: bool = True) -> Any:
    figure, (left, right) = make_axes(2, widths=[1.2, 1.2])
    words, read = (numbers.words, numbers.read) if hangul else (SENTENCE_ROMANIZED, DECODER_INPUT_ROMANIZED)
    draw_heatmap(left, numbers.weights, words, words)
    left.set_title(labels["weights"], fontsize=10, pad=8)
    draw_heatmap(right, numbers.visible, read, read)
    right.set_title(labels["visible"], fontsize=10, pad=8)
    for row, column in ((row, column) for row in range(4) for column in range(4)):
        right.texts[row * 4 + column].set_text(labels["sees" if numbers.visible[row][column] else "hidden"])
    return figure
