"""BLEU from the counts of sentences, and the interval of a difference."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from manyheads.evaluate.evalb import BracketScores, SentenceBrackets
from manyheads.evaluate.significance import (
    bleu_statistics,
    bootstrap_bleu_difference,
    bootstrap_f1_margin,
    compute_bleu,
)

REFERENCES = [
    "the cat sat on the mat .",
    "a dog sees the small house today .",
    "we go home now .",
    "they read a long book about birds .",
]
GOOD = [
    "the cat sat on the mat .",
    "a dog sees the small house .",
    "we go home .",
    "they read a book about birds .",
]
BAD = ["cat mat .", "dog the house small .", "home go now we .", "book read they ."]


@pytest.mark.parametrize("hypotheses", [GOOD, BAD, ["x"] * 4, REFERENCES])
def test_bleu_of_summed_counts_is_that_of_sacrebleu(hypotheses: list[str]) -> None:
    statistics = np.array(bleu_statistics(hypotheses, [REFERENCES], "13a"))
    expected = BLEU(force=True).corpus_score(hypotheses, [REFERENCES]).score
    assert compute_bleu(statistics.sum(0, keepdims=True))[0] == pytest.approx(expected)


def test_equal_systems_have_no_margin_and_others_do() -> None:
    good, bad = (np.array([bleu_statistics(texts, [REFERENCES], "13a")] * 2) for texts in (GOOD, BAD))
    assert bootstrap_bleu_difference(good, good, 50) == 0
    assert 0 < bootstrap_bleu_difference(good, bad, 50) < 100


def test_pairs_of_sentences_vary_less_than_the_systems_alone() -> None:
    """The second system is a little worse in every sentence, so their difference hardly varies."""
    generator = np.random.default_rng(1)
    correct = generator.integers(6, 18, (1, 300, 1)) - np.arange(4)
    totals = np.broadcast_to(20 - np.arange(4), correct.shape)
    lengths = np.full((1, 300, 2), 20)
    system, other = (np.concatenate([lengths, correct - lost, totals], -1) for lost in (0, 1))
    paired = bootstrap_bleu_difference(system, other, 200)
    shuffled = bootstrap_bleu_difference(system, other[:, generator.permutation(300)], 200)
    assert paired < 0.3 * shuffled


def make_brackets(matched: list[int]) -> BracketScores:
    """Sentences of ten gold and ten predicted brackets."""
    return BracketScores([SentenceBrackets(10, gold=10, predicted=10, matched=count) for count in matched])


def test_the_interval_of_f1_covers_test_sentences() -> None:
    generator = np.random.default_rng(0)
    matched = generator.integers(0, 11, 400).tolist()
    margin = bootstrap_f1_margin([make_brackets(matched)])
    expected = (
        1.96 * float(np.std(matched)) * 10 / 400**0.5
    )  # F1 is the mean of ten times the matched brackets
    assert margin == pytest.approx(expected, rel=0.15)
    assert bootstrap_f1_margin([make_brackets([7] * 50)]) == 0


def test_the_interval_of_an_f1_difference_is_paired() -> None:
    matched = np.random.default_rng(0).integers(0, 10, 400)
    system, baseline = make_brackets((matched + 1).tolist()), make_brackets(matched.tolist())
    assert bootstrap_f1_margin([system], baseline) < 1e-9 < bootstrap_f1_margin([system])
    assert bootstrap_f1_margin([system, baseline]) == pytest.approx(bootstrap_f1_margin([baseline]), rel=0.1)
