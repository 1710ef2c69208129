"""Terms of glossaries: where they occur, how they are annotated, and the files that hold them."""

import re
import time
from pathlib import Path

import pytest

from manyheads.config import SubwordConfig
from manyheads.errors import DataError, RequestError
from manyheads.text.korean_particles import correct_particles
from manyheads.text.subwords import SubwordTokenizer
from manyheads.text.term_annotation import TERM_SYMBOLS, Annotation, annotate
from manyheads.text.term_files import read_terms
from manyheads.text.term_matching import Glossary, contains_exactly, contains_inflected

# ---- matching


def find(terms: dict[str, str], text: str, language: str = "") -> list[tuple[str, str]]:
    return [(text[own.start : own.end], own.translation) for own in Glossary(terms).find(text, language)]


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        ({"book": "Buch"}, "A Book, two books.", ["Book"]),
        ({"book": "Buch"}, "a notebook", []),
        ({"book": "Buch", "school book": "Schulbuch"}, "a school book and a book", ["school book", "book"]),
        ({"a b": "x", "b c d": "y"}, "a b c d", ["b c d"]),
        ({"학교": "school"}, "학교에서 간다", ["학교"]),
        ({"C++": "C++", ".NET": ".NET"}, "Use C++ or .NET now", ["C++", ".NET"]),
        ({"İstanbul": "x"}, "in İstanbul, İİ", ["İstanbul"]),
        ({"book": "Buch"}, "", []),
    ],
)
def test_terms_are_whole_words_in_any_case(terms: dict[str, str], text: str, expected: list[str]) -> None:
    assert [term for term, _ in find(terms, text)] == expected


def test_plurals_of_english_terms_count_where_the_model_inflects() -> None:
    terms = {"box": "Schachtel", "book": "Buch"}
    assert find(terms, "two boxes, books, bookshop", "en") == [("boxes", "Schachtel"), ("books", "Buch")]
    assert find(terms, "two boxes, books", "de") == []
    assert [own.is_inflected for own in Glossary(terms).find("a book, books", "en-GB")] == [False, True]


def test_a_large_glossary_is_searched_by_the_words_of_the_text() -> None:
    glossary = Glossary({f"term{n} x": f"t{n}" for n in range(50_000)})
    assert len(glossary) == 50_000
    assert [own.translation for own in glossary.find("see term777 x and term49999 x, term7")] == [
        "t777",
        "t49999",
    ]
    assert max(map(len, glossary.terms.values())) == 1, "each word leads to its own terms"


@pytest.mark.parametrize("terms", [{" ": "x"}, {"x": "\t"}])
def test_empty_entries_are_refused(terms: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="empty entries"):
        Glossary(terms)


@pytest.mark.parametrize(
    ("text", "translation", "exact", "inflected"),
    [
        ("Ich sehe den Hund.", "Hund", True, True),
        ("Ich sehe die Hunde.", "Hund", False, True),
        ("Zwei Häuser.", "Haus", False, True),
        ("Die Museen.", "Museum", False, True),
        ("Das Hundefutter.", "Hund", False, False),
        ("mit künstlicher Intelligenz", "künstliche Intelligenz", False, True),
        ("mit der Intelligenz", "künstliche Intelligenz", False, False),
        ("사과를 먹는다", "사과", True, True),
        ("배를 먹는다", "사과", False, False),
        ("Katze", "C++", False, False),
    ],
)
def test_a_translation_is_recognized_in_its_forms(
    text: str, translation: str, exact: bool, inflected: bool
) -> None:
    assert contains_exactly(text, translation) is exact
    assert contains_inflected(text, translation) is inflected


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("나는 사과을 먹고 사과이 좋다.", "사과", "나는 사과를 먹고 사과가 좋다."),
        ("책를 읽고 책로 간다", "책", "책을 읽고 책으로 간다"),
        ("지하철으로 간다", "지하철", "지하철로 간다"),
        ("사과나무을 본다", "사과", "사과나무을 본다"),
        ("사과에서, 사과를", "사과", "사과에서, 사과를"),
    ],
)
def test_particles_behind_a_term_have_their_right_form(text: str, term: str, expected: str) -> None:
    assert correct_particles(text, term) == expected


# ---- annotation

TEXTS = ["I see the dogs, the cat and a Hund.", "나는 학교에서 개를 본다."] * 9
SUBWORDS = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=330))


def test_annotations_leave_the_segmentation_of_words_alone() -> None:
    text = "I see the dogs, the cat."
    annotated = annotate(text, [Annotation(10, 14, "Hund"), Annotation(20, 23, "Katze")])
    assert annotated == "I see the ⟦t⟧ dogs⟦=⟧ Hund⟦/⟧, the ⟦t⟧ cat⟦=⟧ Katze⟦/⟧."
    ids = SUBWORDS.encode(annotated)
    assert [SUBWORDS.pieces[token] for token in ids if SUBWORDS.pieces[token] in TERM_SYMBOLS] == [
        *TERM_SYMBOLS,
        *TERM_SYMBOLS,
    ]
    kept = SUBWORDS.annotation_remover.find_kept(ids)
    assert [ids[position] for position in kept] == SUBWORDS.encode(text)


def test_a_particle_stays_behind_its_annotated_term() -> None:
    annotated = annotate("나는 학교에서 본다.", [Annotation(3, 5, "school")])
    assert annotated == "나는 ⟦t⟧ 학교⟦=⟧ school⟦/⟧에서 본다."
    ids = SUBWORDS.encode(annotated)
    kept = [ids[position] for position in SUBWORDS.annotation_remover.find_kept(ids)]
    assert SUBWORDS.decode(kept) == "나는 학교에서 본다."


def test_subwords_without_the_symbols_have_no_annotations() -> None:
    tokenizer = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=330, term_symbols=False))
    assert not tokenizer.has_term_symbols
    assert SUBWORDS.has_term_symbols
    assert not set("⟦⟧") & SUBWORDS.known_characters


# ---- files

TBX = """<?xml version="1.0"?>
<!DOCTYPE martif [<!ENTITY secret SYSTEM "file:///etc/passwd">]>
<martif type="TBX"><text><body>
<termEntry><langSet xml:lang="en-US"><tig><term>invoice</term></tig><tig><term>bill</term></tig></langSet>
<langSet xml:lang="de"><tig><term>Faktura</term><termNote type="status">deprecatedTerm</termNote>
</tig><tig><term>Rechnung</term></tig></langSet></termEntry>
<termEntry><langSet xml:lang="en"><tig><term>only &secret;</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX_3 = """<tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body><conceptEntry id="c1">
<langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="ko"><termSec><term>개</term></termSec></langSec></conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    ("name", "text", "pair", "expected"),
    [
        ("a.tsv", "book\tBuch\n\na  pen\t Stift \n", ("en", "de"), {"book": "Buch", "a pen": "Stift"}),
        ("a.tsv", "de\ten\nBuch\tbook\n", ("en", "de"), {"book": "Buch"}),
        ("a.csv", 'book,"Buch, das"\n"a ""b""",c\n', ("en", "de"), {"book": "Buch, das", 'a "b"': "c"}),
        ("a.csv", "note;de;en_US\nx;Buch;book\n", ("en", "de"), {"book": "Buch"}),
        ("a.tbx", TBX, ("en", "de"), {"invoice": "Rechnung", "bill": "Rechnung"}),
        ("a.tbx", TBX, ("de", "en"), {"Rechnung": "invoice"}),
        ("a.tbx", TBX_3, ("ko", "en"), {"개": "dog"}),
    ],
)  # fmt: skip
def test_glossaries_are_read_from_tables_and_tbx(
    tmp_path: Path, name: str, text: str, pair: tuple[str, str], expected: dict[str, str]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_terms(path, *pair) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "book Buch\n", "line 1 is not a term, a tab and its translation"),
        ("a.csv", "a,b\nbook,\n", "line 2 is not a term, a separator and its translation"),
        ("a.tbx", "<martif><text>", "not TBX, or damaged"),
        ("a.tbx", TBX_3, "has no terms for en to de"),
        ("a.tsv", f"{'x' * 501}\ty\n", "a term of 501 characters, but the maximum is 500"),
        ("gone.csv", None, "No such file"),
    ],
)
def test_what_is_no_glossary_is_refused(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        read_terms(path, "en", "de")


HOSTILE_GLOSSARIES = {
    "a mark in all of a text": ({"a": "b"}, "<a>" * 3333),
    "terms with one first word": (
        {f"a {'b' * n} {m}": "x" for n in range(10) for m in range(100)},
        "a " * 5000,
    ),
    "terms inside each other": ({" ".join(["a"] * n): "x" for n in range(1, 250)}, "a " * 5000),
}


@pytest.mark.parametrize("name", HOSTILE_GLOSSARIES)
def test_terms_are_found_in_bounded_time(name: str) -> None:
    terms, text = HOSTILE_GLOSSARIES[name]
    glossary = Glossary(terms)
    start = time.process_time()
    glossary.find(text)
    assert time.process_time() - start < 0.3


def test_a_glossary_whose_terms_share_their_first_word_is_built_in_linear_time() -> None:
    start = time.process_time()
    assert len(Glossary({f"the {number}": "x" for number in range(20_000)})) == 20_000
    assert time.process_time() - start < 1
