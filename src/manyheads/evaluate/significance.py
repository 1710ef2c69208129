"""Whether two systems differ by more than chance: paired bootstrap resampling, by sacreBLEU.

With several seeds a system has several translations of each sentence; its BLEU is then the mean over seeds.
Shapes: S seeds, N sentences, B bootstrap samples, 10 statistics: lengths of the hypothesis and the reference,
then the correct and all n-grams for n from 1 to 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.evaluate.bleu import as_lists, bleu_metric
from manyheads.evaluate.evalb import BracketScores

SIGNIFICANCE_LEVEL = 0.05
MAX_ORDER = 4  # of BLEU's n-grams
BOOTSTRAP_SEED = 12345
F1_SAMPLES = 1000
Statistics = NDArray[np.int64]


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


# ---- the difference and its interval


def bleu_statistics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str
) -> list[list[int]]:
    """Return the counts of each sentence from which BLEU is computed. [N, 10]"""
    metric = bleu_metric(tokenizer)
    statistics = metric._extract_corpus_statistics(list(hypotheses), as_lists(references))
    return [list(map(int, row)) for row in statistics]


def bootstrap_bleu_difference(system_SN: Statistics, baseline_SN: Statistics, samples: int) -> float:
    """Return half of the 95 % interval of the difference in BLEU over resampled sentences.

    Both arguments are statistics, [S, N, 10]; the same sentences are drawn for both. Seeds are not resampled.
    """
    count = system_SN.shape[1]
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    draws_BN = generator.multinomial(count, np.full(count, 1 / count), size=samples)
    mean_B = [
        np.mean([compute_bleu(draws_BN @ seed) for seed in statistics], axis=0)
        for statistics in (system_SN, baseline_SN)
    ]
    low, high = np.percentile(mean_B[0] - mean_B[1], [2.5, 97.5])
    return float(high - low) / 2


def bootstrap_f1_margin(
    system: Sequence[BracketScores], baseline: BracketScores | None = None, samples: int = F1_SAMPLES
) -> float:
    """Return half of the 95 % interval of F1 over resampled sentences; with a baseline, of the difference.

    The system's F1 is the mean over seeds; the same sentences are drawn for both.
    """
    counts = [count_brackets(scores) for scores in (*system, *([baseline] if baseline else []))]
    size = len(counts[0])
    draws_BN = np.random.default_rng(BOOTSTRAP_SEED).multinomial(size, np.full(size, 1 / size), size=samples)
    f1_B = [200 * drawn[:, 0] / np.maximum(1, drawn[:, 1]) for drawn in (draws_BN @ own for own in counts)]
    values_B = np.mean(f1_B[: len(system)], axis=0) - (f1_B[-1] if baseline else 0)
    low, high = np.percentile(values_B, [2.5, 97.5])
    return float(high - low) / 2


def count_brackets(scores: BracketScores) -> Statistics:
    """Return the matched brackets of each sentence, and the sum of gold and predicted ones. [N, 2]"""
    return np.array([(row.matched, row.gold + row.predicted) for row in scores.sentences], np.int64)


def compute_bleu(statistics_B: Statistics) -> NDArray[np.float64]:
    """Return BLEU of summed statistics, [B, 10], with sacreBLEU's exponential smoothing."""
    length, reference = statistics_B[:, 0], statistics_B[:, 1]
    correct, total = statistics_B[:, 2 : 2 + MAX_ORDER], statistics_B[:, 2 + MAX_ORDER :]
    halvings = np.cumsum(correct == 0, axis=1)
    smoothed = np.where(correct == 0, 0.5**halvings, correct)
    precision = np.log(np.maximum(smoothed, 1e-300) / np.maximum(total, 1))
    penalty = np.minimum(0.0, 1 - reference / np.maximum(length, 1))
    scores: NDArray[np.float64] = 100 * np.exp(penalty + precision.mean(1))
    scores[(correct.sum(1) == 0) | (total == 0).any(1)] = 0.0
    return scores
