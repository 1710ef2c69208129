"""Sentences of another language are noted, if that is certain."""

import pytest

from manyheads.text import identification
from manyheads.text.identification import LanguageCheck, find_script

FRENCH = "Je ne sais pas pourquoi il est parti si tôt hier soir."


def test_another_script_needs_no_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identification, "load_identifier", lambda: None)
    assert LanguageCheck("en").find_note("Привет мир", 20) == "looks like Cyrillic, not en"
    assert LanguageCheck("ko").find_note("I go home today.", 5) == "looks like Latin, not ko"
    assert LanguageCheck("ko").find_note("나는 집에 간다.", 5) is None
    assert LanguageCheck("ko").find_note("OK!", 2) is None
    assert LanguageCheck("ko").find_note("iPhone을 샀다.", 5) is None
    assert LanguageCheck("en").find_note(FRENCH, 60) is None


def test_the_identifier_is_asked_where_subwords_are_short() -> None:
    pytest.importorskip("py3langid")
    check = LanguageCheck("en-US")
    assert check.find_note(FRENCH, 25) == "looks like fr, not en"
    assert check.find_note(FRENCH, 10) is None, "long subwords: probably known words"
    assert check.find_note("I do not know why he left so early last night.", 40) is None
    assert check.find_note("Je ne sais pas.", 12) is None, "too short to be certain"
    assert LanguageCheck("fr").find_note(FRENCH, 25) is None


def test_scripts_have_names() -> None:
    assert [find_script(letter) for letter in "aЖ한ひ"] == ["Latin", "Cyrillic", "Hangul", "Japanese"]
