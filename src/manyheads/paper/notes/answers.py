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
from manyheads.paper.notes.learning import untold
from manyheads.progress import ReportProgress
from manyheads.translator import load

TRANSLATION_STEPS = 280


@dataclass(frozen=True)
class Answers:
    """The numbers of every question, in the order of the report."""

    example: example.Example
    projections: projections.Projections
    scale: scale.Scale
    heads: heads.Heads
    positions: positions.Positions
    residuals: residuals.Residuals
    normalization: normalization.Normalization
    warmup: warmup.Warmup
    smoothing: smoothing.Smoothing
    relations: relations.Relations

    def by_question(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def as_data(self) -> dict[str, Any]:
        """Every number, and what was concluded from them."""
        return {name: {**asdict(one), "findings": one.findings} for name, one in self.by_question().items()}


def measured(model: Path | None = None, tell: ReportProgress = untold, *, share: float = 1.0) -> Answers:
    """On the CPU, by one thread: models so small gain nothing from more.

    `model` is whose heads are looked at; without it one that is trained here. `share` is of the usual steps
    of training, and of the sentences that are looked at.
    """

    def steps(usual: int) -> int:
        return max(2, round(share * usual))

    looked_at = max(4, round(share * relations.SENTENCES))

    with one_thread():
        theirs = load(model, device="cpu") if model else None
        if theirs:  # before the long work, so that a model that does not fit is refused at once
            related = relations.measure(theirs, tell, count=looked_at)
        material = translation.Material.made()
        taught = steps(TRANSLATION_STEPS)
        plain, smoothed = (
            translation.trained(material, e, taught, tell, f"translation, label smoothing {e:g}")
            for e in (0.0, smoothing.SMOOTHING)
        )
        if not theirs:
            own = translation.translator_of(smoothed, material)
            related = relations.measure(own, tell, ours=True, count=looked_at)
        return Answers(
            example=example.measure(),
            projections=projections.measure(tell, steps=steps(200)),
            scale=scale.measure(tell, steps=steps(200)),
            heads=heads.measure(tell, steps=steps(250)),
            positions=positions.measure(tell, steps=steps(200)),
            residuals=residuals.measure(tell, steps=steps(100)),
            normalization=normalization.measure(tell, steps=steps(250)),
            warmup=warmup.measure(tell, steps=steps(150)),
            smoothing=smoothing.measure(material, plain, smoothed, steps=taught),
            relations=related,
        )


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
