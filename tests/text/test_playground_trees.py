"""Trees of the built-in grammar: the words of its English sentences, bracketed."""

import re

from manyheads.playground import CONSTRUCTIONS, generate_treebank
from manyheads.playground.english import realize_english
from manyheads.playground.sentences import SentenceSampler
from manyheads.playground.trees import build_english_tree
from manyheads.text.trees import Tree, get_leaves, linearize

LABELS = {"TOP", "S", "SQ", "SBAR", "SBARQ", "NP", "VP", "PP", "ADVP", "ADJP", "PRT", "WHNP", "WHADVP"}
VERBS = {"MD", "TO", "VB", "VBD", "VBG", "VBP", "VBZ"}
TAGS = {"DT", "NN", "NNS", "NNP", "PRP", "PRP$", "POS", "CD", "JJ", "EX", ".", ","}
TAGS |= {"RB", "RP", "IN", "CC", "WP", "WDT", "WRB", *VERBS}

EXAMPLES = {
    "Does Mina's mother eat rice in the park every morning?": (
        "(TOP (SQ (VBZ Does) (NP (NP (NNP Mina) (POS 's)) (NN mother)) (VP (VB eat) (NP (NN rice)) "
        "(PP (IN in) (NP (DT the) (NN park))) (NP (DT every) (NN morning))) (. ?)))"
    ),
    "What is he eating in the park now?": (
        "(TOP (SBARQ (WHNP (WP What)) (SQ (VBZ is) (NP (PRP he)) (VP (VBG eating) "
        "(PP (IN in) (NP (DT the) (NN park))) (ADVP (RB now)))) (. ?)))"
    ),
    "They want to go home today.": (
        "(TOP (S (NP (PRP They)) (VP (VBP want) (S (VP (TO to) (VP (VB go) (ADVP (RB home)) "
        "(NP (NN today)))))) (. .)))"
    ),
    "The teacher who went to the park ate rice at home.": (
        "(TOP (S (NP (NP (DT The) (NN teacher)) (SBAR (WHNP (WP who)) (S (VP (VBD went) "
        "(PP (TO to) (NP (DT the) (NN park))))))) (VP (VBD ate) (NP (NN rice)) "
        "(PP (IN at) (NP (NN home)))) (. .)))"
    ),
    "Anna did not go to the park because it rained.": (
        "(TOP (S (NP (NNP Anna)) (VP (VBD did) (RB not) (VP (VB go) (PP (TO to) (NP (DT the) (NN park))) "
        "(SBAR (IN because) (S (NP (PRP it)) (VP (VBD rained)))))) (. .)))"
    ),
    "The child ate dinner, but Anna did not eat lunch.": (
        "(TOP (S (S (NP (DT The) (NN child)) (VP (VBD ate) (NP (NN dinner)))) (, ,) (CC but) "
        "(S (NP (NNP Anna)) (VP (VBD did) (RB not) (VP (VB eat) (NP (NN lunch))))) (. .)))"
    ),
}


def sentence(tree: Tree) -> str:
    """The words, put together as English writes them."""
    text = " ".join(leaf.word for leaf in get_leaves(tree))
    return re.sub(r" (?='s\b|' |[.,?])", "", text).replace("can not", "cannot")


def test_a_tree_has_the_words_of_the_sentence() -> None:
    sampler = SentenceSampler(5, frozenset(CONSTRUCTIONS), None)
    for _ in range(4000):
        meaning = sampler.sample_sentence()
        assert sentence(build_english_tree(meaning)) == realize_english(meaning)


def test_a_sentence_has_one_tree() -> None:
    sampler = SentenceSampler(6, frozenset(CONSTRUCTIONS), 2)  # so few words that sentences come again
    known: dict[str, Tree] = {}
    meanings = [sampler.sample_sentence() for _ in range(4000)]
    for meaning in meanings:
        tree = build_english_tree(meaning)
        assert known.setdefault(realize_english(meaning), tree) == tree
    assert len(known) < len(meanings)


def test_labels_and_tags_are_those_of_the_penn_treebank() -> None:
    for tree in generate_treebank(train=500, valid=0, test=0)["train"]:
        assert tree.label == "TOP"
        tokens = linearize(tree)
        assert {token[1:] for token in tokens if token.startswith("(")} <= LABELS
        assert {token[1:-1] for token in tokens if token.startswith("[")} <= TAGS


def test_some_trees_equal_hand_written_ones() -> None:
    trees_by_text = {
        sentence(tree): str(tree) for tree in generate_treebank(train=3000, valid=0, test=0, words=3)["train"]
    }
    examples = {text: tree for text, tree in trees_by_text.items() if text in EXAMPLES}
    assert examples == EXAMPLES


def test_the_splits_share_no_sentence() -> None:
    treebank = generate_treebank(train=300, valid=50, test=50, seed=2)
    assert {split: len(trees) for split, trees in treebank.items()} == {"train": 300, "valid": 50, "test": 50}
    sentences = [sentence(tree) for trees in treebank.values() for tree in trees]
    assert len(set(sentences)) == 400
    assert generate_treebank(train=300, valid=50, test=50, seed=2) == treebank
