"""What is copied is found in linear time, and comes back from behind its symbols as it was."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.text.masks import (
    find_missing,
    has_all_symbols,
    join_codes,
    mask,
    select_masked,
    split_at,
    unmask,
)
from manyheads.text.verbatim import COPY_SYMBOLS, find_verbatim

LATIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!?")


def find_texts(text: str, known: frozenset[str] | None = None) -> list[str]:
    return [text[span.start : span.end] for span in find_verbatim(text, known)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Open https://a.org/x?y=1&z=(2) (12 MB).", ["https://a.org/x?y=1&z=(2)", "12"]),
        ("See http://example.com/foo. Then www.a.de, ok?", ["http://example.com/foo", "www.a.de"]),
        ("Mail a.b+c@x-y.co.kr, please.", ["a.b+c@x-y.co.kr"]),
        ("It cost $1,234.56, or 5 % more (50%).", ["$1,234.56", "5 %", "50%"]),
        ("%s has {count} <b>old</b> items", ["%s", "{count}", "<b>", "</b>"]),
        ("<a href='x y'>here</a>", ["<a href='x y'>", "</a>"]),
        ("ABC-1234/x, v2.3.1 and x86_64.", ["ABC-1234/x", "v2.3.1", "x86_64"]),
        ("commit 3eda072 by @someone in #tag", ["3eda072", "@someone", "#tag"]),
        ("Edit /usr/lib/x.py or C:\\Users\\me, not main.py.", ["/usr/lib/x.py", "C:\\Users\\me", "main.py"]),
        ("on 2024-05-17 at 12:30, call +82-10-1234-5678", ["2024-05-17", "12:30", "+82-10-1234-5678"]),
        ("1 234 567 people, 10 €", ["1 234 567", "10 €"]),
        ("the 21st of the 1990s, 3 apples, at 5pm, and/or", []),
        ("a 14-year-old", ["14"]),
        ("I. go. home... e.g. now", []),
        ("👩‍👩‍👧 hi 🇰🇷🇩🇪 and 👍🏽 and ❤️ and 1️⃣", ["👩‍👩‍👧", "🇰🇷🇩🇪", "👍🏽", "❤️", "1️⃣"]),
        ("⟦3⟧ itself", ["⟦3⟧"]),
        ("<b>12</b>", ["<b>12</b>"]),
    ],
)
def test_text_that_must_survive_is_found(text: str, expected: list[str]) -> None:
    assert find_texts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024년 12월 3일 12명이 10km를 뛰었다.", ["2024", "12", "12", "10km"]),
        ("https://a.b/c를 열고 a@b.com으로 보내라", ["https://a.b/c", "a@b.com"]),
        ("https://ko.wikipedia.org/wiki/한국 참고", ["https://ko.wikipedia.org/wiki/한국"]),
        ("{name}님은 %s를 50%나 읽었다", ["{name}", "%s", "50%"]),
    ],
)
def test_korean_particles_are_no_part_of_what_is_copied(text: str, expected: list[str]) -> None:
    assert find_texts(text) == expected


def test_words_with_unknown_letters_are_found_and_their_neighbors_joined() -> None:
    assert find_texts("We met Łukasz today.", LATIN) == ["Łukasz"]
    assert find_texts("He said Привет, мир! today", LATIN) == ["Привет, мир"]
    assert find_texts("“quoted” – and so on…", LATIN) == []  # marks are translated
    assert find_texts("e\u0301t", LATIN | {"é"}) == []  # known once it is composed
    assert find_texts("a\u200fb\x00", LATIN) == []  # invisible
    assert find_texts("우리는 뷁을 본다", LATIN | set("우리는을본다")) == ["뷁"]


HOSTILE = [
    "a", "1", "1,", "a.", "a@", "<a", "{", "%", "/", "\\", "a:", "http://", "http://)", "123 ", "_a",
    "👩‍", "🇰", "a1-", "#a.", "1'", "$1", "한", "Ł", "Ł ", "\u0301", "1%", "AAA$", "www.", "mailto:", "1 €",
    "aŁ가", "(", ")", "{{a", "a@b.",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """100,000 characters would take minutes if each were compared with the rest."""
    for text in ((unit * 100_000)[:100_000], "http://" + (unit * 100_000)[:100_000] + "x"):
        start = time.process_time()
        find_verbatim(text, LATIN)
        assert time.process_time() - start < 4


TEXTS = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "see",
            "https://a.b/c",
            "12",
            "3.5%",
            "{x}",
            "<b>",
            "🙂",
            "⟦1⟧",
            "집에",
            "a@b.co",
            "를",
            "(",
            ")",
            "#x",
        ]
    ),
    max_size=14,
).map(" ".join)


@given(TEXTS)
def test_spans_are_ordered_and_apart_and_cover_the_text(text: str) -> None:
    spans = find_verbatim(text, LATIN)
    for before, after in pairwise(spans):
        assert before.start < before.end < after.start < after.end
    assert "".join(part for part, _ in split_at(text, spans)) == text


@given(TEXTS)
def test_masked_text_comes_back(text: str) -> None:
    spans = select_masked(find_verbatim(text))
    masked, values = mask(text, spans)
    assert len(values) == len(spans) <= len(COPY_SYMBOLS)
    if not has_all_symbols(masked, len(values)):  # more symbols in the text itself than there are masks
        assert text.count("⟦1⟧") > len(COPY_SYMBOLS)
        return
    restored = unmask(masked, values)
    assert restored.replace(" ", "") == text.replace(" ", "")
    assert all(value in restored for value in values)


def test_spaces_beside_brackets_are_removed_and_others_stay() -> None:
    assert unmask("( ⟦0⟧ ) and ⟦1⟧ .", ["https://a.b", "12"]) == "(https://a.b) and 12."
    assert unmask("⟦0⟧를 보고⟦1⟧", ["a@b.c", "7.5"]) == "a@b.c를 보고7.5"


def test_the_most_important_spans_are_masked_first() -> None:
    text = "🙂 " + " ".join(f"{number}" for number in range(10, 19)) + " https://a.b {x}"
    masked, values = mask(text, select_masked(find_verbatim(text)))
    assert len(values) == len(COPY_SYMBOLS)
    assert {"https://a.b", "{x}"} <= set(values)
    assert "🙂" in masked


@pytest.mark.parametrize(
    ("output", "is_complete"),
    [
        ("⟦0⟧ und ⟦1⟧", True),
        ("⟦1⟧ und ⟦0⟧", True),
        ("⟦0⟧", False),
        ("⟦0⟧⟦0⟧⟦1⟧", False),
        ("⟦0⟧⟦1⟧⟦2⟧", False),
    ],
)
def test_symbols_must_come_out_once_each(output: str, is_complete: bool) -> None:
    assert has_all_symbols(output, 2) is is_complete


def test_numbers_may_be_written_as_in_another_language() -> None:
    number = [("1,234.56", "number")]
    for output in ("1,234.56", "1.234,56", "1 234,56", "1234,56"):
        assert find_missing(f"Es kostet {output} Euro.", number) == []
    assert find_missing("Es kostet 1.234,65 Euro.", number) == ["1,234.56"]
    assert find_missing("2012", [("12", "number")]) == ["12"]
    assert find_missing("12 und 12", [("12", "number")] * 3) == ["12"]
    assert find_missing("http://a.b", [("http://a.b", "address")] * 2) == ["http://a.b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See ba.@b.c..c/a1.b/x_y and a-1x.", ["ba.@b.c..c/a1.b/x_y", "a-1x"]),
        ("Open a.py and b_c.py now.", ["a.py", "b_c.py"]),
        ("<b>word</b> 12 or 13", ["<b>", "</b>", "12", "13"]),
    ],
)
def test_addresses_and_codes_of_one_word_are_one(text: str, expected: list[str]) -> None:
    assert [text[span.start : span.end] for span in join_codes(text, find_verbatim(text))] == expected


@pytest.mark.parametrize("value", ["%s", "{name}", "https://a.b/c", "<b>", "🙂", "@mina"])
@pytest.mark.parametrize("before", ["a letter.](", "yes/no:(", "end.("])
def test_what_follows_a_mark_without_a_space_is_found(before: str, value: str) -> None:
    """The run of letters and marks before it is a match of its own, which must not hide it."""
    text = before + value
    assert text[find_verbatim(text)[-1].start :] == value
