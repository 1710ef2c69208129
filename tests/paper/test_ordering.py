"""What may be said of a difference, and what is chance."""

import math

import pytest

from manyheads.paper.margins import SeedMargins, combine_margins
from manyheads.paper.ordering import (
    Difference,
    describe_tau,
    equivalence_bound,
    kendall_tau,
    summarize_orderings,
    warn_if_untrained,
)
from manyheads.paper.seed_variance import SeedVariance, mean_or_none, student_t


def test_the_variance_of_seeds_is_pooled_over_rows() -> None:
    """Deviations -1, 1 and -2, 2 with two degrees of freedom: sqrt((1 + 1 + 4 + 4) / 2)."""
    spread = SeedVariance.estimate([[4.0, 6.0], [1.0, 5.0], [7.0]])
    assert spread.degrees_of_freedom == 2
    assert spread.std == pytest.approx(math.sqrt(5))
    assert spread.margin(1, 3) == pytest.approx(4.303 * math.sqrt(5) * math.sqrt(1 + 1 / 3))
    assert spread.margin(4) == pytest.approx(4.303 * math.sqrt(5) / 2)


def test_one_seed_gives_no_margin() -> None:
    assert SeedVariance.estimate([[4.0], [5.0]]).margin(1, 1) is None


def test_student_t_is_rounded_up_between_known_degrees_of_freedom() -> None:
    assert (student_t(1), student_t(10), student_t(11), student_t(1000)) == (12.71, 2.228, 2.228, 1.98)


def test_a_mean_with_a_missing_value_is_none() -> None:
    assert mean_or_none([1.0, 3.0]) == 2
    assert mean_or_none([1.0, None]) is None


@pytest.mark.parametrize(
    ("ours", "paper", "margin", "verdict"),
    [
        (1.0, 0.4, 0.5, "holds"),
        (-1.0, 0.4, 0.5, "reversed"),
        (-0.5, 0.4, 0.5, "cannot tell"),
        (1.0, 0.4, None, "unknown"),
        (None, 0.4, 0.5, "unknown"),
        (1.0, None, 0.5, None),
    ],
)
def test_the_verdict_on_a_difference(
    ours: float | None, paper: float | None, margin: float | None, verdict: str | None
) -> None:
    assert Difference(ours, paper, margin).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "margin", "verdict"),
    [
        (0.3, 0.2, "holds"),
        (-0.3, 0.1, "holds"),
        (0.3, 0.3, "cannot tell"),
        (-0.9, 0.3, "reversed"),
        (0.0, 9, "cannot tell"),
    ],
)
def test_where_the_paper_has_no_difference_only_a_small_margin_shows_it(
    ours: float, margin: float, verdict: str
) -> None:
    assert Difference(ours, 0.0, margin, bound=0.5).verdict == verdict


def test_differences_of_the_paper_about_zero_have_an_equivalence_bound() -> None:
    assert equivalence_bound("BLEU", -0.1, 30.0) == 0.5
    assert equivalence_bound("perplexity", 0.03, 7.0) == pytest.approx(0.14)
    assert equivalence_bound("BLEU", -0.3, 30.0) is None
    assert equivalence_bound("perplexity", 0.08, 7.0) is None
    assert equivalence_bound("BLEU", None, 30.0) is None


def test_differences_between_equal_seeds_are_pooled_over_rows() -> None:
    """Differences 1, 3 and -2, 0: each deviates by 1 from its row's mean, with two degrees of freedom."""
    rows = {"base": {1: 10.0, 2: 20.0}, "a": {1: 11.0, 2: 23.0}, "b": {1: 8.0, 2: 20.0}}
    margins = SeedMargins.estimate(rows, "base")
    assert margins.paired is not None
    assert margins.paired.degrees_of_freedom == 2
    ours, margin = margins.difference(rows["a"], rows["base"])
    assert ours == 2
    assert margin == pytest.approx(4.303 * math.sqrt(4 / 2) / math.sqrt(2))


def test_rows_with_one_seed_are_not_paired() -> None:
    rows = {"base": {1: 10.0, 2: 12.0}, "a": {1: 11.0}}
    margins = SeedMargins.estimate(rows, "base")
    assert margins.paired is None
    assert margins.difference(rows["a"], rows["base"]) == (0.0, margins.single.margin(1, 2))


def test_margins_of_independent_sources_add_as_squares() -> None:
    assert combine_margins(3.0, 4.0) == 5
    assert combine_margins(None, 4.0) == 4
    assert combine_margins(None, None) is None


def test_an_interval_of_tau_is_narrow_where_margins_are_small() -> None:
    sure = [Difference(1.0, 0.4, 0.01), Difference(2.0, 0.5, 0.01)]
    assert (
        describe_tau(sure)
        == "; Kendall's tau between the two orders is +1.00, 95 % of it from +1.00 to +1.00"
    )
    assert describe_tau([*sure, Difference(1.0, 0.6, None)]) == ""


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (
            Difference(1.0, 0.4, 0.5),
            "+1.00 here, +0.40 in the paper, margin of chance ±0.50: the paper's ordering holds",
        ),
        (Difference(-1.0, 0.4, 0.5), "the paper's ordering does not hold"),
        (Difference(0.2, 0.4, 0.5), ": within the margin of chance: this run cannot tell"),
        (Difference(0.2, 0.4, None), "here, +0.40 in the paper: the margin of chance is unknown"),
        (Difference(0.2, 0.0, 0.2, 0.5), "no difference beyond ±0.50, as in the paper (equivalence test)"),
        (Difference(0.9, 0.0, 0.2, 0.5), "a difference beyond ±0.50, where the paper has none"),
        (Difference(0.2, 0.0, 0.9, 0.5), "the equivalence test within ±0.50 cannot tell"),
        (Difference(0.9, None, 0.5), "+0.90 here, the paper has no such row, margin of chance ±0.50"),
        (Difference(None, 0.4, 0.5), "is not finite here, +0.40 in the paper"),
    ],
)
def test_a_difference_is_described_with_its_verdict(difference: Difference, words: str) -> None:
    assert words in difference.describe("BLEU")


def test_orderings_are_counted() -> None:
    differences = [
        Difference(1.0, 0.4, 0.5), Difference(2.0, 0.5, 0.5), Difference(-3.0, 0.6, 0.5),
        Difference(0.1, -0.4, 0.5), Difference(1.0, None, 0.5),
    ]  # fmt: skip
    assert summarize_orderings("BLEU", differences) == (
        "By BLEU the paper's ordering holds in 2 of 4 rows, is reversed in 1, and 1 are within the margin of "
        "chance; Kendall's tau between the two orders is +0.00, 95 % of it from +0.00 to +0.20."
    )


def test_the_reference_is_part_of_the_order() -> None:
    below = [Difference(-2.0, 0.4, 0.5), Difference(-1.0, 0.6, 0.5)]  # in the paper's order among themselves
    assert "the two orders is -0.33, 95 % of it from " in summarize_orderings("BLEU", below)


def test_an_untrained_reference_is_warned_about() -> None:
    assert warn_if_untrained(27.3) == []
    for bleu in (0.3, 0.0, None):
        assert "it has not learned to translate" in warn_if_untrained(bleu)[0]


def test_kendall_against_hand_counted_orders() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall_tau([1, 2, 3], [1, 1, 2]) == pytest.approx(2 / math.sqrt(3 * 2))  # one pair is tied
    assert kendall_tau([1], [1]) is None
    assert kendall_tau([1, 1], [1, 2]) is None
