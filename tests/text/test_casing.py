"""Sentences in capitals are lower-cased and come back; words get their usual case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.text import casing
from manyheads.text.casing import (
    CaseCounter,
    CaseLexicon,
    is_all_capitals,
    to_capitals,
    to_sentence_case,
)


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


# ---- the case lexicon

SENTENCES = [
    "Yesterday Barack Obama went to Berlin, and the people of Berlin went home.",
    "Then the people saw that Obama likes the EU, but the people of the EU went to Berlin.",
    "The EU went home. The people of Obama saw it, and the people went to see Obama.",
    "They saw what the people saw, and went home, and the NATO went home.",
]
LEXICON = CaseLexicon(("the", "of", "Berlin", "EU", "house", "went", "to", "I", "iPhone"), True)


def learn_lexicon(texts: list[str], language: str = "en") -> CaseLexicon | None:
    counter = CaseCounter(language)
    counter.add(texts)
    return counter.build()


def test_usual_forms_are_counted_within_sentences() -> None:
    lexicon = learn_lexicon(SENTENCES)
    assert lexicon
    assert lexicon.words[0] == "the"  # the most frequent
    assert {"people", "went", "Berlin", "Obama", "EU"} < set(lexicon.words)
    assert not {"The", "Barack", "barack"} & set(lexicon.words)  # starts a sentence; occurs once
    assert "I'm" in lexicon.words  # English, and in no sentence


def test_texts_in_one_case_and_scripts_without_case_tell_nothing() -> None:
    loud = learn_lexicon(
        [*SENTENCES, *["HE WENT TO BERLIN IN THE EU WITH PEOPLE"] * 20, *["he saw obama"] * 20]
    )
    assert loud == learn_lexicon(SENTENCES)
    assert learn_lexicon(["나는 오늘 학교에 가서 LG 책을 읽는다."] * 9, "ko") is None
    assert learn_lexicon([], "en") is None


def test_unknown_words_are_names_where_rare_words_are() -> None:
    names = [f"Then the people saw {name} of Berlin." for name in ("Ann", "Bob", "Cid", "Dee", "Eve")]
    words = [f"Then the people saw {word} of Berlin." for word in ("ants", "bees", "cats", "dogs", "emus")]
    assert [lexicon.capitalizes_unknown for lexicon in map(learn_lexicon, (names, words)) if lexicon] == [
        True,
        False,
    ]


def test_counting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casing, "MAX_COUNTED", 20)
    counter = CaseCounter("en")
    for number in range(200):
        counter.add(
            [f"Then the people went to {'abcdefghij'[number % 10]}{'abcdefghij'[number // 10 % 10]}xy."]
        )
        assert len(counter.counts) <= 20
    lexicon = counter.build()
    assert lexicon
    assert {"the", "people", "went", "to"} <= set(lexicon.words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the house of obama went to berlin", "The house of Obama went to Berlin"),
        ("open the house. i went to the eu.", "Open the house. I went to the EU."),
        ("the eu's iphone", "the EU's iPhone"),  # fewer words than a sentence, and no mark
        ("house", "house"),
        ("berlin", "Berlin"),
        ("The House Of Obama Went To Berlin", "The house of Obama went to Berlin"),
        ("„the house“ went to berlin", "„The house“ went to Berlin"),
        ("the house went to https://x.y/the_eu {eu} a1b", "The house went to https://x.y/the_eu {eu} a1b"),
        ("The house of obama", None),  # its case says something
        ("Barack Obama Angela Merkel", None),  # names
        ("New House", None),
        ("THE HOUSE", None),
        ("12:30", None),
        ("", None),
        ("나는 집에 간다.", None),
    ],
)
def test_a_text_whose_case_says_nothing_is_read_as_it_is_usually_written(
    text: str, expected: str | None
) -> None:
    assert LEXICON.restore_uninformative(text) == expected


def test_capitals_get_their_usual_case() -> None:
    assert (
        LEXICON.restore("I WENT TO BERLIN, TO THE HOUSE OF OBAMA.")
        == "I went to Berlin, to the house of Obama."
    )


@given(st.text(max_size=60))
def test_only_case_changes_and_a_second_time_nothing(text: str) -> None:
    restored = LEXICON.restore(text)
    assert len(restored) == len(text)
    assert restored.casefold() == text.casefold() or to_capitals(restored) == to_capitals(text)
    assert LEXICON.restore(restored) == restored


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("we don’t know, i’m at obama’s house", "We don’t know, I’m at Obama’s house"),
        (
            "the house, i.e. the eu, is at 5 p.m. the u.s. side",
            "The house, i.e. the EU, is at 5 p.m. the u.s. side",
        ),
        ("- the house went to berlin", "- The house went to Berlin"),
        ("(the house went) to “berlin”", "(The house went) to “Berlin”"),
        ("5 houses went to the e-mail of wi-fi", "5 Houses went to the e-mail of wi-fi"),
        ("the way of d'obama and o'neill", "The Way of d'Obama And o'neill"),
        ("look! the house? “the eu”", "Look! The house? “The EU”"),
    ],
)
def test_marks_abbreviations_and_compounds_are_no_words_of_their_own(text: str, expected: str) -> None:
    words = (*LEXICON.words, "don't", "I'm", "we", "know", "is", "at", "side", "Obama")
    assert CaseLexicon(words, True).restore(text) == expected


def test_a_title_keeps_unknown_words_where_most_are_no_names() -> None:
    lexicon = CaseLexicon(("the", "of", "house", "went", "to", "new"), False)
    assert lexicon.restore_uninformative("Jonas Petrauskas Rasa Kazlauskiene") is None
    assert lexicon.restore_uninformative("The New House Of Reykjavik") == "The new house of Reykjavik"
    assert lexicon.restore_uninformative("the house of reykjavik") == "The house of reykjavik"
    assert lexicon.restore("THE HOUSE OF REYKJAVIK") == "The house of reykjavik"


@pytest.mark.parametrize("language", ["ko", "zh", "ja", "tr", "az", "hi"])
def test_languages_without_case_or_with_other_rules_have_no_lexicon(language: str) -> None:
    assert CaseCounter.for_language(language) is None
    assert CaseCounter.for_language("de-AT") is not None


def test_headlines_tell_nothing() -> None:
    headlines = ["The New Rules Of The House Are Here To Stay"] * 9
    assert learn_lexicon([*SENTENCES, *headlines]) == learn_lexicon(SENTENCES)


def test_apostrophes_are_counted_as_one() -> None:
    lexicon = learn_lexicon([*SENTENCES, *["He said that he doesn’t and she doesn't know."] * 2])
    assert lexicon
    assert "doesn't" in lexicon.words


def test_dropped_forms_still_say_whether_rare_words_are_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casing, "MAX_COUNTED", 10)
    counter = CaseCounter("de")
    for first in "ABCDEFGHIJKLMNOP":
        counter.add([f"und wir sahen {first}{second}x und wir sahen" for second in "abcdefgh"])
    lexicon = counter.build()
    assert lexicon
    assert lexicon.capitalizes_unknown


def test_a_lexicon_is_stored_as_lines() -> None:
    for lexicon in (LEXICON, CaseLexicon((), False)):
        assert CaseLexicon.decode(lexicon.encode(), "casing.txt") == lexicon


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\n",
        b"the\n",
        LEXICON.encode()[:-1],
        LEXICON.encode() + b"two words\n",
        LEXICON.encode() + b"\n",
        LEXICON.encode() + "İ\n".encode(),
        LEXICON.encode() + b"a\n" * casing.MAX_WORDS,
    ],
)
def test_a_damaged_lexicon_is_refused(damage: bytes) -> None:
    with pytest.raises(mh.DataError, match=r"casing\.txt: not a case lexicon, or damaged"):
        CaseLexicon.decode(damage, "casing.txt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HELLO", True),
        ("GO ON", True),
        ("STOP!", True),
        ("OBAMA", True),
        ("I DO", True),
        ("I'M OK", False),  # a word that is not known
        ("NATO", False),
        ("GO NATO", False),
        ("IT", False),
        ("Hello", False),
        ("7", False),
    ],
)
def test_a_lexicon_tells_short_words_in_capitals_from_acronyms(text: str, expected: bool) -> None:
    lexicon = CaseLexicon(("go", "on", "hello", "stop", "Obama", "do", "NATO", "it", "I", "I'm"), False)
    assert lexicon.is_shouted(text) is expected
