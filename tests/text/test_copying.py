"""Pairs with copy symbols: the same symbols on both sides, in place of the same words."""

import random

import pytest

from manyheads.text.copying import add_symbols, find_shared_words, insert_copy_symbols
from manyheads.text.verbatim import COPY_SYMBOLS

PAIRS = [
    ("Mr Poettering paid 3.5 euros in Rome.", "Herr Poettering zahlte 3.5 Euro in Rom."),
    ("Open React in 10 years, {name}.", "10년 뒤에 React를 여세요, {name}."),
    ("I go home.", "나는 집에 간다."),
    ("Wait!", "기다려!"),
]
SEEDS = range(300)


def symbols_of(text: str) -> list[str]:
    return sorted(symbol for symbol in COPY_SYMBOLS for _ in range(text.count(symbol)))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_both_sides_have_the_same_symbols_each_once(source: str, target: str) -> None:
    seen = set()
    for seed in SEEDS:
        new_source, new_target = insert_copy_symbols(source, target, random.Random(seed))
        symbols = symbols_of(new_source)
        assert symbols == symbols_of(new_target)
        assert 1 <= len(symbols) == len(set(symbols))
        seen |= set(symbols)
    assert seen == set(COPY_SYMBOLS)


def test_shared_words_are_names_numbers_and_codes() -> None:
    texts = [[word.text for word in find_shared_words(*pair)] for pair in PAIRS]
    assert texts == [["Poettering", "3.5"], ["React", "10", "{name}"], [], []]
    assert find_shared_words("Die now in Rome", "Die Stadt in Rom") == []  # the first word is no name
    assert find_shared_words("so 7 and 7", "also 7 und 7") == []  # which one is which?


def test_shared_words_become_symbols_or_stand_between_two() -> None:
    changed = {insert_copy_symbols(*PAIRS[1], random.Random(seed)) for seed in SEEDS}
    sources = [source for source, _ in changed]
    assert any("{name}" not in source for source in sources)
    assert any("⟧React⟦" in source for source in sources)
    assert any("⟧를 여세요" in target for _, target in changed)


def test_symbols_are_added_at_the_same_place_of_both_sides() -> None:
    symbols = list(COPY_SYMBOLS)
    added = {add_symbols("I go home.", "나는 집에 간다.", symbols, random.Random(seed)) for seed in SEEDS}
    assert ("⟦0⟧ I go home.", "⟦0⟧ 나는 집에 간다.") in added
    assert ("I go home ⟦0⟧.", "나는 집에 간다 ⟦0⟧.") in added
    assert ("I go home. ⟦0⟧ ⟦1⟧", "나는 집에 간다. ⟦0⟧ ⟦1⟧") in added
    assert ("⟦0⟧I go home.⟦1⟧", "⟦0⟧나는 집에 간다.⟦1⟧") in added
    colon = {add_symbols("Note: go.", "주의: 가라.", symbols, random.Random(seed)) for seed in SEEDS}
    assert ("Note: ⟦0⟧ go.", "주의: ⟦0⟧ 가라.") in colon
