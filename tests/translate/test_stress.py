"""Stress tests of translators whose weaknesses are known: the table shows exactly those."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import manyheads as mh
from manyheads.evaluate.stress import has_loop, run_stress_tests
from manyheads.evaluate.stress_inputs import (
    TOKEN_MAKERS,
    TestSet,
    change_sources,
    find_shortest,
    is_intact,
    join_neighbors,
    make_copy_inputs,
    sample_test_set,
    sample_words,
)
from manyheads.evaluate.stress_results import StressReport
from manyheads.look.stress_figure import save_stress_figure
from manyheads.text import noise
from manyheads.text.casing import to_capitals
from manyheads.translation import Translation
from support.scripted_translator import ScriptedTranslator

NOUNS = ("Straße", "house", "small dog", "river", "old teacher", "red car", "window", "letter")
SOURCES = [
    f"The {noun} number {n}, which we saw, is near {other}{mark}"
    for n, noun in enumerate(NOUNS)
    for other in NOUNS[::2]
    for mark in (".", "!")
]
KOREAN = [f"그 {n}번째 책은, 내가 어제 읽은 것이다." for n in range(40)]


@dataclass
class CopyingTranslator(ScriptedTranslator):
    """Copies the source, after a change."""

    change: Callable[[str], str] = lambda text: text
    confidence: Callable[[str], float | None] = lambda text: None

    def translate(self, texts: list[str], **_: Any) -> list[Translation]:  # type: ignore[override]
        self.calls.append(list(texts))
        return [
            Translation(
                text,
                output,
                source_tokens=text.split(),
                tokens=output.split(),
                sentences=1,
                confidence=self.confidence(text),
            )
            for text in texts
            for output in [self.change(text)]
        ]


def stress(
    change: Callable[[str], str] = str, sources: list[str] = SOURCES, language: str = "en", **options: Any
) -> StressReport:
    confidence = options.pop("confidence", lambda text: None)
    translator: Any = CopyingTranslator(
        source_language=language, target_language="de", change=change, confidence=confidence
    )
    return run_stress_tests(translator, sources, [sources], bootstrap_samples=0, **options)


def chrf_by_case(report: StressReport) -> dict[str, float]:
    return {row.name: row.chrf.value for row in report.rows}


def shares_intact(report: StressReport) -> dict[str, float]:
    return {row.category: row.share for row in report.copies}


def test_a_translator_that_breaks_on_capitals_fails_there_only() -> None:
    sound, broken = stress(), stress(lambda text: "xqz" if text == text.upper() else text)
    assert chrf_by_case(sound)["capitals"] == 100  # scored without case
    assert chrf_by_case(broken)["capitals"] < 5
    rest = {name: score for name, score in chrf_by_case(broken).items() if name != "capitals"}
    assert rest == {name: score for name, score in chrf_by_case(sound).items() if name != "capitals"}
    assert shares_intact(broken) == dict.fromkeys(TOKEN_MAKERS, 1.0)
    assert (sound.rows[1].capitals, broken.rows[1].capitals) == (1.0, 0.0)


def test_lower_case_is_scored_with_case_and_capitals_without() -> None:
    report = stress()
    signatures = {row.name: row.bleu.signature for row in report.rows}
    assert "case:lc" in signatures["capitals"]
    assert "case:mixed" in signatures["lower case"]
    assert chrf_by_case(report)["lower case"] < 100
    restored = stress(lambda text: text.replace("the ", "The "))
    assert restored.rows[2].chrf.value > report.rows[2].chrf.value


def test_loops_empty_long_and_invalid_outputs_are_counted() -> None:
    def fail(text: str) -> str:
        if "river" not in text or text not in SOURCES:
            return text
        return {"!": "", ".": "so " * 80}[text[-1]]

    report = stress(fail)
    rivers = sum("river" in text for text in SOURCES) // 2
    clean = report.clean.failures
    assert (clean.loops, clean.empty, clean.too_long, clean.invalid) == (rivers, rivers, rivers, 0)
    assert report.failures.rate("loops") == pytest.approx(10_000 * rivers / report.failures.outputs)
    assert report.failures.outputs > 7 * len(SOURCES)  # distinct
    invalid = stress(lambda text: text.replace("house", "\ufffd"))
    assert invalid.clean.failures.invalid == sum("house" in text for text in SOURCES)


def test_a_translator_that_drops_urls_loses_those_only() -> None:
    def drop_urls(text: str) -> str:
        return " ".join(word for word in text.split() if not word.startswith("http"))

    report = stress(drop_urls)
    assert shares_intact(report) == {**dict.fromkeys(TOKEN_MAKERS, 1.0), "URL": 0.0}
    assert report.copies[0].examples[0][0].startswith("http")
    assert sum(row.tokens for row in stress(copies=31).copies) == 31


def test_a_translator_that_reads_one_sentence_fails_at_long_lines_only() -> None:
    report = stress(lambda text: text[: text.index(" near ")] if text.count("number") > 1 else text)
    scores = chrf_by_case(report)
    assert scores["long lines"] < 40 < scores["typos"]
    assert report.rows[-1].clean_chrf == 100


def test_single_words_that_become_sentences_are_not_sound() -> None:
    assert stress().words.sound == stress().words.words == 16  # distinct, of three letters and more
    report = stress(lambda text: "In the beginning was a word." if " " not in text else text)
    assert (report.words.sound, len(report.words.examples)) == (0, 3)


def test_calibration_is_measured_where_there_are_confidences() -> None:
    assert stress().calibration is None

    def guess(text: str) -> str:
        return "xqz" if "river" in text else text

    def know(text: str) -> float:
        return 0.9 if text in SOURCES and "river" not in text else 0.1

    report = stress(guess, confidence=know)
    assert report.calibration is not None
    known = report.calibration
    share = sum("river" in text for text in SOURCES) / len(SOURCES)
    assert known.adequate == pytest.approx(1 - share)
    assert known.auroc_adequate == 1.0
    assert known.auroc_shuffled == pytest.approx(1 - share / 2)
    assert known.ece == pytest.approx(0.875 - 0.8)  # the lines fill one bin
    assert known.risk[0] == 0
    assert known.risk[-1] == pytest.approx(share, abs=0.02)
    assert known.coverage[-1] == 1


def test_lines_with_nothing_to_translate_have_no_part_in_the_calibration() -> None:
    """One URL in a test set must not hide the confidence of the model."""
    sources = [*SOURCES, "https://a.b/c"]
    known = stress(sources=sources, confidence=lambda text: None if "/" in text else 0.75).calibration
    assert known is not None
    assert (known.lines, known.mean_confidence, known.ece) == (64, 0.75, 0.25)
    assert known.auroc_shuffled == 0.5


def test_korean_sources_have_no_case_to_change() -> None:
    report = stress(sources=KOREAN, language="ko")
    assert report.skipped == ["capitals", "lower case", "title case"]
    assert [row.name for row in report.rows] == [
        "clean", "typos", "no punctuation", "spacing", "shortest lines", "long lines",
    ]  # fmt: skip
    assert report.words.words > 3
    assert shares_intact(report) == dict.fromkeys(TOKEN_MAKERS, 1.0)


def test_results_are_a_function_of_the_seed() -> None:
    first, again, other = (stress(sentences=30, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.lines == 30


def test_reports_are_json_text_and_markdown() -> None:
    report = stress(confidence=lambda text: 0.5)
    values = json.loads(json.dumps(report.to_dict()))
    assert values["rows"][0]["relative_chrf"] == 1
    assert values["failures_per_10000"] == {"loops": 0, "empty": 0, "too_long": 0, "invalid": 0}
    assert len(values["calibration"]["risk"]) == len(values["calibration"]["coverage"])
    text, markdown = report.to_text(), report.to_markdown()
    assert "capitals* " in text
    assert "| capitals\\* | 64 | 100.00 | 100.00 | 100% | 0 | 0 |" in markdown
    assert "| URL | 11 | 100.0% |" in markdown
    for part in (
        "BLEU nrefs:1|case:mixed",
        "scored without case: BLEU nrefs:1|case:lc",
        "confidence: ECE 0.5",
    ):
        assert part in text
        assert part in markdown


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_picture_is_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    report = stress(confidence=lambda text: len(text) / 1000)
    paths = [tmp_path / f"{name}.{suffix}" for name in ("a", "b")]
    for path in paths:
        save_stress_figure(report, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(paths[0].read_bytes()) > 5000
    with pytest.raises(mh.RequestError, match="unknown image format"):
        save_stress_figure(report, tmp_path / "a.gif")


# ---- inputs


def test_typos_swap_letters_in_a_tenth_of_the_words() -> None:
    changed = change_sources(SOURCES * 3, "typos", noise.swap_letters, 1)
    pairs = [
        (word, other)
        for text, noisy in zip(SOURCES * 3, changed, strict=True)
        for word, other in zip(text.split(), noisy.split(), strict=True)
    ]
    mistyped = [(word, other) for word, other in pairs if word != other]
    assert 0.06 < len(mistyped) / len(pairs) < 0.12
    for word, other in mistyped:
        differing = [index for index in range(len(word)) if word[index] != other[index]]
        assert len(differing) == 2
        assert differing[1] == differing[0] + 1
        assert sorted(word) == sorted(other)


def test_marks_around_words_are_dropped() -> None:
    rng = random.Random(0)
    assert (
        noise.drop_punctuation("“Well-known,” he said - it's 3.5 %.", rng) == "Well-known he said it's 3.5 %."
    )
    assert noise.drop_punctuation("“좋아요,” 그가 말했다.", rng) == "좋아요 그가 말했다"


def test_capitals_of_german_can_be_lowered_again() -> None:
    assert to_capitals("Die Straße.") == "DIE STRAẞE."
    assert to_capitals("Die Straße.").lower() == "die straße."


def test_samples_keep_neighbors_together() -> None:
    sample = sample_test_set(SOURCES, [SOURCES], 30, 1)
    places = [SOURCES.index(text) for text in sample.sources]
    assert len(places) == 30
    assert places == sorted(set(places))
    assert all(places[index] + 1 == places[index + 1] for index in range(0, 30, 3))
    assert sample.references == [sample.sources]
    assert sample_test_set(SOURCES, [SOURCES], 64 - 1, 1).sources == SOURCES[:63]
    assert sample_test_set(SOURCES, [SOURCES], None, 1).sources == SOURCES
    with pytest.raises(mh.DataError, match="no sentences"):
        sample_test_set([], [[]], None, 1)


def test_neighbors_are_joined_with_their_references() -> None:
    joined = join_neighbors(TestSet(list("abcdefg"), [list("ABCDEFG")]))
    assert joined == TestSet(["a b c", "d e f"], [["A B C", "D E F"]])


def test_shortest_lines_and_words() -> None:
    assert find_shortest(["a b c d", "a", "a b", "c", *["x y z"] * 6]) == [1, 3]
    words = sample_words(["The house, the 3 cats: U2 is-it ok"], "en", 9, 1)
    assert sorted(words) == ["The", "cats", "house", "the"]
    assert sample_words(["나는 책을, 봐"], "ko", 9, 1) == sample_words(["책을 나는"], "ko", 9, 1)


def test_tokens_to_copy_stand_between_words() -> None:
    inputs = make_copy_inputs(SOURCES, 60, 1)
    assert [entry.category for entry in inputs[:6]] == list(TOKEN_MAKERS)
    for entry in inputs:
        assert f" {entry.token} " in entry.text
        assert is_intact(entry.token, entry.text)


@pytest.mark.parametrize(
    ("token", "text", "expected"),
    [
        ("12", "12를 샀다.", True),
        ("12", "Er kaufte 12.", True),
        ("12", "Er kaufte 123.", False),
        ("12", "Er kaufte 12.5 davon", False),
        ("https://example.org/a", "siehe https://example.org/ab", False),
        ("https://example.org/a", "https://example.org/a에서", True),
        ("{name}", "{name}님", True),
        ("{name}", "{Name}님", False),
    ],
)
def test_a_part_of_a_longer_token_is_not_intact(token: str, text: str, expected: bool) -> None:
    assert is_intact(token, text) == expected


def test_a_phrase_that_is_repeated_is_a_loop_unless_the_source_repeats_it() -> None:
    def has_loop_of(source: str, text: str) -> bool:
        return has_loop(Translation(source, text, source_tokens=source.split(), tokens=text.split()))

    assert has_loop_of("I love you", "나는 " + "두 " * 9)
    assert not has_loop_of("두 " * 9, "two " * 9)
    assert not has_loop_of("very very good", "sehr , sehr , sehr gut")
