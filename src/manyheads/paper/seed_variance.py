"""How far results lie apart by chance alone: the same model trained with several seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

# Student's t: the factor that holds 95 % on both sides, by degrees of freedom.
STUDENT = {
    1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98,
}  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """The deviation of a seed from its row's mean, as far as it is known."""

    deviation: float
    freedom: int  # results beyond the first of each row; 0: nothing is known

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "Spread":
        """Of several rows together, as if seeds moved them all alike."""
        freedom = sum(len(row) - 1 for row in rows if row)
        squares = sum((value - fmean(row)) ** 2 for row in rows if row for value in row)
        return cls(math.sqrt(squares / freedom) if freedom else 0.0, freedom)

    def margin(self, one: float, other: float = math.inf) -> float | None:
        """How far the means of so many seeds lie apart at most, 19 times of 20, if only seeds differ.

        Without another: how far a mean of so many lies from that of all seeds there are.
        """
        if not self.freedom:
            return None
        return student(self.freedom) * self.deviation * math.sqrt(1 / one + 1 / other)


def student(freedom: int) -> float:
    return STUDENT[max(known for known in STUDENT if known <= freedom)]


def finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mean(values: Sequence[float | None]) -> float | None:
    """None where one of them is not finite."""
    known = finite(values)
    return fmean(known) if len(known) == len(values) else None
