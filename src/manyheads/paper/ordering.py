"""Check whether the paper's orderings hold in the measured results, within the margin of chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_BLEU = 2.0  # below it a model has learned only frequent words
VERDICTS = {
    "holds": "the paper's ordering holds",
    "reversed": "the paper's ordering does not hold",
    "chance": "within the margin of chance",
    "unknown": "the margin of chance is unknown",
}


@dataclass(frozen=True)
class Difference:
    """The difference between a row and its reference in one measure."""

    ours: float | None  # None: not finite
    paper: float | None  # None: the paper has no such row
    margin: float | None  # of chance; None: unknown

    @property
    def verdict(self) -> str | None:
        """A key of VERDICTS. A zero difference in the paper holds if ours is within the margin of chance."""
        if self.paper is None:
            return None
        if self.ours is None or self.margin is None:
            return "unknown"
        if abs(self.ours) <= self.margin:
            return "chance" if self.paper else "holds"
        return "holds" if sign(self.ours) == sign(self.paper) else "reversed"

    def describe(self, measure: str) -> str:
        """Return the numbers and the verdict as a sentence."""
        paper = "the paper has no such row" if self.paper is None else f"{self.paper:+.2f} in the paper"
        if self.ours is None:
            return f"{measure} is not finite here, {paper}"
        margin = "" if self.margin is None else f", margin of chance ±{self.margin:.2f}"
        numbers = f"{measure} {self.ours:+.2f} here, {paper}{margin}"
        return f"{numbers}: {self._describe_verdict()}" if self.verdict else numbers

    def _describe_verdict(self) -> str:
        if self.paper == 0 and self.verdict == "holds":
            return "within the margin of chance, as in the paper"
        if self.paper == 0 and self.verdict == "reversed":
            return "the paper has no difference"
        return VERDICTS[self.verdict or "unknown"]


def summarize_orderings(measure: str, differences: Sequence[Difference]) -> str:
    """Summarize how many of the paper's orderings hold."""
    comparable = [difference for difference in differences if difference.verdict]
    counts = {
        verdict: sum(difference.verdict == verdict for difference in comparable) for verdict in VERDICTS
    }
    pairs = [
        (difference.ours, difference.paper)
        for difference in comparable
        if difference.ours is not None and difference.paper is not None
    ]
    pairs = [(0.0, 0.0), *pairs] if pairs else []  # the reference itself is part of the order
    tau = kendall_tau([ours for ours, _ in pairs], [paper for _, paper in pairs])
    tau_text = "" if tau is None else f"; Kendall's tau between the two orders is {tau:+.2f}"
    unknown_text = f", the margin is unknown for {counts['unknown']}" if counts["unknown"] else ""
    return (
        f"By {measure} the paper's ordering holds in {counts['holds']} of {len(comparable)} rows and is "
        f"reversed in {counts['reversed']}; {counts['chance']} are within the margin of "
        f"chance{unknown_text}{tau_text}."
    )


def warn_if_untrained(bleu: float | None) -> list[str]:
    """Return a warning if the reference model has not learned to translate yet."""
    if bleu is not None and bleu >= MIN_BLEU:
        return []
    return [
        f"The reference model has a BLEU below {MIN_BLEU:g}: it has not learned to translate, and the "
        f"orderings are not meaningful. Use a larger budget."
    ]


def kendall_tau(ours: Sequence[float], published: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two orders: 1 if equal, -1 if opposite. Ties are allowed."""
    pairs = [(i, j) for i in range(len(ours)) for j in range(i)]
    signs = [(sign(ours[i] - ours[j]), sign(published[i] - published[j])) for i, j in pairs]
    untied = [sum(pair[side] != 0 for pair in signs) for side in (0, 1)]
    if 0 in untied:
        return None
    return sum(a * b for a, b in signs) / math.sqrt(untied[0] * untied[1])


def sign(number: float) -> int:
    return (number > 0) - (number < 0)
