"""Measures of heads, against what can be computed by hand."""

import numpy as np
import pytest

from manyheads.look.measures import MEASURES, compute_measures, find_heads_like_figures


def of(map_QK: list[list[float]], kind: str = "encoder") -> dict[str, float | None]:
    values = compute_measures(np.array([[map_QK]], dtype=np.float32), kind)[0][0]
    return dict(zip(MEASURES, values, strict=True))


def test_a_head_that_looks_at_itself() -> None:
    assert of(np.eye(4).tolist()) == {
        "entropy": 0, "distance": 0, "diagonal": 1, "previous": 0, "edge": 0.25,
    }  # fmt: skip


def test_a_head_that_looks_at_the_word_before() -> None:
    found = of([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert found == {
        "entropy": 0,
        "distance": pytest.approx(2 / 3),
        "diagonal": pytest.approx(1 / 3),
        "previous": 1,  # of those that have a word before them
        "edge": 0,
    }


def test_a_head_that_looks_everywhere() -> None:
    found = of([[0.25] * 4] * 4)
    assert found == {
        "entropy": 2,
        "distance": pytest.approx((6 + 4 + 4 + 6) / 16),
        "diagonal": 0.25,
        "previous": 0.25,
        "edge": 0.25,
    }


def test_uneven_shares_by_hand() -> None:
    found = of([[0.5, 0.25, 0.25], [0, 0.5, 0.5], [1, 0, 0]])
    assert found["entropy"] == pytest.approx((1.5 + 1 + 0) / 3, rel=1e-5)
    assert found["distance"] == pytest.approx((0.25 + 0.5 + 0.5 + 2) / 3, rel=1e-5)
    assert found["edge"] == pytest.approx((0.25 + 0.5 + 0) / 3, rel=1e-5)


def test_the_decoder_rests_on_its_begin() -> None:
    found = of([[1, 0], [0.75, 0.25]], "decoder")
    assert found["edge"] == 0.875
    assert found["previous"] == 0.75


def test_between_sentences_the_diagonal_goes_from_corner_to_corner_and_nothing_comes_before() -> None:
    found = of([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]], "cross")
    assert found == {
        "entropy": 0,
        "distance": 0,
        "diagonal": 1,
        "previous": None,
        "edge": pytest.approx(1 / 3),
    }
    assert of([[1.0]], "encoder")["previous"] is None


# ---- heads like those of the figures


def pointing(*places: int, size: int = 9) -> np.ndarray:
    """Each row looks at one place."""
    return np.eye(size)[list(places)]


LONG = pointing(4, 5, 6, 7, 0, 1, 2, 3, 8)
BEFORE = pointing(0, 0, 1, 2, 3, 4, 5, 6, 7)
ITSELF = np.eye(9)
ENDS = pointing(*[8] * 9)
REST = pointing(*[4] * 9)
TREE = pointing(1, 3, 1, 6, 3, 4, 5, 5, 8)
ONE_LINK = np.full((9, 9), 1 / 9)
ONE_LINK[2] = np.eye(9)[5]
WORDS = [True] * 8 + [False]


def scores(likeness: str, *heads: np.ndarray) -> list[float]:
    """Of each head, in the order given."""
    found = [find_heads_like_figures(one[None, None], "encoder", WORDS, WORDS)[likeness] for one in heads]
    return [one[0]["score"] for one in found]


def test_the_best_head_comes_first_with_its_layer_and_its_row() -> None:
    found = find_heads_like_figures(np.stack([[ITSELF, BEFORE], [ONE_LINK, ENDS]]), "encoder", WORDS, WORDS)[
        "sharp"
    ]
    # All rows give word 5 a ninth, but row 2 gives it 1: the mean over the eight words is what rest is.
    score = 1 - (7 / 9 + 1) / 8
    assert found[0] == {"layer": 1, "head": 0, "row": 2, "score": pytest.approx(score, rel=1e-5)}
    assert len(found) == 3


def test_a_head_like_figure_3_looks_far_away() -> None:
    far, *others = scores("long", LONG, BEFORE, ITSELF, ENDS, REST)
    assert far == pytest.approx(1 - 1 / 8)
    assert max(others) == 0


def test_a_head_like_figure_4_is_sharp_and_not_at_rest() -> None:
    sharp, before, itself, ends, rest = scores("sharp", ONE_LINK, BEFORE, ITSELF, ENDS, REST)
    assert sharp > 0.7
    assert max(before, itself, ends, rest) == 0


def test_a_head_like_figure_5_follows_neither_positions_nor_one_word() -> None:
    tree, before, itself, ends, rest = scores("structural", TREE, BEFORE, ITSELF, ENDS, REST)
    assert tree > 0.4
    assert before < 0.2
    assert max(itself, ends, rest) == 0
    (two_places,) = scores("structural", pointing(7, 7, 7, 7, 0, 0, 0, 0, 8))
    assert two_places == pytest.approx(0.5 * 1 / 3, rel=1e-5), "1 bit of 3, however the directions differ"


def test_a_sentence_of_one_word_has_no_such_head() -> None:
    found = find_heads_like_figures(np.ones((1, 1, 1, 1)), "encoder", [False], [False])
    assert found == {"long": [], "sharp": [], "structural": []}
