"""Trees to tokens and back: without loss, whatever the tree; and whatever the tokens, a tree."""

import lzma
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from manyheads.config import SubwordConfig
from manyheads.errors import DataError
from manyheads.text import trees
from manyheads.text.invalid import InvalidRecord, InvalidTextError
from manyheads.text.subwords import SubwordTokenizer
from manyheads.text.trees import (
    Leaf,
    Tree,
    get_leaves,
    linearize,
    parse_tree,
    read_trees,
    restore_tree,
    split_tokens,
    strip_annotations,
)

CAT = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
SENTENCE = ["The", "cat", "sleeps", "."]

LABELS = some.text(some.sampled_from("NPSVX.,:`'$-=|#"), min_size=1, max_size=4)
WORDS = some.text(
    some.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="() \t"), min_size=1
)
LEAVES = some.builds(Leaf, LABELS, WORDS)


def branches(inside: some.SearchStrategy[Tree | Leaf]) -> some.SearchStrategy[Tree]:
    return some.builds(Tree, LABELS, some.lists(inside, min_size=1, max_size=4).map(tuple))


TREES = branches(some.recursive(LEAVES, branches, max_leaves=20))
TOKENS = some.lists(
    some.sampled_from(["(TOP", ")TOP", "(S", ")S", "(NP", ")NP", "[DT]", "[NN]", "[]", "(", ")", "?"]),
    max_size=25,
)


def words(tree: Tree) -> list[str]:
    return [leaf.word for leaf in get_leaves(tree)]


def tags(tree: Tree) -> list[str]:
    return [leaf.tag for leaf in get_leaves(tree)]


# ---- without loss


@given(TREES)
def test_a_tree_is_parsed_from_its_line(tree: Tree) -> None:
    assert parse_tree(str(tree)) == tree


@given(TREES)
def test_a_tree_is_restored_from_its_tokens_and_words(tree: Tree) -> None:
    restored = restore_tree("".join(linearize(tree)), words(tree))
    assert restored.tree == tree
    assert restored.is_well_formed


@given(TREES)
def test_given_tags_replace_those_of_the_tokens(tree: Tree) -> None:
    tokens = ["[]" if token.startswith("[") else token for token in linearize(tree)]
    restored = restore_tree(" ".join(tokens), words(tree), tags(tree))
    assert restored.tree == tree
    assert restored.is_well_formed


@given(TREES)
def test_tokens_need_no_spaces_between_them(tree: Tree) -> None:
    tokens = linearize(tree)
    assert split_tokens("".join(tokens)) == split_tokens(" ".join(tokens)) == tokens


def test_the_tokens_of_a_tree() -> None:
    tokens = ["(TOP", "(S", "(NP", "[DT]", "[NN]", ")NP", "(VP", "[VBZ]", ")VP", "[.]", ")S", ")TOP"]
    assert linearize(parse_tree(CAT)) == tokens


def test_each_token_is_one_piece() -> None:
    tokens = linearize(parse_tree(CAT))
    config = SubwordConfig(
        copy_symbols=False,
        term_symbols=False,
        vocab_size=len(set(tokens)) + 4,
        byte_fallback=False,
        user_symbols=tuple(set(tokens)),
    )
    subwords = SubwordTokenizer.train(["".join(tokens)] * 3, config)
    assert subwords.encode_as_pieces("".join(tokens)) == ["▁", *tokens]
    assert subwords.decode(subwords.encode("".join(tokens))) == "".join(tokens)


def test_nesting_has_no_limit() -> None:
    deep = "(X " * 5000 + "(NN cat)" + ")" * 5000
    tree = parse_tree(deep)
    assert str(tree) == deep
    assert str(restore_tree("".join(linearize(tree)), ["cat"]).tree) == deep
    assert str(strip_annotations(tree)) == deep


# ---- whatever a model writes, a tree over the words


@given(TOKENS, some.integers(1, 6), some.booleans())
def test_any_output_becomes_a_tree_over_the_words(tokens: list[str], count: int, tagged: bool) -> None:
    sentence = [f"w{number}" for number in range(count)]
    given_tags = [f"T{number}" for number in range(count)] if tagged else None
    restored = restore_tree(" ".join(tokens), sentence, given_tags)
    assert words(restored.tree) == sentence
    assert given_tags is None or tags(restored.tree) == given_tags
    if "" not in labels(restored.tree):  # a bare bracket can be written, but a file has no such label
        assert parse_tree(str(restored.tree)) == restored.tree
    again = restore_tree("".join(linearize(restored.tree)), sentence, given_tags)
    assert again.tree == restored.tree
    assert again.is_well_formed


def labels(tree: Tree) -> list[str]:
    return [token[1:] for token in linearize(tree) if token.startswith("(")]


@pytest.mark.parametrize(
    ("text", "expected", "repairs"),
    [
        (
            "(TOP(S(NP[DT]?[NN])NP(VP[VBZ])VP[.])S)TOP",
            CAT,
            {trees.UNKNOWN_TOKEN: 1},
        ),
        (
            "(TOP(S(NP[DT][NN])PP)NP(VP[VBZ])VP[.])S)TOP",
            CAT,
            {trees.UNMATCHED_CLOSING: 1},
        ),
        (
            "(TOP(S(NP[DT][NN])NP(VP[VBZ][.])S)TOP",
            "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps) (. .))))",
            {trees.IMPLICIT_CLOSING: 1},
        ),
        (
            "(TOP(S(NP[DT][NN])NP(VP[VBZ])VP[.]",
            CAT,
            {trees.UNCLOSED: 2},
        ),
        (
            "(TOP(S(NP[DT][NN])NP(VP[VBZ])VP[.][NN][NN])S)TOP",
            CAT,
            {trees.TOO_MANY_LEAVES: 2},
        ),
        (
            "(TOP(S(NP[DT][NN])NP)S)TOP",
            "(TOP (S (NP (DT The) (NN cat))) (XX sleeps) (XX .))",
            {trees.TOO_FEW_LEAVES: 2},
        ),
        (
            "(TOP(S(NP[DT][NN])NP(ADVP)ADVP(VP[VBZ])VP[.])S)TOP",
            CAT,
            {trees.EMPTY_BRACKET: 1},
        ),
        (
            "(S(NP[DT][NN])NP)S(VP[VBZ])VP[.]",
            "(TOP (S (NP (DT The) (NN cat))) (VP (VBZ sleeps)) (. .))",
            {trees.MISSING_ROOT: 1},
        ),
        (
            "",
            "(TOP (XX The) (XX cat) (XX sleeps) (XX .))",
            {trees.MISSING_ROOT: 1, trees.TOO_FEW_LEAVES: 4},
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_rule_of_repair(text: str, expected: str, repairs: dict[str, int]) -> None:
    restored = restore_tree(text, SENTENCE)
    assert str(restored.tree) == expected
    assert restored.repairs == Counter(repairs)
    assert set(repairs) <= set(trees.REPAIRS)


def test_a_sentence_without_words_has_no_tree() -> None:
    with pytest.raises(DataError, match="without words"):
        restore_tree("(S)S", [])


# ---- reading


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dog", "no bracket is open ('dog' at character 1)"),
        ("(S (NN dog)))", "more than one tree (')' at character 13 follows the tree)"),
        ("(S (NN dog)) (S (NN cat))", "more than one tree ('(' at character 14 follows the tree)"),
        ("(TOP (S (NN dog))", "1 brackets are not closed (the innermost is at character 1)"),
        ("(S (NN hot dog))", "two words in one bracket ('hot' and 'dog' at character 12)"),
        ("(NP the (NN dog))", "a word without a tag ('the' before character 16)"),
        ("(NP (NN dog) barks)", "a word without a tag ('barks' at character 14 is beside brackets)"),
        ("(S (NN))", "a bracket with nothing in it (at character 4)"),
        ("(S ((NN dog)))", "a bracket without a label (at character 4)"),
        ("(NN dog)", "a word alone is no tree (write (TOP (NN dog)))"),
        (
            "(명사 (NN dog))",
            "a label that is not plain ('명사' at character 2: ASCII without white space, [ and ])",
        ),
        (b"(S (NN d\xffg))", "invalid UTF-8 (byte 9 is 0xff)"),
    ],
)
def test_an_invalid_tree_is_reported_with_its_line(line: str | bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "some.ptb"
    data = line if isinstance(line, bytes) else line.encode()
    file.write_bytes(f"{CAT}\n\n".encode() + data + f"\n{CAT}\n".encode())
    first, bad, last = read_trees(str(file))
    assert first == last == parse_tree(CAT)
    assert isinstance(bad, InvalidRecord)
    assert str(bad) == f"{file}:3: {message}"


def test_compressed_files_are_read_and_broken_ones_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "some.ptb.xz"
    file.write_bytes(lzma.compress(f"{CAT}\n".encode() * 3))
    assert list(read_trees(str(file))) == [parse_tree(CAT)] * 3
    file.write_bytes(file.read_bytes()[:-20])
    assert isinstance(list(read_trees(str(file)))[-1], InvalidRecord)


def test_the_outer_bracket_of_the_penn_treebank_is_called_top() -> None:
    assert str(parse_tree("( (S (NN dog)) )")) == "(TOP (S (NN dog)))"


def test_traces_and_function_tags_are_removed() -> None:
    tree = parse_tree("(TOP (S (NP-SBJ-1 (-LRB- -LRB-) (NN cat)) (VP (VBZ sleeps) (NP=2 (-NONE- *T*-1)))))")
    kept = strip_annotations(tree)
    assert str(kept) == "(TOP (S (NP (-LRB- -LRB-) (NN cat)) (VP (VBZ sleeps))))"
    assert strip_annotations(parse_tree("(TOP (S (-NONE- *)))")) is None


def test_deep_nesting_of_an_invalid_line_is_no_recursion_error() -> None:
    with pytest.raises(InvalidTextError):
        parse_tree("(" * 100_000)
