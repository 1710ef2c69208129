"""Run the experiments of all questions, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from manyheads.loading import load
from manyheads.paper.notes import (
    example,
    heads,
    lines,
    normalization,
    positions,
    projections,
    relations,
    residuals,
    scale,
    smoothing,
    translation,
    warmup,
)
from manyheads.paper.notes.learning import XAVIER_GAIN, ignore_progress, initial_gain
from manyheads.progress import ReportProgress

QUESTIONS: dict[str, Any] = {  # modules with make_table and draw_figure
    "example": example,
    "projections": projections,
    "scale": scale,
    "heads": heads,
    "positions": positions,
    "residuals": residuals,
    "normalization": normalization,
    "warmup": warmup,
    "smoothing": smoothing,
    "relations": relations,
    "lines": lines,
}
TRANSLATION_STEPS = 280
STEPS = {  # of training, so many that the effects show from the default initial weights
    "projections": 400,
    "scale": 800,
    "heads": 400,
    "positions": 400,
    "residuals": 100,
    "normalization": 250,
    "warmup": 600,
}


@dataclass(frozen=True)
class Answers:
    """The results of all questions, in the order of the report."""

    example: example.ExampleResults
    projections: projections.ProjectionResults
    scale: scale.ScalingResults
    heads: heads.HeadResults
    positions: positions.PositionResults
    residuals: residuals.ResidualResults
    normalization: normalization.NormalizationResults
    warmup: warmup.WarmupResults
    smoothing: smoothing.SmoothingResults
    relations: relations.RelationResults
    lines: lines.LineResults
    xavier: dict[str, Any]  # the questions of STEPS again, from Xavier's initial weights

    def by_question(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in QUESTIONS}

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers and findings."""
        numbers = collect_numbers(self.by_question())
        return numbers | {"xavier": collect_numbers(self.xavier)}


def collect_numbers(results: dict[str, Any]) -> dict[str, Any]:
    return {name: {**asdict(own), "findings": own.findings} for name, own in results.items()}


def measure_all(
    model: Path | None = None,
    report_progress: ReportProgress = ignore_progress,
    *,
    steps_fraction: float = 1.0,
) -> Answers:
    """Run all experiments on one CPU thread, since the models are too small to gain from more.

    `model` is a folder whose heads are measured; by default a small model is trained. `steps_fraction` scales
    the number of training steps and of measured sentences.
    """

    def scale_steps(default: int) -> int:
        return max(2, round(steps_fraction * default))

    num_sentences = max(4, round(steps_fraction * relations.NUM_SENTENCES))

    with single_thread():
        given_translator = load(model, device="cpu", engine="torch") if model else None
        if given_translator:  # first, so that an unsuitable model is rejected before the long work
            relation_results = relations.measure(
                given_translator, report_progress, num_sentences=num_sentences
            )
        data = translation.TranslationData.generate()
        translation_steps = scale_steps(TRANSLATION_STEPS)
        plain, smoothed = (
            translation.train_translation_model(
                data,
                label_smoothing,
                translation_steps,
                report_progress,
                f"translation, label smoothing {label_smoothing:g}",
            )
            for label_smoothing in (0.0, smoothing.SMOOTHING)
        )
        if not given_translator:
            translator = translation.make_translator(smoothed, data)
            relation_results = relations.measure(
                translator, report_progress, trained_here=True, num_sentences=num_sentences
            )
        trained = {
            name: QUESTIONS[name].measure(report_progress, steps=scale_steps(steps))
            for name, steps in STEPS.items()
        }
        with initial_gain(XAVIER_GAIN):
            xavier = {
                name: QUESTIONS[name].measure(report_progress, steps=scale_steps(steps))
                for name, steps in STEPS.items()
            }
        return Answers(
            example=example.measure(),
            **trained,
            smoothing=smoothing.measure(data, plain, smoothed, steps=translation_steps),
            relations=relation_results,
            lines=lines.measure(report_progress, steps=scale_steps(600)),
            xavier=xavier,
        )


@contextmanager
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
