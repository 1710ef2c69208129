"""Which corrections a text matches, and how similar sentences are."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.memory.copied_text import adapt_target, find_frame
from manyheads.memory.database import Correction
from manyheads.memory.index import MemoryIndex
from manyheads.memory.similarity import (
    SimilarSentences,
    compute_distance,
    compute_similarity,
    split_words,
)

SENTENCES = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8).map(" ".join), max_size=12)


def make_index(*pairs: tuple[str, str], languages: tuple[str, str] = ("en", "ko")) -> MemoryIndex:
    return MemoryIndex([Correction(n, *pair, "me", 0.0) for n, pair in enumerate(pairs)], languages)


def find(index: MemoryIndex, text: str) -> tuple[str, str] | None:
    match = index.find_used(text)
    return None if match is None else (match.match, match.target)


def test_the_distance_is_that_of_levenshtein_over_words() -> None:
    assert compute_distance("kitten", "sitting") == 3
    assert compute_similarity(split_words("I go home."), split_words("I go home now.")) == 0.8
    assert split_words("我go집에 1.5!") == ["我", "go집에", "1", ".", "5", "!"]


@given(SENTENCES, st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8).map(" ".join))
def test_the_most_similar_sentence_is_never_missed(sentences: list[str], text: str) -> None:
    best = max([compute_similarity(split_words(text), split_words(own)) for own in sentences], default=0.0)
    result = SimilarSentences(sentences, 0.7).find_best(text)
    assert (result is not None) == (best >= 0.7)
    if result is not None:
        index, similarity = result
        assert similarity == best == compute_similarity(split_words(text), split_words(sentences[index]))


def test_spaces_and_composition_make_no_difference_but_words_do() -> None:
    index = make_index(("Café  au lait.", "카페오레."))
    assert find(index, " Cafe\u0301 au lait.") == ("exact", "카페오레.")
    assert find(index, "café au lait.") is None


def test_the_newest_correction_is_in_force() -> None:
    assert find(make_index(("x", "old"), ("y", "other"), ("x", "new")), "x") == ("exact", "new")


def test_sentences_of_a_corrected_text_match_if_both_sides_have_as_many() -> None:
    index = make_index(("He came. She went.\nWe stay.", "그가 왔다. 그녀는 갔다.\n우리는 남는다."))
    assert find(index, "She went.") == ("exact", "그녀는 갔다.")
    assert find(index, "We stay.") == ("exact", "우리는 남는다.")
    assert find(index, "He came. She went.") == ("exact", "그가 왔다. 그녀는 갔다.")
    merged = make_index(("He came. She went.", "그가 오자 그녀는 갔다."))
    assert find(merged, "She went.") is None
    assert find(merged, "He came. She went.") is not None


def test_numbers_and_addresses_are_exchanged() -> None:
    index = make_index(
        ("Open page 12 of https://a.org/x.", "https://a.org/x의 12쪽을 여시오."),
        ("I have 3 books.", "나는 책이 3권 있다."),
    )
    adapted = "https://b.org/y의 340쪽을 여시오."
    assert find(index, "Open page 340 of https://b.org/y.") == ("adapted", adapted)
    assert find(index, "I have 7 books.") == ("adapted", "나는 책이 7권 있다.")
    assert find(index, "I have 7 big books.") is None


@pytest.mark.parametrize(
    ("source", "target", "text", "language"),
    [
        ("12 of 12", "12 von 12", "12 of 13", "de"),  # which of the two?
        ("It costs 1,000.5.", "Es kostet 1.000,5.", "It costs 2,000.5.", "de"),  # written differently
        ("3 books", "3 książki", "5 books", "pl"),  # the noun changes with the number
        ("It is 3.", "3이다.", "It is 4.", "ko"),  # the particle may change with the number
        ("It is 3.", "Es sind 3 bis 3.", "It is 4.", "de"),  # more often than in the source
        ("Room 12", "Zimmer 112", "Room 13", "de"),  # inside another number
    ],
)
def test_a_translation_is_not_adapted_where_it_is_not_clear_how(
    source: str, target: str, text: str, language: str
) -> None:
    assert adapt_target(target, find_frame(source), find_frame(text), language) is None


def test_equal_values_stay_and_swapped_ones_are_swapped() -> None:
    old, new = find_frame("From 10 to 20 by bus 5."), find_frame("From 20 to 10 by bus 5.")
    assert adapt_target("Mit Bus 5 von 10 bis 20.", old, new, "de") == "Mit Bus 5 von 20 bis 10."


def test_a_similar_correction_is_shown_with_its_similarity() -> None:
    index = make_index(("I go home.", "나는 집에 간다."))
    match = index.find_similar("I go home now.")
    assert match is not None
    assert (match.match, match.similarity, match.is_used) == ("similar", 0.8, False)
    assert index.find_similar("They eat apples.") is None


def test_hostile_corrections_take_bounded_time() -> None:
    """Many long ones that differ in a word, and many of one frame that cannot be adapted."""
    words = [f"w{number}" for number in range(199)]
    long = [" ".join([*words, f"x{number}"]) for number in range(60)]
    framed = [f"Open page {number}." for number in range(5000)]
    rows = [Correction(1, text, "y", "me", 1.0) for text in (*long, *framed)]
    index = MemoryIndex(rows, ("en", "de"))
    start = time.process_time()
    assert index.find_similar(" ".join([*words, "z"])) is not None
    assert index.find_used("Open page 9999.") is None
    assert time.process_time() - start < 0.4
