"""All the questions, measured one after the other; what takes its time is said while it does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from manyheads.paper.notes import (
    example,
    heads,
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
from manyheads.paper.notes.learning import ignore_progress
from manyheads.progress import ReportProgress
from manyheads.translator import load

TRANSLATION_STEPS = 280


@dataclass(frozen=True)
class Answers:
    """The numbers of every question, in the order of the report."""

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

    def by_question(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Every number, and what was concluded from them."""
        return {name: {**asdict(one), "findings": one.findings} for name, one in self.by_question().items()}


def measure_all(
    model: Path | None = None,
    report_progress: ReportProgress = ignore_progress,
    *,
    steps_fraction: float = 1.0,
) -> Answers:
    """On the CPU, by one thread: models so small gain nothing from more.

    `model` is whose heads are looked at; without it one that is trained here. `share` is of the usual steps
    of training, and of the sentences that are looked at.
    """

    def steps(usual: int) -> int:
        return max(2, round(steps_fraction * usual))

    looked_at = max(4, round(steps_fraction * relations.NUM_SENTENCES))

    with single_thread():
        theirs = load(model, device="cpu") if model else None
        if theirs:  # before the long work, so that a model that does not fit is refused at once
            related = relations.measure(theirs, report_progress, num_sentences=looked_at)
        material = translation.TranslationData.generate()
        taught = steps(TRANSLATION_STEPS)
        plain, smoothed = (
            translation.train_translation_model(
                material, e, taught, report_progress, f"translation, label smoothing {e:g}"
            )
            for e in (0.0, smoothing.SMOOTHING)
        )
        if not theirs:
            own = translation.make_translator(smoothed, material)
            related = relations.measure(own, report_progress, trained_here=True, num_sentences=looked_at)
        return Answers(
            example=example.measure(),
            projections=projections.measure(report_progress, steps=steps(200)),
            scale=scale.measure(report_progress, steps=steps(200)),
            heads=heads.measure(report_progress, steps=steps(250)),
            positions=positions.measure(report_progress, steps=steps(200)),
            residuals=residuals.measure(report_progress, steps=steps(100)),
            normalization=normalization.measure(report_progress, steps=steps(250)),
            warmup=warmup.measure(report_progress, steps=steps(150)),
            smoothing=smoothing.measure(material, plain, smoothed, steps=taught),
            relations=related,
        )


@contextmanager
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
