"""How good confidences are: how they rank, whether they are calibrated, and the risk at each coverage."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.errors import RequestError

Floats = NDArray[np.float64]

MAX_BINS = 10  # of the ECE
MIN_BIN = 60  # examples of a bin: of fewer the share of positive labels is uncertain


def compute_auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the probability that a positive example has a higher score than a negative one; a tie is half.

    It is nan where one of the two kinds is missing.
    """
    scores_N, labels_N = check_lengths(scores, labels)
    positive = labels_N > 0
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(scores_N, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2  # of equal scores
    rank_sum = mean_ranks[inverse][positive].sum()
    return float((rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


def compute_ece(confidences: ArrayLike, labels: ArrayLike, num_bins: int | None = None) -> float:
    """Return the expected calibration error: the mean difference of confidence and share of positive labels.

    Bins hold equally many examples, so that each difference is measured on as many. By default there are as
    many bins as have MIN_BIN examples each, at most MAX_BINS. nan with fewer examples, or without any.
    """
    if num_bins is None:
        num_bins = min(MAX_BINS, np.size(confidences) // MIN_BIN)
        if not num_bins:
            return float("nan")
    rows = compute_reliability(confidences, labels, num_bins)
    total = sum(count for _, _, count in rows)
    if not total:
        return float("nan")
    return sum(count * abs(confidence - accuracy) for confidence, accuracy, count in rows) / total


def compute_reliability(
    confidences: ArrayLike, labels: ArrayLike, num_bins: int = MAX_BINS
) -> list[tuple[float, float, int]]:
    """Return mean confidence, mean label and number of examples of each bin, by rising confidence."""
    confidences_N, labels_N = check_lengths(confidences, labels)
    order = np.argsort(confidences_N, kind="stable")
    return [
        (float(confidences_N[part].mean()), float(labels_N[part].mean()), len(part))
        for part in np.array_split(order, max(1, num_bins))
        if len(part)
    ]


def compute_risk_coverage(confidences: ArrayLike, losses: ArrayLike) -> tuple[Floats, Floats]:
    """Return coverages k / N and the mean loss of the k examples with the highest confidence, k from 1 to N.

    Examples of the same confidence are covered together in effect: each counts their mean loss.
    """
    confidences_N, losses_N = check_lengths(confidences, losses)
    if not len(confidences_N):
        return np.zeros(0), np.zeros(0)
    values, inverse, counts = np.unique(-confidences_N, return_inverse=True, return_counts=True)
    mean_losses = np.bincount(inverse, losses_N, len(values)) / counts
    ranks = np.arange(1, len(losses_N) + 1)
    return ranks / len(losses_N), np.cumsum(np.repeat(mean_losses, counts)) / ranks


def compute_aurc(confidences: ArrayLike, losses: ArrayLike) -> float:
    """Return the area under the risk-coverage curve: the mean of its risks. Lower is better."""
    _, risks = compute_risk_coverage(confidences, losses)
    return float(risks.mean()) if len(risks) else float("nan")


def check_lengths(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    scores_N, labels_N = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    if scores_N.shape != labels_N.shape or scores_N.ndim != 1:
        raise RequestError(f"{scores_N.shape} scores, but {labels_N.shape} labels: give one for each")
    return scores_N, labels_N
