"""Normalization of sentences, and the reasons for dropping pairs."""

import time
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import CleanConfig, CorpusConfig
from manyheads.text import clean
from manyheads.text.clean import Cleaner, SeenKeys, find_frequent_placeholders, find_placeholders, hash_pair
from manyheads.text.languages import check_language, get_script_pattern, split_language_pair

ENGLISH_KOREAN = CorpusConfig(source="en", target="ko")
OFF = CleanConfig(
    nfc=False,
    whitespace=False,
    markup="ignore",
    script=False,
    max_length=None,
    max_length_ratio=None,
    identical=False,
    duplicates=False,
    leakage=False,
)
GOOD = ("I go home.", "나는 집에 간다.")


def find_reason(config: CleanConfig, source: str, target: str, held_out: Iterable[str] = ()) -> str | None:
    cleaner = Cleaner(config, ENGLISH_KOREAN, dict.fromkeys(held_out, "test"))
    rejection = cleaner.find_rejection(source, target)
    return rejection[0] if rejection else None


def test_decomposed_hangul_is_composed_and_counted() -> None:
    cleaner = Cleaner(CleanConfig(), ENGLISH_KOREAN)
    decomposed = unicodedata.normalize("NFD", "나는 집에 간다.")
    assert len(decomposed) > len("나는 집에 간다.")
    assert cleaner.normalize(decomposed) == "나는 집에 간다."
    assert cleaner.normalize("이미 좋다.") == "이미 좋다."
    assert cleaner.normalized == {"Unicode NFC": 1}
    assert Cleaner(OFF, ENGLISH_KOREAN).normalize(decomposed) == decomposed


def test_runs_of_white_space_become_one_space() -> None:
    cleaner = Cleaner(CleanConfig(), ENGLISH_KOREAN)
    assert cleaner.normalize("  a\u00a0\u3000b\t c  ") == "a b c"
    assert cleaner.normalize("a b c") == "a b c"
    assert cleaner.normalized == {"white space": 1}
    assert Cleaner(OFF, ENGLISH_KOREAN).normalize(" a  b ") == " a  b "


@pytest.mark.parametrize(
    ("switch", "source", "target", "reason"),
    [
        ({"markup": "keep"}, "Save %s now", "지금 저장", clean.MARKUP_DIFFERS),
        ({"markup": "keep"}, "Save %s now", "지금 %d 저장", clean.MARKUP_DIFFERS),
        ({"markup": "drop"}, "Save %s now", "지금 %s 저장", clean.MARKUP),
        ({"markup": "drop"}, "Save", "<b>저장</b>", clean.MARKUP),
        ({"script": True}, "I go home.", "I go home, too.", clean.WRONG_SCRIPT),
        ({"script": True}, "나는 집에 간다.", "나는 집에 간다.", clean.WRONG_SCRIPT),
        ({"max_length": 10}, "12345678901", "일", clean.TOO_LONG_SIDE),
        ({"max_length": 10}, "one", "일이삼사", clean.TOO_LONG_SIDE),
        ({"max_length_ratio": 4.0}, "a" * 61, "", clean.LENGTH_RATIO),
        ({"max_length_ratio": 4.0}, "", "가" * 21, clean.LENGTH_RATIO),
        ({"identical": True}, "same", "same", clean.IDENTICAL),
    ],
)
def test_each_filter_drops_when_it_is_on_and_not_when_it_is_off(
    switch: dict[str, object], source: str, target: str, reason: str
) -> None:
    assert find_reason(replace(OFF, **switch), source, target) == reason
    assert find_reason(OFF, source, target) is None


@pytest.mark.parametrize(
    ("switch", "source", "target"),
    [
        ({"markup": "keep"}, "%s of %(total)d in <b>{name}</b>", "<b>{name}</b>의 %(total)d 중 %s"),
        ({"markup": "keep"}, "50 % des Tages, 100%ige und 5%", "하루의 50 %"),
        ({"markup": "keep"}, "a < b and c > d", "ㄱ"),
        ({"markup": "drop"}, "if a<3 then 3>a, {a, b}, 10% s", "ㄱ"),
        ({"script": True}, "Python 3", "Python을 쓴다"),
        ({"script": True}, "12:30", "12:30"),
        ({"script": True}, "déjà", "ㅋㅋ"),
        ({"max_length": 10}, "1234567890", "일이삼"),
        ({"max_length_ratio": 4.0}, "a" * 60, ""),
        ({"max_length_ratio": 4.0}, "Hi.", "안녕하세요."),
        ({"identical": True}, "same", "Same"),
    ],
)
def test_pairs_within_the_limits_are_kept(switch: dict[str, object], source: str, target: str) -> None:
    assert find_reason(replace(OFF, **switch), source, target) is None


@pytest.mark.parametrize("side", GOOD)
def test_a_pair_is_dropped_if_either_side_is_in_valid_or_test(side: str) -> None:
    config = replace(OFF, leakage=True)
    assert find_reason(config, *GOOD, [side]) == clean.LEAKAGE
    assert find_reason(config, *GOOD, ["other"]) is None
    assert find_reason(OFF, *GOOD, [side]) is None


def test_the_defaults_keep_a_clean_pair() -> None:
    assert find_reason(CleanConfig(), *GOOD) is None


@pytest.mark.parametrize(
    ("language", "own", "foreign"),
    [
        ("ko", "한", "A漢かЖ"),
        ("ja", "かカ漢", "한A"),
        ("zh-TW", "漢", "한Aか"),
        ("en_US", "Aé", "한Ж"),
        ("ru", "Ж", "AΩ"),
        ("el", "Ωώ", "AЖ"),
        ("ar", "ب", "Aא"),
        ("he", "א", "Aب"),
        ("hi", "क", "Aก"),
        ("th", "ก", "Aक"),
    ],
)
def test_a_language_matches_the_letters_of_its_script(language: str, own: str, foreign: str) -> None:
    letters = get_script_pattern(language)
    assert letters is not None
    assert all(letters.fullmatch(letter) for letter in own)
    assert not any(letters.fullmatch(letter) for letter in foreign)


def test_an_unknown_language_has_no_script_filter() -> None:
    assert get_script_pattern("xx") is None
    assert Cleaner(CleanConfig(), CorpusConfig(source="xx", target="sr")).find_rejection("A", "Ж") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s %d %5.2f %-3i %1$s %(name)s", ["%s", "%d", "%5.2f", "%-3i", "%1$s", "%(name)s"]),
        (
            "{} {0} {name} {x.y} {n:d} {{user}} ${HOME}",
            ["{}", "{0}", "{name}", "{x.y}", "{n:d}", "{{user}}", "${HOME}"],
        ),
        ('<b>x</b> <br/> <a href="y">', ["<b>", "</b>", "<br/>", '<a href="y">']),
        ("100% sure, 100%s, 5 % d, %% , a %sure b", []),
        ("%s를 %d개 %(name)s님 %1$s를 %2$s로", ["%s", "%d", "%(name)s", "%1$s", "%2$s"]),
        ("%.2fMB %5dkm %(n)sth", ["%.2f", "%5d", "%(n)s"]),
        ("1 < 2 > 0, { not one }, <3", []),
    ],
)
def test_placeholders_and_tags_are_found(text: str, expected: list[str]) -> None:
    assert find_placeholders(text) == expected


def test_the_most_frequent_placeholders_come_first_and_ties_in_alphabetical_order() -> None:
    texts = ["%s %d", "%s {b}", "{a}", '<a href="x y"> <s> </s> <unk>' * 9]
    assert find_frequent_placeholders(iter(texts), 3) == ["%s", "%d", "{a}"]


@pytest.mark.parametrize("unit", ["%0", "0", "%(", "{", "<a", "$", "%1", "%-", "${", "</a "])
@pytest.mark.parametrize("prefix", ["", "%", "<"])
def test_finding_placeholders_takes_linear_time(prefix: str, unit: str) -> None:
    """A line eight times as long takes about eight times as long; in quadratic time it would be 64."""
    short, long = (prefix + unit * (size // len(unit)) for size in (4_000, 32_000))
    assert measure_seconds(long) < 30 * measure_seconds(short) + 0.005
    placeholders, expected = find_placeholders(long), len(find_placeholders(short)) * 8
    assert len(placeholders) == pytest.approx(expected, abs=8)


def measure_seconds(text: str) -> float:
    """Return the least processor time of several runs, which does not depend on other processes."""
    times = []
    for _ in range(5):
        start = time.process_time()
        find_placeholders(text)
        times.append(time.process_time() - start)
    return min(times)


def test_language_pairs_are_split_at_the_second_language() -> None:
    assert split_language_pair("en-ko") == ("en", "ko")
    assert split_language_pair("pt-BR-en") == ("pt-BR", "en")
    assert split_language_pair("en-zh-Hant-TW") == ("en", "zh-Hant-TW")
    for wrong in ("en", "enko", "en-", "-ko", "EN-KO", "en-ko-de"):
        with pytest.raises(mh.ConfigError, match="must be two languages with a dash"):
            split_language_pair(wrong)


def test_country_codes_are_refused() -> None:
    with pytest.raises(mh.ConfigError, match="'kr' is not a known language code; did you mean ko"):
        check_language("kr")
    with pytest.raises(mh.ConfigError, match="'zz' is not a known language code; use a code of ISO 639"):
        check_language("zz")
    for code in ("ko", "pt-BR", "kau", "zh-Hant"):
        check_language(code)


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=20))
def test_seen_keys_equal_a_set_for_any_chunks(chunks: list[list[int]]) -> None:
    seen, known = SeenKeys(), set[int]()
    for chunk in chunks:
        expected = []
        for key in chunk:
            expected.append(key not in known)
            known.add(key)
        assert seen.add(np.array(chunk, np.uint64)).tolist() == expected
    sizes = [len(level) for level in seen.levels]
    assert sum(sizes) == len(known)
    assert all(2 * small <= large for large, small in pairwise(sizes))


def test_seen_keys_take_eight_bytes_each() -> None:
    seen = SeenKeys()
    for start in range(0, 1_000_000, 20_000):
        assert seen.add(np.arange(start, start + 20_000, dtype=np.uint64)).all()
    assert sum(level.nbytes for level in seen.levels) == 8_000_000
    assert not seen.add(np.arange(0, 1_000_000, 7, dtype=np.uint64)).any()


def test_hashes_distinguish_the_sides() -> None:
    keys = {hash_pair(pair) for pair in [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a b", "")]}
    assert len(keys) == 5
    assert hash_pair(GOOD) == hash_pair(tuple(GOOD))
