"""Measures of heads, against what can be computed by hand."""

import numpy as np
import pytest

from manyheads.look.measures import MEASURES, heads_like, measured


def of(map_QK: list[list[float]], kind: str = "encoder") -> dict[str, float | None]:
    values = measured(np.array([[map_QK]], dtype=np.float32), kind)[0][0]
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


LONG = pointing(5, 6, 7, 0, 0, 0, 1, 2, 8)
BEFORE = pointing(0, 0, 1, 2, 3, 4, 5, 6, 7)
ITSELF = np.eye(9)
ENDS = pointing(*[8] * 9)
TREE = pointing(1, 3, 1, 3, 3, 4, 7, 5, 8)
ONE_LINK = np.full((9, 9), 1 / 9)
ONE_LINK[2] = np.eye(9)[5]
WORDS = [True] * 8 + [False]


@pytest.mark.parametrize(
    ("likeness", "head", "row"),
    [("long", 0, 1), ("sharp", 5, 2), ("structural", 4, None)],
)
def test_heads_like_the_figures_are_found(likeness: str, head: int, row: int | None) -> None:
    layer = np.stack([LONG, BEFORE, ITSELF, ENDS, TREE, ONE_LINK])
    if likeness == "sharp":
        layer[[0, 4]] = ITSELF  # they too have sharp links
    if likeness == "structural":
        layer[[0]] = ITSELF
    best = heads_like(layer[None], "encoder", WORDS, WORDS)[likeness][0]
    assert (best["layer"], best["head"]) == (0, head)
    if likeness == "sharp":
        assert (best["row"], best["score"]) == (row, 1)


def test_positions_alone_are_no_structure_and_rest_is_no_reach() -> None:
    found = heads_like(np.stack([BEFORE, ENDS])[None], "encoder", WORDS, WORDS)
    before = next(one for one in found["structural"] if one["head"] == 0)
    assert before["score"] < 0.2
    assert {one["score"] for one in found["long"]} == {0}


def test_a_sentence_of_one_word_has_no_such_head() -> None:
    found = heads_like(np.ones((1, 1, 1, 1)), "encoder", [False], [False])
    assert found == {"long": [], "sharp": [], "structural": []}
