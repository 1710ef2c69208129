"""The worked examples of the notes: a sentence through the base model, and the causal mask of the decoder.

The words are Korean as in the notes; the weights are untrained, the shapes are the paper's.
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
SENTENCE_ROMANIZED = ("naneun", "oneul", "jeomsimeul", "meogeosseo", "</s>")  # without a Hangul font
SOURCE = ("I", "go", "home", "</s>")
DECODER_INPUT = ("<s>", "나는", "집에", "간다")  # begin, and the words before
DECODER_INPUT_ROMANIZED = ("<s>", "naneun", "jibe", "ganda")
DECODER_OUTPUT = ("나는", "집에", "간다", "</s>")  # the label at each position


@dataclass(frozen=True)
class ForwardStep:
    """A step of the forward pass through the first layer, and the shape of its output."""

    part: str
    name: str
    axes: str
    shape: list[int]


@dataclass(frozen=True)
class ExampleResults:
    """The forward pass of the first sentence, and the visibility of the second."""

    EXPECTED: ClassVar = ("causal", "cross")

    words: list[str]
    d_model: int
    heads: int
    d_k: int
    steps: list[ForwardStep]
    weights: list[list[float]]  # of the first head, by row
    row_sums: list[float]  # over all heads: minimum and maximum
    decoder_input: list[str]
    decoder_output: list[str]
    source: list[str]
    visible: list[list[bool]]  # by query and key position
    output_changes: list[list[float]]  # maximum, by position of output and of replaced word
    cross_visible: bool  # every position attends to every source word

    @property
    def findings(self) -> dict[str, bool]:
        pairs = [
            (sees, change)
            for rows in zip(self.visible, self.output_changes, strict=True)
            for sees, change in zip(*rows, strict=True)
        ]
        triangle = all(
            sees == (column <= row)
            for row, columns in enumerate(self.visible)
            for column, sees in enumerate(columns)
        )
        return {
            "causal": triangle and all((change > 0) == sees for sees, change in pairs),
            "cross": self.cross_visible,
        }

    @property
    def placeholders(self) -> dict[str, str]:
        later = [self.output_changes[row][column] for row in range(4) for column in range(row + 1, 4)]
        return {
            "tokens": f"{len(self.words)}",
            "words": " ".join(self.words[:-1]),
            "d_model": f"{self.d_model}",
            "heads": f"{self.heads}",
            "d_k": f"{self.d_k}",
            "min_sum": f"{self.row_sums[0]:.6f}",
            "max_sum": f"{self.row_sums[1]:.6f}",
            "decoder_input": " ".join(self.decoder_input),
            "decoder_output": " ".join(self.decoder_output),
            "source": " ".join(self.source[:-1]),
            "later": f"{max(later):g}",
            "earlier": f"{min(self.output_changes[row][0] for row in range(4)):.2g}",
        }


@torch.no_grad()
def measure() -> ExampleResults:
    torch.manual_seed(0)
    words = list(dict.fromkeys([*SENTENCE[:-1], *SOURCE[:-1], *DECODER_INPUT[1:]]))
    ids = {word: NUM_SPECIAL_TOKENS + index for index, word in enumerate(words)} | {
        "<s>": BOS_ID,
        "</s>": EOS_ID,
    }
    model = Transformer(replace(BASE, vocab_size=NUM_SPECIAL_TOKENS + len(words) + 1, layers=1)).eval()
    recorder = WalkRecorder(width=8)
    walk_encoder(model, 0, Packed.of([[ids[word] for word in SENTENCE]]), recorder)
    trace = Trace()
    model.encode(Packed.of([[ids[word] for word in SENTENCE]]), trace)
    weights_HTT = trace.encoder[0][0]
    sums = weights_HTT.sum(-1)
    source, decoder_input = [ids[word] for word in SOURCE], [ids[word] for word in DECODER_INPUT]
    model(Packed.of([source]), Packed.of([decoder_input]), trace)
    return ExampleResults(
        words=list(SENTENCE),
        d_model=BASE.d_model,
        heads=BASE.heads,
        d_k=BASE.head_dim_k,
        steps=[
            ForwardStep(step["part"], step["name"], "".join(step["axes"]), step["shape"])
            for step in recorder.steps
        ],
        weights=weights_HTT[0].tolist(),
        row_sums=[sums.min().item(), sums.max().item()],
        decoder_input=list(DECODER_INPUT),
        decoder_output=list(DECODER_OUTPUT),
        source=list(SOURCE),
        visible=(trace.decoder[0][0] > 0).all(0).tolist(),
        output_changes=measure_changes(
            model, source, decoder_input, replacement=NUM_SPECIAL_TOKENS + len(words)
        ),
        cross_visible=bool((trace.cross[0][0] > 0).all()),
    )


def measure_changes(
    model: Transformer, source: list[int], decoder_input: list[int], replacement: int
) -> list[list[float]]:
    """Return the maximum change of each output when each input word is replaced. [output][input]"""
    original = model.hidden(Packed.of([source]), Packed.of([decoder_input]))
    columns = []
    for position in range(len(decoder_input)):
        replaced = [*decoder_input[:position], replacement, *decoder_input[position + 1 :]]
        change = model.hidden(Packed.of([source]), Packed.of([replaced])) - original
        columns.append(change.abs().amax(-1))
    rows: list[list[float]] = torch.stack(columns, 1).tolist()
    return rows


def make_table(results: ExampleResults, labels: Labels) -> ReportTable:
    """Return a table of the steps and their shapes."""
    columns = [labels["part"], labels["step"], labels["axes"], labels["shape"]]
    rows = [
        [
            labels[f"part_{step.part}"],
            labels[f"step_{step.name}"],
            " ".join(step.axes),
            format_shape(step.shape),
        ]
        for step in results.steps
    ]
    return ReportTable(labels["table"], columns, rows)


def format_shape(shape: list[int]) -> str:
    return " × ".join(map(str, shape))


def draw_figure(results: ExampleResults, labels: Labels, hangul: bool = True) -> Any:
    figure, (left, right) = make_axes(2, widths=[1.2, 1.2])
    words, decoder_input = (
        (results.words, results.decoder_input) if hangul else (SENTENCE_ROMANIZED, DECODER_INPUT_ROMANIZED)
    )
    draw_heatmap(left, results.weights, words, words)
    left.set_title(labels["weights"], fontsize=10, pad=8)
    draw_heatmap(right, results.visible, decoder_input, decoder_input)
    right.set_title(labels["visible"], fontsize=10, pad=8)
    for row, column in ((row, column) for row in range(4) for column in range(4)):
        right.texts[row * 4 + column].set_text(labels["sees" if results.visible[row][column] else "hidden"])
    return figure
