"""Measures of heads against values computed by hand."""

import numpy as np
import pytest

from manyheads.look.figure_heads import find_heads_like_figures
from manyheads.look.measures import MEASURES, compute_measures
from support.node_engine import NodeEngine


def measure(map_QK: list[list[float]], attention_type: str = "encoder") -> dict[str, float | None]:
    values = compute_measures(np.array([[map_QK]], dtype=np.float32), attention_type)[0][0]
    return dict(zip(MEASURES, values, strict=True))


def test_a_head_that_attends_to_itself() -> None:
    assert measure(np.eye(4).tolist()) == {
        "entropy": 0, "distance": 0, "diagonal": 1, "previous": 0, "edge": 0.25,
    }  # fmt: skip


def test_a_head_that_attends_to_the_previous_word() -> None:
    measures = measure([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert measures == {
        "entropy": 0,
        "distance": pytest.approx(2 / 3),
        "diagonal": pytest.approx(1 / 3),
        "previous": 1,  # of those that have a word before them
        "edge": 0,
    }


def test_a_head_with_uniform_attention() -> None:
    measures = measure([[0.25] * 4] * 4)
    assert measures == {
        "entropy": 2,
        "distance": pytest.approx((6 + 4 + 4 + 6) / 16),
        "diagonal": 0.25,
        "previous": 0.25,
        "edge": 0.25,
    }


def test_measures_of_uneven_weights() -> None:
    measures = measure([[0.5, 0.25, 0.25], [0, 0.5, 0.5], [1, 0, 0]])
    assert measures["entropy"] == pytest.approx((1.5 + 1 + 0) / 3, rel=1e-5)
    assert measures["distance"] == pytest.approx((0.25 + 0.5 + 0.5 + 2) / 3, rel=1e-5)
    assert measures["edge"] == pytest.approx((0.25 + 0.5 + 0) / 3, rel=1e-5)


def test_the_edge_of_the_decoder_is_its_beginning() -> None:
    measures = measure([[1, 0], [0.75, 0.25]], "decoder")
    assert measures["edge"] == 0.875
    assert measures["previous"] == 0.75


def test_the_diagonal_of_cross_attention_goes_from_corner_to_corner() -> None:
    measures = measure([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]], "cross")
    assert measures == {
        "entropy": 0,
        "distance": 0,
        "diagonal": 1,
        "previous": None,
        "edge": pytest.approx(1 / 3),
    }
    assert measure([[1.0]], "encoder")["previous"] is None


# ---- heads like those of the figures


def one_hot_map(*keys: int, size: int = 9) -> np.ndarray:
    """Return a map whose rows have all weight on one key."""
    return np.eye(size)[list(keys)]


LONG = one_hot_map(4, 5, 6, 7, 0, 1, 2, 3, 8)
PREVIOUS = one_hot_map(0, 0, 1, 2, 3, 4, 5, 6, 7)
DIAGONAL = np.eye(9)
END = one_hot_map(*[8] * 9)
REST = one_hot_map(*[4] * 9)
TREE = one_hot_map(1, 3, 1, 6, 3, 4, 5, 5, 8)
ONE_LINK = np.full((9, 9), 1 / 9)
ONE_LINK[2] = np.eye(9)[5]
WORDS = [True] * 8 + [False]


def score_each(pattern: str, *heads: np.ndarray) -> list[float]:
    """Return the score of each head."""
    results = [find_heads_like_figures(head[None, None], "encoder", WORDS, WORDS)[pattern] for head in heads]
    return [result[0]["score"] for result in results]


def test_the_best_head_comes_first_with_its_layer_and_row() -> None:
    heads = find_heads_like_figures(
        np.stack([[DIAGONAL, PREVIOUS], [ONE_LINK, END]]), "encoder", WORDS, WORDS
    )["sharp"]
    # All rows give word 5 a ninth, but row 2 gives it 1: the mean over the eight words is what rest is.
    score = 1 - (7 / 9 + 1) / 8
    assert heads[0] == {"layer": 1, "head": 0, "row": 2, "score": pytest.approx(score, rel=1e-5)}
    assert len(heads) == 3


def test_heads_like_figure_3_attend_far_away() -> None:
    far, *others = score_each("long", LONG, PREVIOUS, DIAGONAL, END, REST)
    assert far == pytest.approx(1 - 1 / 8)
    assert max(others) == 0


def test_heads_like_figure_4_are_sharp_and_have_no_resting_place() -> None:
    sharp, before, itself, ends, rest = score_each("sharp", ONE_LINK, PREVIOUS, DIAGONAL, END, REST)
    assert sharp > 0.7
    assert max(before, itself, ends, rest) == 0


def test_heads_like_figure_5_follow_neither_positions_nor_one_word() -> None:
    tree, before, itself, ends, rest = score_each("structural", TREE, PREVIOUS, DIAGONAL, END, REST)
    assert tree > 0.4
    assert before < 0.2
    assert max(itself, ends, rest) == 0
    (two_places,) = score_each("structural", one_hot_map(7, 7, 7, 7, 0, 0, 0, 0, 8))
    assert two_places == pytest.approx(0.5 * 1 / 3, rel=1e-5), "1 bit of 3, however the directions differ"


def test_a_sentence_without_words_has_no_such_heads() -> None:
    heads = find_heads_like_figures(np.ones((1, 1, 1, 1)), "encoder", [False], [False])
    assert heads == {"long": [], "sharp": [], "structural": []}


@pytest.mark.parametrize("attention_type", ["encoder", "decoder", "cross"])
def test_measures_of_the_live_page_equal_these(node: NodeEngine, attention_type: str) -> None:
    rng = np.random.default_rng(0)
    for rows, columns in [(1, 1), (1, 4), (2, 2), (7, 7), (6, 9), (9, 6)]:
        if attention_type != "cross":
            columns = rows
        maps = rng.dirichlet([0.2] * columns, size=(1, 3, rows))
        if attention_type == "decoder":
            maps = np.tril(maps + 1e-9)
            maps /= maps.sum(-1, keepdims=True)
        sent = [{"rows": rows, "columns": columns, "weights": head.ravel().tolist()} for head in maps[0]]
        own = node.call("measure", maps=sent, attention=attention_type)
        for measures, values in zip(own, compute_measures(maps, attention_type)[0], strict=True):
            expected = dict(zip(MEASURES, values, strict=True))
            assert (measures["previous"] is None) == (expected["previous"] is None)
            for name in measures.keys() - {"previous" if expected["previous"] is None else ""}:
                assert measures[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-9), name
