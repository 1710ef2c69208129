"""The margin of chance of a difference between a row and its reference.

Two sources of chance: the seed, whose variance is pooled over all rows, and the test sentences, resampled in
pairs
(the same sentences for both rows). If every row has at least two seeds, and the reference has the same ones,
differences are taken seed by seed: equal seeds mean equal batches in equal order.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from manyheads.evaluate.significance import bootstrap_bleu_difference
from manyheads.paper.seed_variance import SeedVariance
from manyheads.paper.trials import BOOTSTRAP_SAMPLES, TrialResult

ValuesBySeed = Mapping[int, float]


@dataclass(frozen=True)
class SeedMargins:
    """The variance of single results and of differences between equal seeds."""

    single: SeedVariance
    paired: SeedVariance | None  # None: rows do not have the same seeds

    @classmethod
    def estimate(cls, rows: Mapping[str, ValuesBySeed], reference: str) -> "SeedMargins":
        base = rows[reference]
        others = [values for name, values in rows.items() if name != reference]
        single = SeedVariance.estimate([list(values.values()) for values in rows.values()])
        if not others or not all(len(values) > 1 and values.keys() <= base.keys() for values in others):
            return cls(single, None)
        differences = [[value - base[seed] for seed, value in values.items()] for values in others]
        return cls(single, SeedVariance.estimate(differences))

    def difference(self, row: ValuesBySeed, reference: ValuesBySeed) -> tuple[float, float | None]:
        """Return the difference of two rows, and its margin; None: unknown."""
        if self.paired:
            differences = [value - reference[seed] for seed, value in row.items()]
            return sum(differences) / len(differences), self.paired.margin(len(differences))
        difference = sum(row.values()) / len(row) - sum(reference.values()) / len(reference)
        return difference, self.single.margin(len(row), len(reference))


def compute_sentence_margin(results: Sequence[TrialResult], reference: Sequence[TrialResult]) -> float | None:
    """Return the margin of the BLEU difference from the choice of test sentences, by paired bootstrap."""
    statistics = [[result.bleu_statistics for result in group] for group in (results, reference)]
    sizes = {len(rows) for group in statistics for rows in group}
    if len(sizes) != 1 or 0 in sizes:
        return None
    system, baseline = (np.array(group, np.int64) for group in statistics)
    return bootstrap_bleu_difference(system, baseline, BOOTSTRAP_SAMPLES)


def combine_margins(*margins: float | None) -> float | None:
    """Return the margin of independent sources together; None if none is known."""
    known = [margin for margin in margins if margin is not None]
    return math.hypot(*known) if known else None
