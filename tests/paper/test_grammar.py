"""The grammar that Table 4 is compared with: rules, lexicon, and CKY against all trees."""

import math
from itertools import product

import pytest

from manyheads.evaluate.evalb import score_trees
from manyheads.paper.cky import CkyParser
from manyheads.paper.pcfg import Grammar, binarize, list_rules
from manyheads.text.trees import Leaf, Tree, get_leaves, parse_tree

CAT = parse_tree("(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT the) (NN dog)) (ADVP (RB now)))))")
AMBIGUOUS = [
    "(TOP (S (NP (NN a)) (VP (VB b) (NP (NN c)) (PP (IN d) (NP (NN e))))))",
    "(TOP (S (NP (NN a)) (VP (VB b) (NP (NP (NN c)) (PP (IN d) (NP (NN e)))))))",
    "(TOP (S (NP (NN c)) (VP (VB b) (NP (NP (NN a)) (PP (IN d) (NP (NN a)))))))",
]


def test_labels_carry_their_parent_and_long_rules_become_binary() -> None:
    leaves: list[tuple[Leaf, str]] = []
    rules = set(list_rules(CAT, 2, leaves))
    assert ("NP^S", "DT^NP", "NN^NP") in rules
    assert ("VP^S", "VBZ^VP", "@VP^S[VBZ]") in rules
    assert ("@VP^S[VBZ]", "NP^VP", "ADVP^VP") in rules
    assert ("TOP", "S^TOP") in rules
    assert (Leaf("NN", "cat"), "NN^NP") in leaves


def test_symbols_between_rules_remember_only_the_last_children() -> None:
    rules = list(binarize("X", list("abcde"), 1))
    assert rules == [
        ("X", "a", "@X[a]"),
        ("@X[a]", "b", "@X[b]"),
        ("@X[b]", "c", "@X[c]"),
        ("@X[c]", "d", "e"),
    ]


def test_a_grammar_parses_its_only_tree() -> None:
    parser = CkyParser(Grammar.estimate([CAT]))
    for gold_tags in (False, True):
        assert parser.parse(get_leaves(CAT), gold_tags=gold_tags) == CAT


def derivations(grammar: Grammar, symbol: int, tags: tuple[int, ...]) -> list[float]:
    """Log probabilities of all derivations of at most two unary rules in a row."""

    def expand(symbol: int, start: int, end: int, unary: int) -> list[float]:
        scores = [0.0] if end - start == 1 and tags[start] == symbol else []
        for parent, children, score in zip(
            grammar.binary.parents, grammar.binary.children, grammar.binary.scores, strict=True
        ):
            for split in range(start + 1, end) if parent == symbol else ():
                left, right = expand(children[0], start, split, 2), expand(children[1], split, end, 2)
                scores += [score + a + b for a, b in product(left, right)]
        for parent, children, score in zip(
            grammar.unary.parents, grammar.unary.children, grammar.unary.scores, strict=True
        ):
            if parent == symbol and unary:
                scores += [score + inner for inner in expand(children[0], start, end, unary - 1)]
        return scores

    return expand(symbol, 0, len(tags), 2)


def test_cky_finds_the_most_likely_of_all_trees() -> None:
    grammar = Grammar.estimate(map(parse_tree, AMBIGUOUS))
    parser = CkyParser(grammar, prune_below=math.inf)
    sentence = get_leaves(parse_tree(AMBIGUOUS[0]))
    words = grammar.score_words(sentence, gold_tags=True)
    chart, _ = parser._fill_chart(words)
    best = max(
        max(scores, default=-math.inf)
        for tags in product(*words)
        if (scores := derivations(grammar, grammar.numbers["TOP"], tags))
    )
    assert chart[0, 5, grammar.numbers["TOP"]] == pytest.approx(best)
    assert parser.parse(sentence, gold_tags=True) == parse_tree(
        AMBIGUOUS[1]
    )  # two of three attach to the noun


def test_unknown_words_take_the_tags_of_rare_words_of_their_shape() -> None:
    trees = [parse_tree(f"(TOP (S (NP (NN dog{'x' * n})) (VP (VBG walk{'y' * n}ing))))") for n in range(4)]
    parse = CkyParser(Grammar.estimate(trees)).parse([Leaf("", "cat"), Leaf("", "jumping")], gold_tags=False)
    assert parse is not None
    assert [leaf.tag for leaf in get_leaves(parse)] == ["NN", "VBG"]


def test_a_sentence_that_no_rule_covers_has_no_parse() -> None:
    parser = CkyParser(Grammar.estimate([CAT]))
    assert parser.parse([Leaf("DT", "the")] * 2, gold_tags=True) is None


def test_parses_are_scored_by_the_same_scorer_as_the_transformer() -> None:
    parse = CkyParser(Grammar.estimate(map(parse_tree, AMBIGUOUS))).parse(
        get_leaves(parse_tree(AMBIGUOUS[0])), gold_tags=True
    )
    assert isinstance(parse, Tree)
    assert 0 < score_trees([parse_tree(AMBIGUOUS[0])], [parse]).f1 < 100
