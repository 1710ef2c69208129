"""Bracket scores of trees: the published sample of EVALB, and examples computed by hand."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from manyheads import playground
from manyheads.errors import DataError
from manyheads.evaluate.evalb import (
    COLLINS,
    BracketScores,
    EvalbParameters,
    TreeBrackets,
    score_tree,
    score_trees,
)
from manyheads.text.trees import Leaf, Tree, parse_tree

# ---- EVALB's own sample (sample.gld, sample.tst, sample.prm) and the results that it is published with

GOLD = "(S (A (P this)) (B (Q is) (A (R a) (T test))))"
LONG = f"(S {' '.join(['(A (P this)) (B (Q is) (A (R a) (T test)))'] * 11)})"
SAMPLE = EvalbParameters(
    deleted_labels=("TOP", "-NONE-", ",", ":", "``", "''"),
    equal_labels=(("T", "TT"),),
    equal_words=(("This", "this"),),
)
# Gold, predicted, and its row: status, brackets matched, gold and predicted, crossing, words, right tags.
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
    (
        GOLD.replace("))))", "))) (-NONE- *))"),
        GOLD.replace("))))", "))) (-NONE- *))"),
        ("", 4, 4, 4, 0, 4, 4),
    ),
    (GOLD.replace("))))", "))) (: *))"), GOLD.replace("))))", "))) (: *))"), ("", 4, 4, 4, 0, 4, 4)),
]


@pytest.fixture(scope="module")
def sample() -> BracketScores:
    predicted = [parse_tree(text) if text else None for _, text, _ in SENTENCES]
    return score_trees([parse_tree(gold) for gold, _, _ in SENTENCES], predicted, SAMPLE)


def test_every_sentence_of_the_sample_scores_as_in_evalb(sample: BracketScores) -> None:
    for (_, text, row), counts in zip(SENTENCES, sample.sentences, strict=True):
        shown = counts.status, counts.matched, counts.gold, counts.predicted
        assert (*shown, counts.crossing, counts.words, counts.tags) == row, text


def test_the_summary_of_the_sample_is_the_published_one(sample: BracketScores) -> None:
    assert (len(sample.sentences), sample.errors, sample.skipped, len(sample.valid)) == (24, 5, 2, 17)
    shares = (sample.recall, sample.precision, sample.exact, sample.crossing, sample.tagging)
    assert [round(share, 2) for share in shares] == [87.76, 90.53, 52.94, 0.06, 98.15]
    assert sample.f1 == pytest.approx(2 * 87.7551 * 90.5263 / (87.7551 + 90.5263), abs=1e-4)


def test_the_summary_up_to_40_words_is_the_published_one(sample: BracketScores) -> None:
    short = sample.with_max_length(40)
    assert (len(short.sentences), short.errors, short.skipped, len(short.valid)) == (23, 5, 2, 16)
    shares = (short.recall, short.precision, short.exact, short.tagging)
    assert [round(share, 2) for share in shares] == [81.25, 85.25, 50.0, 96.88]


# ---- computed by hand

CAT = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps) (PRT (RP in))) (. .)))"


def score_pair(gold: str, predicted: str) -> tuple[int, int, int]:
    counts = score_tree(parse_tree(gold), parse_tree(predicted))
    assert not counts.status
    return counts.matched, counts.gold, counts.predicted


def test_punctuation_does_not_count_in_a_span() -> None:
    """Gold has S 0-4, NP 0-2, VP 2-4 and PRT 3-4; the full stop may hang anywhere, and TOP does not count."""
    assert score_pair(CAT, CAT) == (4, 4, 4)
    hung_lower = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps) (PRT (RP in)) (. .))))"
    assert score_pair(CAT, hung_lower) == (4, 4, 4)


def test_advp_and_prt_are_equal_labels() -> None:
    assert score_pair(CAT, CAT.replace("PRT", "ADVP")) == (4, 4, 4)
    assert score_pair(CAT, CAT.replace("PRT", "PP")) == (3, 4, 4)


def test_each_of_equal_brackets_matches_one_other() -> None:
    """Gold has NP 0-2 once, the other twice: 4 of 4 are recalled, and 4 of 5 are right."""
    twice = CAT.replace("(NP (DT The) (NN cat))", "(NP (NP (DT The) (NN cat)))")
    assert score_pair(CAT, twice) == (4, 4, 5)
    assert score_pair(twice, CAT) == (4, 5, 4)
    assert score_pair(twice, twice) == (5, 5, 5)


def test_function_tags_are_cut_off_labels() -> None:
    assert score_pair(CAT.replace("(NP ", "(NP=2 "), CAT.replace("(NP ", "(NP-SBJ ")) == (4, 4, 4)


@pytest.mark.parametrize(
    ("start", "end", "crossing"), [(0, 2, 1), (1, 3, 0), (2, 4, 1), (1, 2, 0), (0, 4, 0)]
)
def test_a_bracket_crosses_another_from_either_side(start: int, end: int, crossing: int) -> None:
    """Gold has X 1-3 inside of S 0-4."""
    inner = [f"(N {letter})" for letter in "abcd"]
    gold = f"(S {inner[0]} (X {inner[1]} {inner[2]}) {inner[3]})"
    inner[start:end] = [f"(Y {' '.join(inner[start:end])})"]
    assert score_tree(parse_tree(gold), parse_tree(f"(S {' '.join(inner)})")).crossing == crossing


def test_sentence_length_counts_punctuation_but_not_traces() -> None:
    assert score_tree(parse_tree(CAT.replace("(. .)", "(-NONE- *) (. .)")), parse_tree(CAT)).length == 5


def test_brackets_over_punctuation_alone_do_not_count() -> None:
    assert score_pair(CAT, CAT.replace("(. .)", "(NP (. .))")) == (4, 4, 4)


def test_a_sentence_of_punctuation_alone_is_skipped() -> None:
    assert score_tree(parse_tree("(TOP (. .))"), parse_tree("(TOP (. .))")).status == "skipped"


def test_a_punctuation_tag_in_one_tree_only_is_an_error() -> None:
    assert score_tree(parse_tree(CAT), parse_tree(CAT.replace("(. .)", "(NN .)"))).status == "error"


def test_f1_of_one_wrong_attachment() -> None:
    """The last phrase belongs to the verb in gold, 6 brackets, and to the noun in the prediction, 7.

    Gold     S 0-7, NP 0-1, VP 1-7, NP 2-4, PP 4-7, NP 5-7
    Predicted S 0-7, NP 0-1, VP 1-7, NP 2-7, NP 2-4, PP 4-7, NP 5-7
    """
    gold = (
        "(TOP (S (NP (PRP I)) (VP (VBD saw) (NP (DT the) (NN man)) "
        "(PP (IN with) (NP (DT a) (NN telescope)))) (. .)))"
    )
    predicted = (
        "(TOP (S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT the) (NN man)) "
        "(PP (IN with) (NP (DT a) (NN telescope))))) (. .)))"
    )
    score = score_trees([parse_tree(gold)], [parse_tree(predicted)])
    assert (score.recall, score.precision) == pytest.approx((100.0, 100 * 6 / 7))
    assert score.f1 == pytest.approx(100 * 12 / 13)
    assert score.exact == 0
    assert score.tagging == 100


def test_no_predictions_are_no_division_by_zero() -> None:
    score = score_trees([parse_tree(CAT)], [None])
    assert (score.f1, score.recall, score.precision, score.exact, score.tagging) == (0, 0, 0, 0, 0)
    assert score.skipped == 1


def test_the_signature_lists_deleted_and_equal_labels() -> None:
    assert score_trees([], []).signature == "EVALB|deleted:TOP -NONE- , : `` '' .|equal:ADVP=PRT"


def test_another_number_of_predictions_is_refused() -> None:
    with pytest.raises(DataError, match="1 gold trees, but 2 predicted trees"):
        score_trees([parse_tree(CAT)], [None, None])


# ---- other scorers, on gold trees and corrupted copies of them


def corrupt(tree: Tree, rng: random.Random) -> Tree:
    """Remove, add and relabel some brackets, and change some tags."""

    def change(node: Tree | Leaf) -> list[Tree | Leaf]:
        if isinstance(node, Leaf):
            return [
                Leaf("XX", node.word)
                if rng.random() < 0.1 and node.tag not in COLLINS.deleted_labels
                else node
            ]
        inside = [made for child in node.children for made in change(child)]
        draw = rng.random()
        if draw < 0.1:
            return inside
        if draw < 0.2:
            return [Tree(rng.choice(("NP", "ADVP", "PRT")), tuple(inside))]
        if draw < 0.3 and len(inside) > 2:
            inside[:2] = [Tree("PP", tuple(inside[:2]))]
        return [Tree(node.label, tuple(inside))]

    return Tree("TOP", tuple(made for child in tree.children for made in change(child)))


def make_tree_pairs(count: int) -> tuple[list[Tree], list[Tree]]:
    gold = playground.generate_treebank(train=count, valid=0, test=0)["train"]
    rng = random.Random(0)
    return gold, [corrupt(tree, rng) for tree in gold]


@pytest.mark.heavy
def test_pyevalb_counts_the_same_with_equal_conventions() -> None:
    """It deletes nothing and counts equal brackets once, so there are neither here."""
    scorer, parser = pytest.importorskip("PYEVALB.scorer"), pytest.importorskip("PYEVALB.parser")
    plain, compared = EvalbParameters(deleted_labels=(), equal_labels=()), 0
    for gold, predicted in zip(*make_tree_pairs(2000), strict=True):
        ours = score_tree(gold, predicted, plain)
        twice = [tree for tree in (gold, predicted) if len(set(spans(tree))) < len(spans(tree))]
        if twice:
            continue
        made = [parser.create_from_bracket_string(str(tree)) for tree in (gold, predicted)]
        theirs = scorer.Scorer().score_trees(*made)
        counts = theirs.matched_brackets, theirs.gold_brackets, theirs.test_brackets, theirs.correct_tags
        assert (ours.matched, ours.gold, ours.predicted, ours.tags) == counts
        compared += 1
    assert compared > 1000


def spans(tree: Tree) -> list[tuple[str, int, int]]:
    return TreeBrackets(tree, EvalbParameters(deleted_labels=(), equal_labels=())).spans


@pytest.mark.heavy
@pytest.mark.skipif(not shutil.which("evalb"), reason="no evalb on the path")
def test_evalb_itself_gives_the_same_summary(tmp_path: Path) -> None:
    gold, predicted = make_tree_pairs(2000)
    for name, trees in (("gold", gold), ("predicted", predicted)):
        (tmp_path / name).write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    rules = [f"DELETE_LABEL {label}" for label in COLLINS.deleted_labels]
    rules += [f"EQ_LABEL {label} {equal}" for label, equal in COLLINS.equal_labels]
    rules += ["LABELED 1", "MAX_ERROR 10", "CUTOFF_LEN 40", "DELETE_LABEL_FOR_LENGTH -NONE-"]
    (tmp_path / "collins.prm").write_text("\n".join(rules) + "\n")
    command = ["evalb", "-p", "collins.prm", "gold", "predicted"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    summary = output.partition("-- All --")[2].partition("-- len")[0]
    numbers = dict(re.findall(r"^(.+?) += +([\d.]+)$", summary, flags=re.M))
    ours = score_trees(gold, predicted)
    assert float(numbers["Number of Valid sentence"]) == len(ours.valid)
    for name, value in (
        ("Bracketing Recall", ours.recall),
        ("Bracketing Precision", ours.precision),
        ("Complete match", ours.exact),
        ("Average crossing", ours.crossing),
        ("Tagging accuracy", ours.tagging),
    ):
        assert float(numbers[name]) == pytest.approx(value, abs=0.006)
