"""Loops and other failures, on token lists that are made by hand."""

from typing import Any

import numpy as np
import pytest

from manyheads.confidence.detectors import (
    Repetition,
    cut_loop,
    find_failure,
    find_failures,
    find_loop,
    find_loop_spans,
    find_repetition,
    has_repetition,
)
from manyheads.confidence.ragged import Ragged

KOREAN = ["나는", *["밥을", "먹고"] * 5, "집에", "갔다"]


def test_the_n_gram_that_is_repeated_most_often_is_found() -> None:
    assert find_repetition([5, 1, 2, 1, 2, 1, 2, 7]) == Repetition(1, 2, 3)
    assert find_repetition([1, 2, 3]).repeats == 1
    assert find_repetition([]).repeats == 1
    assert find_repetition([4] * 9) == Repetition(0, 1, 9)


def test_a_loop_in_korean_is_found_and_cut_to_its_first_n_gram() -> None:
    loop = find_loop(KOREAN, ["I", "ate", "and", "went", "home"])
    assert loop == Repetition(1, 2, 5)
    cut: Any = cut_loop(KOREAN, ["I", "ate", "and", "went", "home"])  # type: ignore[arg-type, list-item]
    assert cut == ["나는", "밥을", "먹고", "집에", "갔다"]


def test_what_the_source_repeats_too_is_no_loop() -> None:
    assert find_loop([7] * 9, [3] * 8) is None
    assert find_loop([7] * 9, [3, 4, 5]) is not None
    assert find_loop([7] * 4, [3, 4, 5]) is None  # too short to be one


def test_a_loop_with_changing_words_between_is_found() -> None:
    output = [n for word in range(20, 26) for n in (1, 2, 3, 4, word)]
    assert find_repetition(output).repeats == 1
    assert find_loop(output, [9, 8, 7]) is not None
    assert find_loop(cut_loop(output, [9, 8, 7]), [9, 8, 7]) is None
    assert cut_loop(output, [9, 8, 7]) == output[:5]


def test_the_tokens_of_a_loop_are_known() -> None:
    assert find_loop_spans(KOREAN, ["I", "ate"]) == [(1, 11)]
    output = [n for word in range(20, 26) for n in (1, 2, 3, 4, word)]
    assert find_loop_spans(output, [9, 8, 7]) == [(n, n + 4) for n in range(0, 30, 5)]
    assert find_loop_spans([1, 2, 3], []) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_fast_check_misses_no_loop_and_cutting_leaves_none(seed: int) -> None:
    random = np.random.default_rng(seed)
    outputs = [random.integers(3, 6, random.integers(0, 40)).tolist() for _ in range(50)] + [[3, 4] * 5]
    suspected = has_repetition(Ragged.of(outputs))
    loops = [find_loop(output, []) is not None for output in outputs]
    assert not [n for n, has_loop in enumerate(loops) if has_loop and not suspected[n]]
    assert all(find_loop(cut_loop(output, []), []) is None for output in outputs)


def test_a_loop_is_not_found_across_two_sentences() -> None:
    outputs = [[4, 5] * 2, [4, 5] * 2]
    assert not has_repetition(Ragged.of(outputs)).any()
    assert has_repetition(Ragged.of([[4, 5] * 4])).all()


def test_each_failure_is_named() -> None:
    source = [*range(10, 35), 2]
    good = list(range(40, 64))
    cases = {
        "empty": [],
        "loop": [5, 6] * 6,
        "cut at the length limit": list(range(100, 175)),
        "too short": [5, 6],
        None: good,
    }
    for failure, output in cases.items():
        assert find_failure(source, output, 75, 0.0) == failure
    assert find_failure([9, 2], list(range(30)), 75, 0.0) == "too long"
    outputs = list(cases.values())
    assert find_failures([source] * 5, outputs, [75] * 5, 0.0) == list(cases)
    assert find_failure([2], [], 75, 0.0) is None  # nothing to translate
