"""Noise: pure functions of the text and the generator, which change what they say and nothing else."""

import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.text.noise import HALF_WIDTH, NOISES, is_verbatim

ENGLISH = 'Mr President, I don\'t think that the "Commission" - as I said... - has understood the question.'
KOREAN = "나는 오늘 점심을 먹었어. 그런데 너는 왜 안 왔어?"
GERMAN = "Die Größe der Straße überrascht, naïv wie ein Café."
VERBATIM = [
    "3,500",
    "https://example.org/A?b=C",
    "{Name}",
    "%s",
    "<b>Bold</b>",
    "Ann.Lee@Example.org",
    "⟦3⟧",
    "A4",
]
SEEDS = range(60)


def change(name: str, text: str, seed: int = 0) -> str:
    return NOISES[name](text, random.Random(seed))


@pytest.mark.parametrize("name", NOISES)
@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), seed=st.integers(0, 99))
def test_any_text_is_changed_by_the_seed_alone(name: str, text: str, seed: int) -> None:
    assert change(name, text, seed) == change(name, text, seed)


@pytest.mark.parametrize("name", NOISES)
def test_words_that_must_survive_survive(name: str) -> None:
    text = f"The words {' and '.join(VERBATIM)} are Here, of course, für Alice."
    for seed in SEEDS:
        words = change(name, text, seed).split()
        assert set(VERBATIM) <= set(words), (seed, words)


@pytest.mark.parametrize("name", sorted(set(NOISES) - {"accents"}))
def test_each_noise_changes_most_english_sentences(name: str) -> None:
    assert sum(change(name, ENGLISH, seed) != ENGLISH for seed in SEEDS) > 0.9 * len(SEEDS)


@pytest.mark.parametrize("name", ["typos", "punctuation", "spacing", "variants", "shuffle_words"])
def test_noise_changes_most_korean_sentences(name: str) -> None:
    assert sum(change(name, KOREAN, seed) != KOREAN for seed in SEEDS) > 0.9 * len(SEEDS)


@pytest.mark.parametrize("name", ["lower", "title", "capitals", "accents"])
def test_korean_has_neither_case_nor_accents(name: str) -> None:
    assert {change(name, KOREAN, seed) for seed in SEEDS} == {KOREAN}


@pytest.mark.parametrize("name", NOISES)
def test_hangul_stays_composed(name: str) -> None:
    for seed in SEEDS:
        changed = change(name, KOREAN + " é", seed)
        assert changed == unicodedata.normalize("NFC", changed)


def test_case_changes_letters_only() -> None:
    assert change("lower", "I saw {Name} in NEW York.") == "i saw {Name} in new york."
    assert change("title", 'i don\'t "see" 3rd class (yet).') == 'I Don\'t "See" 3rd Class (Yet).'
    for seed in SEEDS:
        capitals = change("capitals", ENGLISH, seed)
        changed = [word for word, old in zip(capitals.split(), ENGLISH.split(), strict=True) if word != old]
        assert capitals.lower() == ENGLISH.lower()
        assert len(changed) <= 3
        assert all(word == word.upper() for word in changed)


def test_capitals_are_never_the_whole_sentence() -> None:
    for seed in SEEDS:
        assert change("capitals", "Stop", seed) == "Stop"
        assert change("capitals", "go away", seed) in ("GO away", "go AWAY")


@pytest.mark.parametrize("text", [ENGLISH, KOREAN, GERMAN])
def test_about_a_tenth_of_the_words_have_a_typo(text: str) -> None:
    words = (text + " ") * 3
    for seed in SEEDS:
        changed = change("typos", words.strip(), seed).split()
        differing = sum(new != old for new, old in zip(changed, words.split(), strict=True))
        assert differing == max(1, round(0.1 * len(words.split())))
    assert len({change("typos", text, seed) for seed in SEEDS}) > 30


def test_a_korean_typo_may_be_a_neighboring_key_of_the_korean_keyboard() -> None:
    typos = {change("typos", "가다", seed) for seed in range(200)}
    assert "거다" in typos  # ㅏ and ㅓ are neighbors
    assert "사다" in typos  # ㄱ and ㅅ are neighbors


def test_missing_and_doubled_marks() -> None:
    changed = {change("punctuation", "Well, 3.5 or 1,000? Yes.", seed) for seed in SEEDS}
    assert "Well, 3.5 or 1,000? Yes" in changed
    assert "Well 3.5 or 1,000 Yes" in changed
    assert "Well,, 3.5 or 1,000? Yes." in changed
    assert "Well 3.5 or 1,000? Yes." in changed


def test_spacing_changes_spaces_only() -> None:
    for text in (ENGLISH, KOREAN):
        assert {"".join(change("spacing", text, seed).split()) for seed in SEEDS} == {"".join(text.split())}
    assert "".join(KOREAN.split()) in {change("spacing", KOREAN, seed) for seed in SEEDS}


def test_variants_are_the_same_text_in_other_characters() -> None:
    changed = {change("variants", ENGLISH, seed) for seed in range(200)}
    assert any("“Commission”" in text for text in changed)
    assert any("don’t" in text for text in changed)
    assert any("said…" in text for text in changed)
    assert any(" — " in text for text in changed)
    assert any("\u00a0" in text for text in changed)
    assert any(text.translate(HALF_WIDTH) == ENGLISH != text for text in changed)


def test_accents_are_removed_from_letters_that_have_them() -> None:
    assert change("accents", GERMAN) == "Die Große der Straße uberrascht, naiv wie ein Cafe."
    assert change("accents", "が 한국 Ελλάδα") == "が 한국 Ελλαδα"


def test_shuffled_words_are_the_same_words() -> None:
    assert sorted(change("shuffle_words", KOREAN).split()) == sorted(KOREAN.split())


def test_a_word_is_verbatim_by_its_characters() -> None:
    assert all(map(is_verbatim, VERBATIM))
    assert not any(map(is_verbatim, [*KOREAN.split(), *ENGLISH.split()]))
