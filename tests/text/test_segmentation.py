"""Texts in parts, and together again."""

import time

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from manyheads.text.segmentation import (
    has_words,
    split_by_rules,
    split_in_halves,
    split_long_sentence,
    split_text,
)

LANGUAGES = st.sampled_from(["en", "ko", "de", "und", "zh-Hant"])


def sentences(text: str, language: str = "ko") -> list[str]:
    return [segment.text for segment in split_text(text, language) if segment.is_translatable]


@given(text=st.text() | st.text("ab. !?\n\t …。,;🙂가나\u2028\r", max_size=60), language=LANGUAGES)
@example(text="A.\r\n\r\nB. \u2028 C", language="en")
def test_concatenated_segments_are_the_text(text: str, language: str) -> None:
    segments = list(split_text(text, language))
    assert "".join(segment.text for segment in segments) == text
    for segment in segments:
        if segment.is_translatable:
            assert has_words(segment.text)
            assert segment.text == segment.text.strip()
            assert len(segment.text.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("나는 집에 간다. 너는 어디 가니? 같이 가자!", ["나는 집에 간다.", "너는 어디 가니?", "같이 가자!"]),
        ("“정말이에요?” 그가 물었다.", ["“정말이에요?”", "그가 물었다."]),
        ("값은 3.5이다. 끝.", ["값은 3.5이다.", "끝."]),
        ("1. 첫째 항목이다. 2. 둘째이다.", ["1. 첫째 항목이다.", "2. 둘째이다."]),
        ("나는 5. 그리고 끝.", ["나는 5.", "그리고 끝."]),
        ("A. B. 김이 왔다…  그래.", ["A. B. 김이 왔다…", "그래."]),
        ("첫 줄\n둘째 줄", ["첫 줄", "둘째 줄"]),
        ("他来了。我走了！", ["他来了。", "我走了！"]),
        ("점이 없는 문장", ["점이 없는 문장"]),
    ],
)
def test_korean_sentences_end_by_the_stated_rules(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_a_long_row_of_dots_takes_linear_time() -> None:
    assert sentences("." * 100_000 + "가") == ["." * 100_000 + "가"]


def test_other_languages_have_their_own_splitter() -> None:
    assert sentences("Mr. Smith came. He left.", "en") == ["Mr. Smith came.", "He left."]
    assert sentences("Das kostet z. B. 3.5 Euro. Gut.", "de") == ["Das kostet z. B. 3.5 Euro.", "Gut."]


@pytest.mark.parametrize("text", ["", "   ", "\t\n\n ", "🙂🙂", "—", "...", "?!"])
def test_text_without_words_is_not_translated(text: str) -> None:
    assert sentences(text) == []


def test_long_sentences_are_split_at_punctuation() -> None:
    text = "one two three, four five six; seven eight nine, ten eleven twelve"
    fits = lambda part: len(part) <= 40  # noqa: E731
    assert split_long_sentence(text, fits) == [
        "one two three, four five six; ",
        "seven eight nine, ten eleven twelve",
    ]
    short = split_long_sentence(text, lambda part: len(part) <= 20)
    assert "".join(short) == text
    assert short[0] == "one two three, "
    assert split_long_sentence("x" * 50, fits) == ["x" * 50]


@given(text=st.text(min_size=1), max_length=st.integers(1, 9))
def test_splitting_in_halves_makes_everything_fit(text: str, max_length: int) -> None:
    segments = split_in_halves(text, lambda part: len(part) <= max_length)
    assert "".join(segments) == text
    assert max(map(len, segments)) <= max_length


@given(text=st.text("ab ,;:", min_size=1, max_size=80), max_length=st.integers(3, 30))
def test_the_parts_of_a_long_sentence_are_the_sentence(text: str, max_length: int) -> None:
    assert "".join(split_long_sentence(text, lambda part: len(part) <= max_length)) == text


@pytest.mark.parametrize("mark", ["/", "@", "#"])
def test_no_sentence_begins_inside_an_address(mark: str) -> None:
    line = f"see a/b.{mark}c or ab.c/d@e.{mark}f now"
    assert sentences(line, "en") == [line]


def test_sentences_without_a_space_between_them_are_found() -> None:
    pytest.importorskip("sentencex")
    assert sentences("I go home.We read.", "en") == ["I go home.", "We read."]


@pytest.mark.parametrize("piece", ["\u00a0Mr. ", " 가. ", " a. ", "가나.  ", "가! "])
def test_our_rules_take_linear_time(piece: str) -> None:
    """A line of 100,000 characters is split in a fraction of a second."""
    line = piece * (100_000 // len(piece))
    start = time.process_time()
    assert "".join(split_by_rules(line)) == line
    assert time.process_time() - start < 1


def test_numbers_and_abbreviations_end_no_sentence() -> None:
    assert split_by_rules("12. 가. 나.") == ["12. 가. 나."]
    assert split_by_rules("나는 12. 간다.") == ["나는 12. ", "간다."]
    assert split_by_rules("Mr. 김. xprof. 나.") == ["Mr. 김. xprof. ", "나."]
