"""Whether an ordering of the paper's holds in what was measured, as far as chance lets one say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_BLEU = 2.0  # BLEU below which there are only frequent words
VERDICTS = {
    "holds": "the paper's ordering holds",
    "reversed": "the paper's ordering does not hold",
    "chance": "no more than chance may make",
    "unknown": "whether it is chance is not known",
}


@dataclass(frozen=True)
class Difference:
    """Between a row and the one that it is compared with, in one measure."""

    ours: float | None  # None: not finite
    paper: float | None  # None: the paper has no such row
    margin: float | None  # that chance may make; None: not known

    @property
    def verdict(self) -> str | None:
        """A key of VERDICTS. Where the paper sees no difference, that holds within chance alone."""
        if self.paper is None:
            return None
        if self.ours is None or self.margin is None:
            return "unknown"
        if abs(self.ours) <= self.margin:
            return "chance" if self.paper else "holds"
        return "holds" if sign(self.ours) == sign(self.paper) else "reversed"

    def describe(self, measure: str) -> str:
        """In words, with the numbers."""
        paper = "the paper has no such row" if self.paper is None else f"{self.paper:+.2f} in the paper"
        if self.ours is None:
            return f"{measure} is not finite here, {paper}"
        chance = "" if self.margin is None else f", chance ±{self.margin:.2f}"
        numbers = f"{measure} {self.ours:+.2f} here, {paper}{chance}"
        return f"{numbers}: {self._describe_verdict()}" if self.verdict else numbers

    def _describe_verdict(self) -> str:
        if self.paper == 0 and self.verdict == "holds":
            return "no difference beyond chance, as in the paper"
        if self.paper == 0 and self.verdict == "reversed":
            return "the paper has no difference"
        return VERDICTS[self.verdict or "unknown"]


def summarize_orderings(measure: str, found: Sequence[Difference]) -> str:
    """How many orderings hold, how many do not."""
    judged = [one for one in found if one.verdict]
    number = {verdict: sum(one.verdict == verdict for one in judged) for verdict in VERDICTS}
    pairs = [(one.ours, one.paper) for one in judged if one.ours is not None and one.paper is not None]
    pairs = [(0.0, 0.0), *pairs] if pairs else []  # what they are compared with has its place in the order
    tau = kendall_tau([ours for ours, _ in pairs], [paper for _, paper in pairs])
    agreement = "" if tau is None else f"; Kendall's tau between the two orders is {tau:+.2f}"
    unknown = f", of {number['unknown']} chance is not known" if number["unknown"] else ""
    return (
        f"By {measure} the paper's ordering holds in {number['holds']} of {len(judged)} rows and is reversed "
        f"in {number['reversed']}; {number['chance']} differ by no more than chance{unknown}{agreement}."
    )


def warn_if_untrained(bleu: float | None) -> list[str]:
    """A warning where what all others are compared with translates nothing yet."""
    if bleu is not None and bleu >= MIN_BLEU:
        return []
    return [
        f"What they are compared with has a BLEU of less than {MIN_BLEU:g}: it learned nothing yet, and the "
        f"orderings say nothing. Give it a larger budget."
    ]


def kendall_tau(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """How far two orders agree: 1 the same, -1 the opposite; tau-b, which allows for equal values."""
    pairs = [(i, j) for i in range(len(ours)) for j in range(i)]
    signs = [(sign(ours[i] - ours[j]), sign(theirs[i] - theirs[j])) for i, j in pairs]
    untied = [sum(pair[side] != 0 for pair in signs) for side in (0, 1)]
    if 0 in untied:
        return None
    return sum(a * b for a, b in signs) / math.sqrt(untied[0] * untied[1])


def sign(number: float) -> int:
    return (number > 0) - (number < 0)
