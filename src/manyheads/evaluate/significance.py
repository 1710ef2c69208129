"""Whether two systems differ by more than chance: paired bootstrap resampling, by sacreBLEU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.evaluate.bleu import as_lists, bleu_metric

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class PairedComparison:
    """The scores of two systems, and the probability that chance makes them differ so much."""

    metric: str
    system: float
    baseline: float
    p_value: float
    signature: str

    def __str__(self) -> str:
        verdict = "significant" if self.p_value < SIGNIFICANCE_LEVEL else "not significant"
        return (
            f"{self.metric} {self.system:.2f} against {self.baseline:.2f}: the difference is {verdict}, "
            f"p = {self.p_value:.3f} ({self.signature})"
        )


def paired_bootstrap(
    system: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: str,
    samples: int,
) -> list[PairedComparison]:
    """Compare the BLEU and chrF of two systems' translations."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    metrics = {"BLEU": bleu_metric(tokenizer), "chrF2": CHRF()}
    systems: Any = [("baseline", list(baseline)), ("system", list(system))]  # the first is the baseline
    test: Any = PairedTest(systems, metrics, as_lists(references), "bs", n_samples=samples)
    signatures, results = test()
    is_same = list(system) == list(baseline)  # for which sacreBLEU reports p = 0
    return [
        PairedComparison(
            name,
            float(results[name][1].score),
            float(results[name][0].score),
            1.0 if is_same else float(results[name][1].p_value),
            str(signatures[name]),
        )
        for name in metrics
    ]
