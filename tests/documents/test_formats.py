"""Documents of every format keep their layout, to the byte where nothing is translated."""

import re
from dataclasses import replace

import pytest

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.document import read_document
from manyheads.documents.limits import DocumentLimits
from manyheads.documents.suffixes import DOCUMENT_SUFFIXES
from manyheads.errors import DataError
from manyheads.translation import Translation
from support.office_files import get_part, make_docx, make_odt, unpack


def reverse_translation(text: str, is_aligned: bool = True) -> Translation:
    """Reverse the words of each line, with their alignment."""
    lines = [line.split() for line in text.split("\n")]
    words = text.split()
    last = len(words) - 1
    return Translation(
        text,
        "\n".join(" ".join(reversed(line)) for line in lines),
        source_tokens=[f"\u2581{word}" for word in words],
        tokens=[f"\u2581{word}" for word in reversed(words)],
        alignment=[(n, last - n) for n in range(len(words))] if is_aligned else None,
    )


def translate(data: str | bytes, name: str, policy: ConfidencePolicy | None = None) -> bytes:
    document = read_document(data.encode() if isinstance(data, str) else data, name)
    translations = [reverse_translation(text) for text in document.texts]
    if policy is not None:
        translations = [
            replace(own, confidence=0.2 if "unsure" in own.source else 0.9) for own in translations
        ]
    return document.render(translations, policy)


def keep(data: str | bytes, name: str) -> bytes:
    """Return a document whose translation is its source."""
    document = read_document(data.encode() if isinstance(data, str) else data, name)
    return document.render([Translation(text, text) for text in document.texts])


# ---- plain text


def test_text_keeps_line_ends_empty_lines_and_the_byte_order_mark() -> None:
    assert translate("\ufeffone two\r\n\r\n  \n---\nthree four\rfive six", "a.txt") == (
        "\ufefftwo one\r\n\r\n  \n---\nfour three\rsix five".encode()
    )


def test_html_is_a_document() -> None:
    assert translate("<p>one <b>two</b></p>", "A.HTM") == b"<p><b>two</b> one</p>"


# ---- subtitles

CUES = """1
00:00:01,000 --> 00:00:02,500
one two three

2
00:00:03,000 --> 00:00:04,000 X1:40
<i>four five</i>
six seven

3
00:00:05,000 --> 00:00:06,000
- a b
- c d

4
00:00:07,000 --> 00:00:08,000
{\\an8}e & f
♪
"""


def test_cues_keep_numbers_times_and_their_lines() -> None:
    assert (
        translate(CUES, "film.srt").decode()
        == """1
00:00:01,000 --> 00:00:02,500
three two one

2
00:00:03,000 --> 00:00:04,000 X1:40
seven six
<i>five four</i>

3
00:00:05,000 --> 00:00:06,000
b a -
d c -

4
00:00:07,000 --> 00:00:08,000
{\\an8}♪ f &
e
"""
    )


def test_cues_that_are_not_changed_keep_their_bytes() -> None:
    for text in (CUES, CUES.replace("\n", "\r\n"), "\ufeff" + CUES, "\n\n" + CUES.rstrip("\n"), ""):
        assert keep(text, "film.srt") == text.encode()


def test_a_file_without_times_is_not_subtitles() -> None:
    with pytest.raises(DataError, match=r"film\.srt: has no line such as 00:00:01,000"):
        read_document(b"one two", "film.srt")


# ---- PO

MESSAGES = r"""# header
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=n;\n"

#: a.c:1
msgid "one two"
msgstr ""

#, fuzzy
msgid "not this"
msgstr ""

msgid "done already"
msgstr "ready"
msgctxt "menu"
msgid ""
"three \"four\"\n"
"five six\n"
msgstr ""
""

msgid "a file"
msgid_plural "many files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""


def test_messages_without_a_translation_are_filled_in_and_nothing_else_changes() -> None:
    expected = MESSAGES.replace('msgid "one two"\nmsgstr ""', 'msgid "one two"\nmsgstr "two one"')
    expected = expected.replace(
        '"five six\\n"\nmsgstr ""\n""', '"five six\\n"\nmsgstr "\\"four\\" three\\nsix five\\n"'
    )
    expected = expected.replace(
        'msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "file a"\nmsgstr[1] "files many"\nmsgstr[2] "files many"'
    )
    assert translate(MESSAGES, "ko.po").decode() == expected


def test_a_language_without_plurals_gets_the_plural_alone() -> None:
    text = MESSAGES.replace("nplurals=3", "nplurals=1")
    assert b'msgid_plural "many files"\nmsgstr[0] "files many"\n\n' in translate(text, "ko.po")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('msgid "a\nmsgstr ""\n', 'ko.po:1: not a line of a PO file: msgid "a'),
        ('"a"\n', "ko.po:1: not a line"),
        (
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=EUC-KR\\n"\n',
            "its charset is EUC-KR: msgconv",
        ),
    ],
)
def test_damaged_messages_are_named(text: str, error: str) -> None:
    with pytest.raises(DataError, match=re.escape(error)):
        read_document(text.encode(), "ko.po")


# ---- Markdown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# one two\n\nthree *four* five.\n", "# two one\n\nfive. *four* three\n"),
        ("one two\nthree four\n\n\nfive\n", "four three two one\n\n\nfive\n"),
        ("- [ ] one two\n  1. three **four**\n", "- two one ] [\n  1. **four** three\n"),
        ("> one two\n> three\n", "> three two one\n"),
        ("one two\n=======\n", "two one\n=======\n"),
        ("| a b | c d |\n|:--|--|\n| e \\| f | `g h` i |\n",
         "| b a | d c |\n|:--|--|\n| f \\| e | i `g h` |\n"),
        ("run `a  b` now", "now `a  b` run"),
        ("see [the page](x.md \"t\") here", "here [page the](x.md \"t\") see"),
        ("see [the page][Ref] here\n\n[ref]: y.md\n", "here [page the][ref] see\n\n[ref]: y.md\n"),
        ("see [the page] here\n\n[the page]: y.md\n", "here [page the][the page] see\n\n[the page]: y.md\n"),
        ("a ![b c](한.png) d", "d ![b c](한.png) a"),
        ("a <https://x.org/y> b", "b <https://x.org/y> a"),
        ("one two  \nthree four", "two one  \nfour three"),
        ("> one two\\\n> three four", "> two one\\\n> four three"),
        ("---\ntitle: one two\n---\nthree four\n", "---\ntitle: one two\n---\nfour three\n"),
        ("```sh\none two\n```\n    three four\n", "```sh\none two\n```\n    three four\n"),
        ("<div>one two</div>\n\nthree four\n", "<div>two one</div>\n\nfour three\n"),
        ("a 1.", "1\\. a"),
        ("press <kbd>x y</kbd> <br> now", "<kbd>y x</kbd> press <br> now"),
        ("a <i>b *c d</i> e* f", "f *</i>e d c* <i>b a"),
        ("b #", "\\# b"),
        ("a 2\\*3 b", "b 2\\*3 a"),
        ("~~one two~~ ***three***", "***three*** ~~two one~~"),
        ("a\r\n\r\nb c\r\n", "a\r\n\r\nc b\r\n"),
        ("", ""),
        ("* * *\n", "* * *\n"),
    ],
)  # fmt: skip
def test_markdown_keeps_its_structure(text: str, expected: str) -> None:
    assert translate(text, "a.md").decode() == expected


# ---- office documents


def paragraph(*runs: str) -> str:
    return "<w:p><w:pPr><w:jc/></w:pPr>{}</w:p>".format("".join(runs))


def run(text: str, formatting: str = "") -> str:
    properties = f"<w:rPr>{formatting}</w:rPr>" if formatting else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def body_of(data: bytes) -> str:
    text = get_part(data, "word/document.xml")
    return text[text.index("<w:body>") + 8 : text.index("</w:body>")]


BOLD = "<w:b/>"


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run("one two")], [run("two one")]),
        ([run("one "), run("two", BOLD), run(" three four")],
         [run("four three "), run("two", BOLD), run(" one")]),
        # What Word splits without a reason is one.
        ([run("on"), "<w:proofErr/>", run("e tw", '<w:lang w:val="en"/>'), run("o")], [run("two one")]),
        ([run("some longer text "), run("a", BOLD), run(" b", BOLD)],
         [run("b a", BOLD), run(" text longer some")]),
        ([run("see "), f"<w:hyperlink>{run('the page', '<w:u/>')}</w:hyperlink>"],
         [f"<w:hyperlink>{run('page the', '<w:u/>')}</w:hyperlink>", run(" see")]),
        ([run("one two"), "<w:r><w:br/></w:r>", run("three four")],
         [run("two one"), "<w:r><w:br/></w:r>", run("four three")]),
        ([run("one"), '<w:r><w:footnoteReference w:id="2"/></w:r>', run(" two")],
         ['<w:r><w:footnoteReference w:id="2"/></w:r>', run("two one")]),
        ([run("1 "), "<w:r><w:drawing/></w:r>"], [run("1 "), "<w:r><w:drawing/></w:r>"]),
        (["<w:sdt><w:sdtContent>", run("one two"), "</w:sdtContent></w:sdt>", run("three four")],
         ["<w:sdt><w:sdtContent>", run("two one"), "</w:sdtContent></w:sdt>", run("four three")]),
        ([run("&lt;a&gt; b")], [run("b &lt;a&gt;")]),
    ],
)  # fmt: skip
def test_paragraphs_of_word_documents_keep_their_formatting(runs: list[str], expected: list[str]) -> None:
    translated = translate(make_docx(paragraph(*runs)), "a.docx")
    assert body_of(translated) == paragraph(*expected).replace("> two", ">two")


def test_a_word_document_keeps_its_files_and_translates_headers_and_notes() -> None:
    document = make_docx(
        paragraph(run("one two")) + f"<w:tbl><w:tr><w:tc>{paragraph(run('a b'))}</w:tc></w:tr></w:tbl>",
        header1=paragraph(run("three four")),
        footnotes=f'<w:footnote w:id="2">{paragraph(run("five six"))}</w:footnote>',
        comments=paragraph(run("not this")),
    )
    translated = translate(document, "a.docx")
    before, after = unpack(document), unpack(translated)
    assert list(before) == list(after)
    assert "four three" in get_part(translated, "word/header1.xml")
    assert "six five" in get_part(translated, "word/footnotes.xml")
    assert "b a" in body_of(translated)
    for name in ("word/media/picture.png", "word/comments.xml", "[Content_Types].xml"):
        assert before[name] == after[name]


def test_text_boxes_in_word_documents_are_translated_once() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraph(run('a b'))}</w:txbxContent></w:pict></w:r>"
    document = read_document(make_docx(paragraph(run("one two"), box)), "a.docx")
    assert document.texts == ["one two", "a b"]
    assert "b a" in body_of(document.render([reverse_translation(text) for text in document.texts]))


def odt_body(data: bytes) -> str:
    text = get_part(data, "content.xml")
    return text[text.index("<office:text>") + 13 : text.index("</office:text>")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<text:h>one two</text:h><text:p/>", "<text:h>two one</text:h><text:p/>"),
        ('<text:p>one <text:span text:style-name="T1">two</text:span> three four</text:p>',
         '<text:p>four three <text:span text:style-name="T1">two</text:span> one</text:p>'),
        ("<text:p>one two<text:line-break/>three<text:s/>four</text:p>",
         "<text:p>two one<text:line-break/>four three</text:p>"),
        ('<text:p>a<text:s text:c="4"/>b c</text:p>', '<text:p>a<text:s text:c="4"/>c b</text:p>'),
        ("<text:p>one<text:note><text:note-body><text:p>a b</text:p></text:note-body></text:note> two"
         "</text:p>",
         "<text:p><text:note><text:note-body><text:p>b a</text:p></text:note-body></text:note>two one"
         "</text:p>"),
        ("<text:tracked-changes><text:p>a b</text:p></text:tracked-changes>",
         "<text:tracked-changes><text:p>a b</text:p></text:tracked-changes>"),
        ("<text:p><text:span>a b<text:tab/>c d</text:span></text:p>",
         "<text:p><text:span>b a</text:span><text:tab/><text:span>d c</text:span></text:p>"),
    ],
)  # fmt: skip
def test_paragraphs_of_opendocument_text_keep_their_formatting(body: str, expected: str) -> None:
    document = make_odt(body, "<text:p>x y</text:p>")
    translated = translate(document, "a.odt")
    assert odt_body(translated).replace("><text:p>two", ">two") == expected
    assert "y x" in get_part(translated, "styles.xml")
    assert next(iter(unpack(translated))) == "mimetype"
    assert translated[30:38] == b"mimetype", "stored first, for programs that look there"


# ---- all formats

SAMPLES = {
    "a.txt": b"one two\n",
    "a.html": b"<p>one <b>two</b></p>",
    "a.srt": CUES.encode(),
    "a.po": MESSAGES.encode(),
    "a.md": b"# one *two*\n",
    "a.docx": make_docx(paragraph(run("one "), run("two unsure", BOLD), run(" three four five"))),
    "a.odt": make_odt("<text:p>one <text:span>two</text:span></text:p>"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_texts_have_no_markup_and_a_document_can_be_read_again(name: str) -> None:
    document = read_document(SAMPLES[name], name)
    assert not any(re.search(r"[<>*]", text) for text in document.texts)
    again = read_document(keep(SAMPLES[name], name), name)
    assert again.texts == (document.texts if name != "a.po" else [])


def test_the_policy_decides_about_texts_of_low_confidence() -> None:
    text = "sure one\nunsure two\n"
    for below, expected in (
        ("keep", "one sure\ntwo unsure\n"),
        ("mark", "one sure\n[?] two unsure\n"),
        ("source", "one sure\nunsure two\n"),
        ("empty", "one sure\n\n"),
    ):
        assert translate(text, "a.txt", ConfidencePolicy(0.5, below)).decode() == expected
    document = make_docx(paragraph(run("very unsure "), run("two", BOLD)))
    kept = body_of(translate(document, "a.docx", ConfidencePolicy(0.5, "source")))
    assert kept == paragraph(run("very unsure "), run("two", BOLD))
    assert "[?] " in body_of(translate(document, "a.docx", ConfidencePolicy(0.5, "mark")))


def test_names_without_a_known_ending_are_refused_with_those_that_are() -> None:
    for name in ("a.pdf", "a", ".docx", "a.docx.exe"):
        with pytest.raises(DataError, match=r"its name must end in \.txt, \.html"):
            read_document(b"", name)
    assert set(DOCUMENT_SUFFIXES) >= {".txt", ".html", ".docx", ".odt", ".srt", ".po", ".md"}


def test_the_characters_to_translate_are_limited() -> None:
    with pytest.raises(DataError, match="has 7 characters to translate, but the maximum is 6: split it"):
        read_document(b"one two", "a.txt", DocumentLimits(max_characters=6))
    with pytest.raises(DataError, match="has 25 characters, but the maximum is 24"):
        read_document(b"<" * 25, "a.html", DocumentLimits(max_characters=6))


def test_text_that_is_not_utf8_is_named_by_its_line() -> None:
    with pytest.raises(DataError, match=r"a\.md:2: byte 0xb0 is not UTF-8: iconv"):
        read_document(b"a\n\xb0\xa1", "a.md")
