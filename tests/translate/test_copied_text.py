"""What must survive does, whatever the model makes of it: masks, checks, repair, capitals, broken bytes."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import SubwordConfig
from manyheads.text.casing import CaseLexicon
from manyheads.text.masks import SYMBOL
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.text_engine import ByteEngine, TextEngine
from support.untrained_model import TEXTS

SENTENCES = [
    "We read about it in the newspaper yesterday.",
    "Please open the door and look for the box.",
    "My mother writes a long letter, but nobody answers.",
    "나는 오늘 학교에 가서 책을 읽는다.",
    "어머니는 시장에서 사과를 사셨다.",
]
SUBWORDS = SubwordTokenizer.train([*TEXTS, *SENTENCES] * 5, SubwordConfig(vocab_size=480))

Function = Callable[[str], str]


def make_translator(
    *functions: Function,
    copies: bool = True,
    engine: Any = None,
    source: str = "en",
    casing: CaseLexicon | None = None,
    **options: Any,
) -> mh.Translator:
    engine = engine or TextEngine(SUBWORDS, *functions)
    languages = {"source": source, "target": "de"}
    pair = SubwordPair(SUBWORDS, SUBWORDS, casing)
    return mh.Translator(engine, pair, languages, uses_copy_symbols=copies, **options)


def drop_symbols(text: str) -> str:
    return SYMBOL.sub("", text)


def double_symbols(text: str) -> str:
    return SYMBOL.sub(lambda match: match.group() * 2, text)


def shift_symbols(text: str) -> str:
    return SYMBOL.sub(lambda match: f"\u27e6{(int(match[1]) + 1) % 8}\u27e7", text)


def reverse_words(text: str) -> str:
    return " ".join(reversed(text.split(" ")))


def mangle(text: str) -> str:
    """Do to verbatim text what small models do: repeat digits, lose marks."""
    return re.sub(r"[^\w\s.]", "", re.sub(r"\d", "6", SYMBOL.sub("", text)))


def test_a_model_that_copies_reads_symbols_and_may_move_them() -> None:
    translator = make_translator(reverse_words)
    result = translator.translate("Open https://a.org/x?y=1 or call 555-1234")
    assert translator.engine.sources == ["Open ⟦0⟧ or call ⟦1⟧"]  # type: ignore[attr-defined]
    assert result.text == "555-1234 call or https://a.org/x?y=1 Open"
    assert result.notes == []
    assert [piece for piece in result.tokens if len(piece) > 6] == ["555-1234", "https://a.org/x?y=1"]
    assert "https://a.org/x?y=1" in result.source_tokens


@pytest.mark.parametrize("damage", [drop_symbols, double_symbols, shift_symbols])
def test_a_sentence_whose_symbols_are_lost_is_translated_in_parts(damage: Function) -> None:
    result = make_translator(damage).translate("Open https://a.org/x (12 MB) and go home.")
    assert result.text == "Open https://a.org/x (12 MB) and go home."
    assert result.notes == ["copied text repaired"]
    assert len(result.token_scores) == len(result.tokens)


def test_a_model_without_copy_symbols_reads_the_text_itself() -> None:
    translator = make_translator(str, copies=False)
    result = translator.translate("Open https://a.org/x (1,234.56 MB).")
    assert translator.engine.sources == ["Open https://a.org/x (1,234.56 MB)."]  # type: ignore[attr-defined]
    assert (result.text, result.notes) == ("Open https://a.org/x (1,234.56 MB).", [])
    localized = make_translator(lambda text: text.replace("1,234.56", "1.234,56"), copies=False)
    assert localized.translate("It costs 1,234.56 here.").text == "It costs 1.234,56 here."
    broken = make_translator(mangle, copies=False).translate("It costs 1,234.56 here.")
    assert (broken.text, broken.notes) == ("It costs 1,234.56 here.", ["copied text repaired"])


def test_of_several_hypotheses_those_that_copy_are_kept() -> None:
    translator = make_translator(drop_symbols, reverse_words, double_symbols)
    result = translator.translate("call 555-1234 now", nbest=3)
    assert result.text == "now 555-1234 call"
    assert result.alternatives == []


def test_particles_stay_attached_to_what_is_copied() -> None:
    translator = make_translator(str, source="ko")
    result = translator.translate("나는 https://a.org/x를 읽고 12명과 간다.")
    assert translator.engine.sources == ["나는 ⟦0⟧를 읽고 ⟦1⟧명과 간다."]  # type: ignore[attr-defined]
    assert result.text == "나는 https://a.org/x를 읽고 12명과 간다."


def test_symbols_of_the_user_are_copied_like_anything_else() -> None:
    for copies in (True, False):
        for function in (str, drop_symbols, shift_symbols):
            result = make_translator(function, copies=copies).translate("we read ⟦3⟧ and ⟦3⟧ at home")
            assert result.text == "we read ⟦3⟧ and ⟦3⟧ at home"


def test_symbols_that_nothing_stands_behind_are_removed() -> None:
    result = make_translator(lambda text: f"⟦2⟧ {text}").translate("we read a book")
    assert result.text == "we read a book"


def test_more_spans_than_symbols_are_checked_too() -> None:
    text = "we read " + " and ".join(f"{number}0" for number in range(1, 13)) + " at https://a.b/c today"
    for function in (str, mangle):
        result = make_translator(function).translate(text)
        assert result.text == text
        assert result.notes == ([] if function is str else ["copied text repaired"])


def test_of_a_long_word_with_several_codes_nothing_is_translated() -> None:
    word = "ab@" + "/x_1@cab.c//" * 20 + "@bca"
    translator = make_translator(str, max_length=30)
    result = translator.translate(f"we read ({word}), then https://a.org/{'x' * 80} at home.")
    assert result.text == f"we read ({word}), then https://a.org/{'x' * 80} at home."
    sources = translator.engine.sources  # type: ignore[attr-defined]
    assert not [text for text in sources if "@" in text or "cab" in text]
    assert " ".join(sources).count("then") == 1


def test_text_that_is_all_to_be_copied_is_not_translated() -> None:
    translator = make_translator(mangle)
    for text in ("https://a.b/c", "12345", "🙂", "", " . ", "<br/>"):
        result = translator.translate(text)
        assert (result.text, result.notes, result.sentences) == (text, ["nothing to translate"], 0)
    assert translator.engine.sources == []  # type: ignore[attr-defined]


def test_the_glossary_wins_over_copying() -> None:
    translator = make_translator(str)
    translator.translate("we read Boeing 747 at 747 Street", glossary={"Boeing 747": "home"})
    assert translator.engine.sources == ["we read Boeing 747 at ⟦0⟧ Street"]  # type: ignore[attr-defined]


def test_the_prefix_belongs_to_the_first_part() -> None:
    requests = []

    class RecordingEngine(TextEngine):
        def decode(self, given: Any, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
            given = list(given)
            requests.extend(given)
            return super().decode(given, *arguments, **options)

    engine = RecordingEngine(SUBWORDS, drop_symbols)
    make_translator(engine=engine).translate("we read 1234 at home", prefix="we", forbid=["box"])
    prefixes = [bool(request.constraints.prefix) for request in requests]
    assert prefixes == [True, True, False]
    assert all(request.constraints.forbidden_phrases for request in requests)


WORDS = ["we", "read", "a", "book", "at", "home", "집에", "간다"]
VALUES = st.sampled_from(
    [
        "https://a.org/x?y=1&z",
        "a.b@c.co.kr",
        "{name}",
        "%s",
        "<b>",
        "</b>",
        "$1,234.56",
        "2024-05-17",
        "🇰🇷",
        "👩‍👩‍👧",
    ]
) | st.integers(10, 10**9).map(str)


@given(
    st.lists(st.tuples(st.sampled_from(WORDS), VALUES), min_size=1, max_size=12),
    st.sampled_from([str, drop_symbols, double_symbols, shift_symbols, mangle, reverse_words]),
    st.booleans(),
)  # fmt: skip
def test_every_value_comes_out_of_any_engine(
    parts: list[tuple[str, str]], function: Function, copies: bool
) -> None:
    text = " ".join(word for part in parts for word in part)
    result = make_translator(function, copies=copies).translate(text, split=False)
    for _, value in parts:
        assert result.text.count(value) >= sum(other == value for _, other in parts)


def test_five_thousand_values_come_out_of_an_engine_that_errs() -> None:
    rng = random.Random(3)
    values = [make_value(rng) for _ in range(5000)]
    texts = [insert_value(rng.choice(SENTENCES), value, rng) for value in values]

    def err(text: str) -> str:
        chance = random.Random(text)
        errors: list[Function] = [str, drop_symbols, double_symbols, shift_symbols, mangle]
        return chance.choice([*errors, reverse_words])(text)

    for copies in (True, False):
        results = make_translator(err, copies=copies).stream(texts)
        lost = [value for value, result in zip(values, results, strict=True) if value not in result.text]
        assert not lost


def make_value(rng: random.Random) -> str:
    number = rng.randint(10, 10**6)
    return rng.choice(
        [
            f"https://example.org/{number}/a_b?x={number}&y=%20#top",
            f"user.{number}@mail-{number}.co.kr",
            f"{number:,}.{number % 90 + 10}",
            f"${number}",
            f"{number}%",
            f"{{user_{number}}}",
            f"%{number % 9 + 1}$s",
            f"<a id='{number}'>",
            f"AB-{number}/x",
            rng.choice(["🙂", "👍🏽", "👩‍👩‍👧", "🇰🇷", "❤️"]) + rng.choice(["", "🎉"]),
        ]
    )


def insert_value(sentence: str, value: str, rng: random.Random) -> str:
    words = sentence.split(" ")
    words.insert(rng.randrange(len(words)), value)
    return " ".join(words)


# ---- capitals


def test_capitals_are_read_in_lower_case_and_written_in_capitals() -> None:
    translator = make_translator(str)
    result = translator.translate("OPEN https://a.org/x NOW, I SAY.")
    assert translator.engine.sources == ["Open ⟦0⟧ now, I say."]  # type: ignore[attr-defined]
    assert (result.text, result.notes) == ("OPEN https://a.org/x NOW, I SAY.", ["all capitals"])
    unmasked = make_translator(str, copies=False).translate("OPEN https://a.org/x NOW, I SAY.")
    assert unmasked.text == "OPEN https://a.org/x NOW, I SAY."
    repaired = make_translator(drop_symbols).translate("OPEN https://a.org/x NOW, I SAY.")
    assert repaired.text == "OPEN https://a.org/x NOW, I SAY."
    assert repaired.notes == ["all capitals", "copied text repaired"]


@pytest.mark.parametrize("copies", [True, False])
def test_a_text_whose_case_says_nothing_is_read_in_its_usual_case(copies: bool) -> None:
    lexicon = CaseLexicon(("the", "we", "read", "at", "to", "EU", "Berlin"), True)
    translator = make_translator(str, copies=copies, casing=lexicon)
    url, code = ("⟦0⟧", "⟦1⟧") if copies else ("https://a.org/x_eu", "12.345,00")
    for text, expected, written in [
        ("we read at https://a.org/x_eu to the eu 12.345,00", "We read at {} to the EU {}", None),
        ("We Read The Door To The Eu", "We read the Door to the EU", None),
        ("WE READ AT https://a.org/x_eu TO BERLIN 12.345,00", "We read at {} to Berlin {}", str.upper),
        ("We read the door", "We read the door", None),
    ]:
        result = translator.translate(text)
        read = translator.engine.sources.pop()  # type: ignore[attr-defined]
        assert read == expected.format(url, code)
        assert result.text == (text if written else expected.format("https://a.org/x_eu", "12.345,00"))


def test_parts_of_a_repaired_sentence_are_read_in_their_usual_case() -> None:
    translator = make_translator(drop_symbols, casing=CaseLexicon(("the", "EU"), True))
    result = translator.translate("the eu https://a.org/x the eu!")
    assert (result.text, result.notes) == ("The EU https://a.org/x the EU!", ["copied text repaired"])


def test_bytes_have_no_capitals() -> None:
    """Tokens that spell a character by its bytes keep their names."""
    engine = ByteEngine(SUBWORDS, ["▁", "<0xEB>", "<0x9E>", "<0xA8>", "t"])
    assert make_translator(engine=engine).translate("WE READ AGAIN").tokens == [
        "▁", "<0xEB>", "<0x9E>", "<0xA8>", "T",
    ]  # fmt: skip


def test_acronyms_are_read_as_they_are() -> None:
    translator = make_translator(str)
    for text in ("NATO", "EU USA", "나는 집에 간다."):
        assert "all capitals" not in translator.translate(text).notes
    assert translator.engine.sources == ["NATO", "EU USA", "나는 집에 간다."]  # type: ignore[attr-defined]


# ---- odd text


def test_bytes_that_are_not_utf_8_never_come_out() -> None:
    result = make_translator(engine=ByteEngine(SUBWORDS, ["▁", "<0xED>", "<0x95>", "▁"])).translate("we read")
    assert "\ufffd" not in result.text
    assert result.notes == ["broken bytes removed"]


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 we read \udfff", "\ud800", "we read\n\udfff.", "\x00we\x00 read\x00",
        "a" * 100_000, "1" * 100_000, "한" * 20_000,
        "\u200f\u202ewe read", "\u0301\u0302\u0303", "e\u0301" * 500, "we read \ufffd", "<" * 1000 + "a",
        "https://" + "a/" * 2000, "🙂" * 500,
        "we\tread\x0b a\x1f book\u2028home", "A" * 5000, ("ǆ ŉ İ ẞ ΐ " * 50).upper(),
    ],
    ids=ascii,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:a sentence of")
def test_odd_text_gives_valid_utf_8(text: str) -> None:
    for function in (str, mangle):
        for copies in (True, False):
            make_translator(function, copies=copies).translate(text).text.encode()


@given(st.text(max_size=80), st.booleans())
def test_any_text_gives_valid_utf_8(text: str, copies: bool) -> None:
    make_translator(mangle, copies=copies).translate(text).text.encode()


def test_text_in_another_script_says_so() -> None:
    assert make_translator(str, source="ko").translate("we read a book").notes == ["looks like Latin, not ko"]
    result = make_translator(str).translate("Привет, мир")
    assert (result.text, result.notes) == (
        "Привет, мир",
        ["looks like Cyrillic, not en", "nothing to translate"],
    )
