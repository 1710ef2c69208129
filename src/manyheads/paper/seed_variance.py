"""Variance of results between seeds of the same model, and the margins it gives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
STUDENT_T_95 = {
    1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98,
}  # fmt: skip


@dataclass(frozen=True)
class SeedVariance:
    """The standard deviation of a seed's result from the mean of its row."""

    std: float
    degrees_of_freedom: int  # 0: unknown

    @classmethod
    def estimate(cls, rows: Sequence[Sequence[float]]) -> "SeedVariance":
        """Pool several rows, assuming that seeds affect all rows equally."""
        freedom = sum(len(row) - 1 for row in rows if row)
        squares = sum((value - fmean(row)) ** 2 for row in rows if row for value in row)
        return cls(math.sqrt(squares / freedom) if freedom else 0.0, freedom)

    def margin(self, num_seeds: float, num_other_seeds: float = math.inf) -> float | None:
        """Return the 95 % margin of the difference between means over `num_seeds` and `num_other_seeds`.

        Without the latter: the margin of a mean over `num_seeds`. None: the variance is unknown.
        """
        if not self.degrees_of_freedom:
            return None
        return student_t(self.degrees_of_freedom) * self.std * math.sqrt(1 / num_seeds + 1 / num_other_seeds)


def student_t(degrees_of_freedom: int) -> float:
    return STUDENT_T_95[max(known for known in STUDENT_T_95 if known <= degrees_of_freedom)]


def drop_missing(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if any value is missing."""
    present = drop_missing(values)
    return fmean(present) if len(present) == len(values) else None
