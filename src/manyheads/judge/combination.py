"""From features to one score: each is compared with that of pairs of the same length, then all are weighed.

A feature's badness is how far it lies below the median of trusted pairs of about the same length, in units of
their spread. Short pairs spread more, so what is unusual for a long pair is not for a short one.

Pairs are wrong in different ways: a cut translation is explained word by word, a copy is fluent. So a
logistic regression for each type k of negatives estimates r_k(x) = p(x | wrong as k) / p(x | right), and
the score is

    P(right | x) = 1 / (1 + sum_k P(wrong as k) / P(right) * r_k(x)).

The type with the largest term is the reason of a low score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from manyheads.confidence.logistic import fit_logistic
from manyheads.confidence.ragged import Floats, Ints
from manyheads.judge.features import NAMES

NUM_BINS = 12  # of lengths
MAX_BADNESS = 8.0
MAX_ODDS = 80.0  # logarithm; lower scores would be 0 in float32, and all the same
KNEE = 2.5  # badness above which a feature has a weight of its own
SUPPORT = 2.0  # how far a two-sided feature counts in favor of a pair
TWO_SIDED = ("lexical_target", "lexical_source")
FLUENCY = ("fluency_source", "fluency_target", "window_source", "window_target")
SURE_SIZE = 30  # characters that may add 1 to the badness of fluency: a rare word makes no text garbled
MIN_SPREAD = {
    "lexical_target": 0.05, "lexical_source": 0.05, "part_target": 0.5, "part_source": 0.5,
    "short_target": 0.05, "short_source": 0.05,
    "fluency_source": 0.1, "fluency_target": 0.1, "window_source": 0.2, "window_target": 0.2,
    "language_source": 0.1, "language_target": 0.1, "identified_source": 1.0, "identified_target": 1.0,
    "copy": 0.1, "repetition": 0.1, "encoding": 0.5,
}  # fmt: skip
L2 = 1e-4  # of the regression, per example


@dataclass(frozen=True, eq=False)
class Scaling:
    """Median and spread below it of each feature, by length. [B], [B, F]"""

    centers: Floats  # log of the characters of both sides
    medians: Floats
    spreads: Floats

    @classmethod
    def fit(cls, features_NF: Floats, sizes_N: Ints, tail: float) -> "Scaling":
        """Take the spread from the quantile `tail`: near the median it is robust, far from it exact."""
        order = np.argsort(sizes_N, kind="stable")
        bins = [part for part in np.array_split(order, NUM_BINS) if len(part)]
        centers = np.array([np.log(np.maximum(2, sizes_N[part])).mean() for part in bins])
        quantiles = np.stack([np.quantile(features_NF[part], (0.5, tail), axis=0) for part in bins], 1)
        spreads = (quantiles[0] - quantiles[1]) / -NormalDist().inv_cdf(tail)
        floors = np.array([MIN_SPREAD[name] for name in NAMES])
        return cls(centers, quantiles[0], np.maximum(spreads, floors))

    def apply(self, features_NF: Floats, sizes_N: Ints) -> Floats:
        """Return the badness of each feature. [N, F]"""
        position = np.log(np.maximum(2, sizes_N))
        bad = np.empty_like(features_NF)
        for column, name in enumerate(NAMES):
            median = np.interp(position, self.centers, self.medians[:, column])
            spread = np.interp(position, self.centers, self.spreads[:, column])
            low = -SUPPORT if name in TWO_SIDED else 0.0
            high = np.minimum(MAX_BADNESS, 1 + sizes_N / SURE_SIZE) if name in FLUENCY else MAX_BADNESS
            bad[:, column] = np.clip((median - features_NF[:, column]) / spread, low, high)
        return bad


@dataclass(frozen=True, eq=False)
class Combination:
    """For each type of negatives the weights of badness and of badness beyond the knee, and the log ratio."""

    scaling: Scaling
    types: tuple[str, ...]
    weights: Floats  # [K, 2 F + 1], the bias last
    prior: float  # log of P(wrong as k) / P(right), the same for each type

    @classmethod
    def fit(
        cls, scaling: Scaling, right_NF: Floats, wrong: Mapping[str, Floats], wrong_share: float
    ) -> "Combination":
        """Fit to the badness of right pairs, and of wrong ones by type."""
        rows = []
        for wrong_NF in wrong.values():
            inputs = add_knee(np.concatenate([right_NF, wrong_NF]))
            labels = np.repeat([0.0, 1.0], [len(right_NF), len(wrong_NF)])
            balance = len(right_NF) / max(1, len(wrong_NF))  # so that the odds are the ratio r_k
            weights = np.repeat([1.0, balance], [len(right_NF), len(wrong_NF)])
            rows.append(fit_logistic(inputs, labels, weights, L2 * float(weights.sum())))
        prior = np.log(wrong_share / (1 - wrong_share) / len(wrong))
        return cls(scaling, tuple(wrong), np.stack(rows), float(prior))

    def score(self, features_NF: Floats, sizes_N: Ints) -> tuple[Floats, Floats]:
        """Return the scores, and the log odds of each type of wrong pair. [N], [N, K]"""
        inputs = add_knee(self.scaling.apply(features_NF, sizes_N))
        odds_NK = inputs @ self.weights[:, :-1].T + self.weights[:, -1] + self.prior
        odds_N = np.minimum(np.logaddexp.reduce(odds_NK, 1), MAX_ODDS)
        return np.exp(-np.logaddexp(0, odds_N)), odds_NK


def add_knee(badness_NF: Floats) -> Floats:
    return np.concatenate((badness_NF, np.maximum(0, badness_NF - KNEE)), 1)


def stack_features(features: Mapping[str, Floats]) -> Floats:
    return np.stack([features[name] for name in NAMES], 1)
