"""Check whether the paper's orderings hold in the measured results, within the margin of chance."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

MIN_BLEU = 2.0  # below it a model has learned only frequent words
CANNOT_TELL = "cannot tell"
VERDICTS = {
    "holds": "the paper's ordering holds",
    "reversed": "the paper's ordering does not hold",
    CANNOT_TELL: "within the margin of chance: this run cannot tell",
    "unknown": "the margin of chance is unknown",
}
# A difference of the paper up to this is about 0: tested is not its sign, but whether it is that small here.
NEAR_ZERO = {"perplexity": 0.05, "BLEU": 0.15}
EQUIVALENCE_BLEU = 0.5  # bound of an equivalence test
EQUIVALENCE_PERPLEXITY = 0.02  # the same, relative to base
TAU_SAMPLES = 1000
TAU_SEED = 1


@dataclass(frozen=True)
class Difference:
    """The difference between a row and its reference in one measure."""

    ours: float | None  # None: not finite
    paper: float | None  # None: the paper has no such row
    margin: float | None  # of chance, 95 %; None: unknown
    bound: float | None = None  # of an equivalence test, where the paper's difference is about 0

    @property
    def verdict(self) -> str | None:
        """A key of VERDICTS.

        Where the paper's difference is about 0, it holds if ours is within the bound with its whole margin.
        """
        if self.paper is None:
            return None
        if self.ours is None or self.margin is None:
            return "unknown"
        if self.bound is not None:
            if abs(self.ours) + self.margin <= self.bound:
                return "holds"
            return "reversed" if abs(self.ours) - self.margin > self.bound else CANNOT_TELL
        if abs(self.ours) <= self.margin:
            return CANNOT_TELL
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
        if self.bound is None or self.verdict == "unknown":
            return VERDICTS[self.verdict or "unknown"]
        bound = f"±{self.bound:.2f}"
        return {
            "holds": f"no difference beyond {bound}, as in the paper (equivalence test)",
            "reversed": f"a difference beyond {bound}, where the paper has none",
            CANNOT_TELL: f"the equivalence test within {bound} cannot tell",
        }[self.verdict or ""]


def equivalence_bound(measure: str, paper: float | None, base: float | None) -> float | None:
    """Return the bound of an equivalence test if the paper's difference is about 0, else None."""
    if paper is None or abs(paper) > NEAR_ZERO[measure] or base is None:
        return None
    return EQUIVALENCE_BLEU if measure == "BLEU" else EQUIVALENCE_PERPLEXITY * base


def summarize_orderings(measure: str, differences: Sequence[Difference]) -> str:
    """Summarize how many of the paper's orderings hold."""
    comparable = [difference for difference in differences if difference.verdict]
    counts = {
        verdict: sum(difference.verdict == verdict for difference in comparable) for verdict in VERDICTS
    }
    unknown_text = f", the margin is unknown for {counts['unknown']}" if counts["unknown"] else ""
    return (
        f"By {measure} the paper's ordering holds in {counts['holds']} of {len(comparable)} rows, is "
        f"reversed in {counts['reversed']}, and {counts[CANNOT_TELL]} are within the margin of "
        f"chance{unknown_text}{describe_tau(comparable)}."
    )


def describe_tau(differences: Sequence[Difference]) -> str:
    """Describe Kendall's tau with an interval: the differences vary within their margins. Else nothing."""
    known = [
        (difference.ours, difference.paper, difference.margin)
        for difference in differences
        if difference.ours is not None and difference.paper is not None and difference.margin is not None
    ]
    if len(known) < len(differences) or not known:
        return ""
    published = [0.0, *(paper for _, paper, _ in known)]  # the reference itself is part of the order
    tau = kendall_tau([0.0, *(ours for ours, _, _ in known)], published)
    if tau is None:
        return ""
    generator = random.Random(TAU_SEED)
    samples = sorted(
        kendall_tau([0.0, *(generator.gauss(ours, margin / 1.96) for ours, _, margin in known)], published)
        or 0.0
        for _ in range(TAU_SAMPLES)
    )
    low, high = samples[round(0.025 * TAU_SAMPLES)], samples[round(0.975 * TAU_SAMPLES) - 1]
    return f"; Kendall's tau between the two orders is {tau:+.2f}, 95 % of it from {low:+.2f} to {high:+.2f}"


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
