"""Ranking and calibration, on cases that are computed by hand."""

import math

import numpy as np
import pytest

from manyheads.confidence.metrics import (
    compute_aurc,
    compute_auroc,
    compute_ece,
    compute_reliability,
    compute_risk_coverage,
)
from manyheads.errors import RequestError


def test_auroc_counts_the_pairs_in_the_right_order() -> None:
    assert compute_auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75
    assert compute_auroc([0.9, 0.8, 0.1], [1, 1, 0]) == 1
    assert compute_auroc([0.1, 0.2, 0.9], [1, 1, 0]) == 0


def test_a_tie_is_half_a_pair() -> None:
    assert compute_auroc([0.5, 0.5, 0.5], [1, 0, 0]) == 0.5
    assert compute_auroc([0.5, 0.5, 0.2], [1, 0, 0]) == 0.75


def test_auroc_equals_the_count_over_all_pairs() -> None:
    random = np.random.default_rng(0)
    scores, labels = random.integers(0, 20, 200) / 20, random.integers(0, 2, 200)
    pairs = [
        1.0 if high > low else 0.5 if high == low else 0.0
        for high in scores[labels == 1]
        for low in scores[labels == 0]
    ]
    assert compute_auroc(scores, labels) == pytest.approx(np.mean(pairs))


def test_auroc_of_one_kind_alone_is_not_a_number() -> None:
    assert math.isnan(compute_auroc([0.1, 0.2], [1, 1]))
    assert math.isnan(compute_auroc([], []))


def test_ece_is_the_mean_difference_over_bins() -> None:
    confidences, labels = [0.2, 0.2, 0.8, 0.8], [0, 1, 1, 1]
    assert compute_reliability(confidences, labels, 2) == [(0.2, 0.5, 2), (0.8, 1, 2)]
    assert compute_ece(confidences, labels, 2) == pytest.approx((0.3 + 0.2) / 2)
    assert compute_ece([0.0, 1.0], [0, 1], 10) == 0
    assert math.isnan(compute_ece([], []))


def test_of_few_examples_there_is_no_ece() -> None:
    confidences, labels = [0.2] * 60 + [0.8] * 60, [1] * 60 + [0] * 60
    assert compute_ece(confidences, labels) == pytest.approx(0.8)  # two bins
    assert compute_ece(confidences[1:], labels[1:]) == pytest.approx(abs(0.6 / 119), abs=0.01)  # one
    assert math.isnan(compute_ece([0.5] * 59, [1] * 59))


def test_the_risk_falls_when_the_least_confident_are_left_out() -> None:
    coverages, risks = compute_risk_coverage([0.9, 0.1, 0.5], [0, 1, 0.5])
    assert coverages.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert risks.tolist() == pytest.approx([0, 0.25, 0.5])
    assert compute_aurc([0.9, 0.1, 0.5], [0, 1, 0.5]) == pytest.approx(0.25)


def test_the_order_of_equal_confidences_does_not_change_the_risk() -> None:
    _, risks = compute_risk_coverage([0.5, 0.5], [0, 1])
    _, others = compute_risk_coverage([0.5, 0.5], [1, 0])
    assert risks.tolist() == others.tolist() == [0.5, 0.5]


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(RequestError, match="give one for each"):
        compute_auroc([0.1, 0.2], [1])
