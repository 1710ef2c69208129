"""Sentences in capitals are lower-cased and come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.text.casing import is_all_capitals, to_capitals, to_sentence_case


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I GO HOME.", True),
        ("WARNING!", True),
        ("GO HOME", True),
        ("NATO", False),
        ("EU USA", False),
        ("OK", False),
        ("I", False),
        ("I go HOME.", False),
        ("나는 집에 간다.", False),
        ("NATO는 집에 간다.", False),
        ("123 456", False),
        ("ΚΑΛΗΜΕΡΑ ΣΑΣ", True),
    ],
)
def test_capitals_are_told_from_acronyms(text: str, expected: bool) -> None:
    assert is_all_capitals(text) is expected


def test_sentence_case_keeps_the_first_letter_and_the_english_i() -> None:
    assert to_sentence_case("WHAT AM I DOING? I'M HERE", "en") == "What am I doing? I'm here"
    assert to_sentence_case("„WAS IST LOS?“", "de") == "„Was ist los?“"
    assert to_sentence_case("ΚΑΛΟΣ ΛΟΓΟΣ", "el") == "Καλος λογος"


def test_the_german_sharp_s_survives() -> None:
    assert to_capitals("große Straße") == "GROẞE STRAẞE"
    assert to_capitals("große Straße").lower() == "große straße"


@given(st.text(max_size=40).map(to_capitals), st.sampled_from(["en", "de", "ko", "tr"]))
def test_capitals_come_back(text: str, language: str) -> None:
    lower = to_sentence_case(text, language)
    assert to_capitals(lower) == to_capitals(text)
    assert len(lower) == len(text)
