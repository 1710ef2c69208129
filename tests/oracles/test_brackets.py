"""F1 of trees: the published sample of EVALB, and examples worked by hand."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from manyheads.brackets import COLLINS, Bracketing, Conventions, bracketing, judge
from manyheads.errors import DataError
from manyheads.text.trees import Leaf, Tree, leaves, parse

# ---- EVALB's own sample (sample.gld, sample.tst, sample.prm) and the results that it is published with

GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
LONG = f"(S {' '.join(['(A (P this)) (B (Q is) (A (R a) (T test)))'] * 11)})"
SAMPLE = Conventions(
    deleted=("TOP", "-NONE-", ",", ":", "``", "''"),
    equal_labels=(("T", "TT"),),
    equal_words=(("This", "this"),),
)
# What is judged, and its row: status, brackets matched, in gold and found, crossing, words, right tags.
SENTENCES: list[tuple[str, str, tuple[object, ...]]] = [
    (GOLD, GOLD, ("", 4, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P this)) (B (Q is) (C (R a) (T test))))", ("", 3, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (U test))))", ("", 4, 4, 4, 0, 4, 3)),
    (GOLD, "(S (C (P this)) (B (Q is) (A (R a) (U test))))", ("", 3, 4, 4, 0, 4, 3)),
    (GOLD, "(S (A (P this)) (B (Q is) (R a) (A (T test))))", ("", 3, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P this) (Q is)) (A (R a) (T test)))", ("", 2, 4, 3, 1, 4, 4)),
    (GOLD, "(S (P this) (Q is) (R a) (T test))", ("", 1, 4, 1, 0, 4, 4)),
    (GOLD, "((P this) (Q is) (R a) (T test))", ("", 0, 4, 0, 0, 4, 4)),  # there without the outer bracket
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))", ("", 4, 4, 5, 0, 4, 4)),
    (GOLD, "(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))", ("", 4, 4, 8, 0, 4, 4)),
    (GOLD, "", ("skipped", 0, 0, 0, 0, 0, 0)),
    (GOLD, "(S (A (P this)) (B (Q was) (A (A (R a) (T test)))))", ("error", 0, 0, 0, 0, 0, 0)),
    (GOLD, "(S (A (P this)) (B (Q is) (U not) (A (A (R a) (T test)))))", ("error", 0, 0, 0, 0, 0, 0)),
    (GOLD, "", ("skipped", 0, 0, 0, 0, 0, 0)),
    (GOLD, f"(TOP {GOLD})", ("", 4, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P this)) (NONE *) (B (Q is) (A (R a) (T test))))", ("error", 0, 0, 0, 0, 0, 0)),
    (
        GOLD,
        "(S (A (P this)) (S (NONE abc) (A (NONE *))) (B (Q is) (A (R a) (T test))))",
        ("error", 0, 0, 0, 0, 0, 0),
    ),
    (GOLD, "(S (A (P this)) (B (Q is) (A (R a) (TT test))))", ("", 4, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P This)) (B (Q is) (A (R a) (T test))))", ("", 4, 4, 4, 0, 4, 4)),
    (GOLD, "(S (A (P That)) (B (Q is) (A (R a) (T test))))", ("error", 0, 0, 0, 0, 0, 0)),
    ("(S (A-SBJ-1 (P this)) (B-WHATEVER (Q is) (A (R a) (T test))))", GOLD, ("", 4, 4, 4, 0, 4, 4)),
    (LONG, LONG, ("", 34, 34, 34, 0, 44, 44)),
    (*[GOLD.replace("))))", "))) (-NONE- *))")] * 2, ("", 4, 4, 4, 0, 4, 4)),
    (*[GOLD.replace("))))", "))) (: *))")] * 2, ("", 4, 4, 4, 0, 4, 4)),
]


@pytest.fixture(scope="module")
def sample() -> Bracketing:
    found = [parse(text) if text else None for _, text, _ in SENTENCES]
    return bracketing([parse(gold) for gold, _, _ in SENTENCES], found, SAMPLE)


def test_every_sentence_of_the_sample_is_judged_as_evalb_judges_it(sample: Bracketing) -> None:
    for (_, text, row), one in zip(SENTENCES, sample.sentences, strict=True):
        judged = (one.fault, one.matched, one.gold, one.found, one.crossing, one.words, one.tags)
        assert judged == row, text


def test_the_summary_of_the_sample_is_the_published_one(sample: Bracketing) -> None:
    assert (len(sample.sentences), sample.errors, sample.skipped, len(sample.valid)) == (24, 5, 2, 17)
    shares = (sample.recall, sample.precision, sample.exact, sample.crossing, sample.tagging)
    assert [round(one, 2) for one in shares] == [87.76, 90.53, 52.94, 0.06, 98.15]
    assert sample.f1 == pytest.approx(2 * 87.7551 * 90.5263 / (87.7551 + 90.5263), abs=1e-4)


def test_so_is_that_of_sentences_of_at_most_40_words(sample: Bracketing) -> None:
    short = sample.up_to(40)
    assert (len(short.sentences), short.errors, short.skipped, len(short.valid)) == (23, 5, 2, 16)
    shares = (short.recall, short.precision, short.exact, short.tagging)
    assert [round(one, 2) for one in shares] == [81.25, 85.25, 50.0, 96.88]
