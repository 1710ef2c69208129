"""How far results lie apart by chance alone: the same model trained with several seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# Student's t: the factor that holds 95 % on both sides, by degrees of freedom.
STUDENT_T_95 = {
    1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98,
}  # fmt: skip


@dataclass(frozen=True)
class SeedVariance:
    """The deviation of a seed from its row's mean, as far as it is known."""

    std: float
    degrees_of_freedom: int  # results beyond the first of each row; 0: nothing is known

    @classmethod
    def estimate(cls, rows: Sequence[Sequence[float]]) -> "SeedVariance":
        """Of several rows together, as if seeds moved them all alike."""
        freedom = sum(len(row) - 1 for row in rows if row)
        squares = sum((value - fmean(row)) ** 2 for row in rows if row for value in row)
        return cls(math.sqrt(squares / freedom) if freedom else 0.0, freedom)

    def margin(self, num_seeds: float, num_other_seeds: float = math.inf) -> float | None:
        """How far the means of so many seeds lie apart at most, 19 times of 20, if only seeds differ.

        Without another: how far a mean of so many lies from that of all seeds there are.
        """
        if not self.degrees_of_freedom:
            return None
        return student_t(self.degrees_of_freedom) * self.std * math.sqrt(1 / num_seeds + 1 / num_other_seeds)


def student_t(freedom: int) -> float:
    return STUDENT_T_95[max(known for known in STUDENT_T_95 if known <= freedom)]


def drop_missing(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """None where one of them is not finite."""
    known = drop_missing(values)
    return fmean(known) if len(known) == len(values) else None
