"""Damaged and hostile documents are our own errors, in little memory and time."""

import io
import random
import struct
import time
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.documents.document import read_document
from manyheads.documents.limits import DocumentLimits
from manyheads.documents.suffixes import DOCUMENT_SUFFIXES
from manyheads.errors import DataError
from manyheads.translation import Translation
from support.office_files import make_docx, make_odt, pack, unpack

TEXT = "<w:p><w:r><w:t>one two</w:t></w:r></w:p>"
ODT_TEXT = "<text:p>one <text:span>two</text:span></text:p>"
SMALL = DocumentLimits(max_unpacked_bytes=10**6, max_archive_files=100)


def change_file(data: bytes, name: str, content: str | bytes) -> bytes:
    return pack({**unpack(data), name: content})


def render_copy(data: bytes, name: str) -> bytes:
    """Return a document with its own texts as translations."""
    document = read_document(data, name)
    return document.render([Translation(text, text) for text in document.texts])


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = change_file(make_docx(TEXT), "word/document.xml", b"<a>" + b" " * 10**7 + b"</a>")
    assert len(bomb) < 20_000
    with pytest.raises(DataError, match=r"unpacks to 10,00.* bytes, but the maximum is 1,000,000"):
        read_document(bomb, "a.docx", SMALL)


def test_a_size_that_lies_is_damage() -> None:
    """The directory of the archive says 100 bytes; unpacking stops there."""
    bomb = bytearray(change_file(make_docx(TEXT), "word/document.xml", b"<a>" + b" " * 10**7 + b"</a>"))
    position = bomb.rindex(b"word/document.xml") - 46 + 24
    bomb[position : position + 4] = struct.pack("<I", 100)
    with pytest.raises(DataError, match=r"word/document.xml is damaged"):
        read_document(bytes(bomb), "a.docx", SMALL)


def test_many_files_two_of_a_name_and_names_outside_the_folder_are_refused() -> None:
    with pytest.raises(DataError, match="has 201 files, but the maximum is 100"):
        read_document(pack({f"{n}": "" for n in range(201)}), "a.odt", SMALL)
    for name in ("../evil", "/etc/passwd", "a/../../b", "C:/evil", "..\\evil"):
        with pytest.raises(DataError, match="has a file outside of its folder"):
            read_document(change_file(make_odt(ODT_TEXT), name, "x"), "a.odt")
    data = io.BytesIO(make_odt(ODT_TEXT))
    with zipfile.ZipFile(data, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("content.xml", "<x/>")
    with pytest.raises(DataError, match="two files of the same name"):
        read_document(data.getvalue(), "a.odt")


BILLION_LAUGHS = "<!DOCTYPE a [{}]>".format(
    '<!ENTITY e0 "ha">' + "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
)


@pytest.mark.parametrize(
    "prolog",
    [
        BILLION_LAUGHS,
        '<!DOCTYPE a SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x"> %p;]>',
        f"<!--{' ' * 5000}--><!DOCTYPE a [<!ENTITY e 'x'>]>",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused(prolog: str, encoding: str) -> None:
    xml = f"<?xml version='1.0' encoding='{encoding}'?>{prolog}<a>&e12;&e;</a>".encode(encoding)
    start = time.process_time()
    with pytest.raises(DataError, match=r"document type declaration|not valid XML"):
        read_document(change_file(make_odt(ODT_TEXT), "content.xml", xml), "a.odt")
    assert time.process_time() - start < 2


@pytest.mark.parametrize("suffix", [".docx", ".odt"])
def test_deeply_nested_markup_is_read_or_refused_without_a_crash(suffix: str) -> None:
    depth = 5000
    if suffix == ".odt":
        data = make_odt("<text:p>" + "<text:span>" * depth + "a b" + "</text:span>" * depth + "</text:p>")
    else:
        data = make_docx("<w:p>" + "<w:ins>" * depth + TEXT + "</w:ins>" * depth + "</w:p>")
    with pytest.raises(DataError, match="is not valid XML"):
        read_document(data, f"a{suffix}")
    depth = 200
    data = make_odt("<text:p>" + "<text:span>" * depth + "a b" + "</text:span>" * depth + "</text:p>")
    document = read_document(data, "a.odt")
    assert document.render([Translation(text, text) for text in document.texts])


def test_an_encrypted_archive_is_refused() -> None:
    data = bytearray(make_odt(ODT_TEXT))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    with pytest.raises(DataError, match="is encrypted"):
        read_document(bytes(data), "a.odt")


@pytest.mark.parametrize("suffix", [".docx", ".odt"])
def test_flipped_bits_and_cut_files_are_our_own_errors_or_harmless(suffix: str) -> None:
    whole = make_docx(TEXT * 5) if suffix == ".docx" else make_odt(ODT_TEXT * 5)
    rng = random.Random(1)
    num_refused = 0
    for _ in range(400):
        data = bytearray(whole)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            document = read_document(bytes(data), f"a{suffix}", SMALL)
            document.render([Translation(text, text) for text in document.texts])
        except DataError:
            num_refused += 1
    assert num_refused > 100


@given(
    st.lists(st.sampled_from([*"<>[]()*_`~\\|#->!&\"'\n\r\t =:{}", "a b", "1. ", "    ", "](x)", "<b>", "```",
                              "|-|-|\n", "msgid", "00:00:01,000 --> 00:00:02,000\n", "\x00", "\u2028"]),
             max_size=30),
    st.sampled_from([suffix for suffix in DOCUMENT_SUFFIXES if suffix not in (".docx", ".odt")]),
)  # fmt: skip
def test_any_text_is_rendered_or_refused(pieces: list[str], suffix: str) -> None:
    try:
        document = read_document("".join(pieces).encode(), f"a{suffix}")
    except DataError:
        return
    assert isinstance(document.render([Translation(text, text[::-1]) for text in document.texts]), bytes)


PIECES = [
    "*a ",
    "[a](",
    "`a",
    "<a ",
    "a\n",
    "> ",
    "- a\n",
    "|a",
    "\\",
    "![",
    "&a;",
    "**a ** ",
    "_a_ ",
    "~~",
    "[a]",
]


@pytest.mark.parametrize("piece", PIECES)
def test_repeated_markdown_takes_bounded_time(piece: str) -> None:
    start = time.process_time()
    render_copy((piece * (20_000 // len(piece))).encode(), "a.md")
    assert time.process_time() - start < 3


def test_control_characters_of_a_translation_do_not_break_xml() -> None:
    for name, data in (("a.docx", make_docx(TEXT)), ("a.odt", make_odt(ODT_TEXT))):
        document = read_document(data, name)
        rendered = document.render([Translation(text, "a\x00\x0b\ud800\ufffeb") for text in document.texts])
        assert read_document(rendered, name).texts == ["ab"]


LONG = "x" * 100_000
FORMATTING = "<w:rPr>{}</w:rPr>".format("<w:b/>" * 20_000)
REPEATING = {
    "link.md": b"[" + b"a\\\n" * 300 + f"a](http://{LONG})".encode(),
    "tag.md": f'<b title="{LONG}">'.encode() + b"a<br>" * 300 + b"a</b>",
    "link.docx": make_docx(
        f'<w:p><w:hyperlink w:anchor="{LONG}"><w:r><w:t>a</w:t>{"<w:br/><w:t>a</w:t>" * 300}</w:r>'
        "</w:hyperlink></w:p>"
    ),
    "formatting.docx": make_docx(
        f'<w:p><w:r><w:rPr><w:lang w:val="{LONG}"/></w:rPr><w:t>a</w:t></w:r>'
        + "<w:r><w:rPr><w:i/></w:rPr><w:br/></w:r><w:r><w:t>a</w:t></w:r>" * 300
        + "</w:p>"
    ),
    "span.odt": make_odt(
        f'<text:p><text:span text:style-name="{LONG}">{"a<text:line-break/>" * 300}</text:span></text:p>'
    ),
}


@pytest.mark.parametrize("name", REPEATING)
def test_markup_that_goes_on_behind_line_breaks_does_not_multiply_a_document(name: str) -> None:
    with pytest.raises(DataError, match="would repeat more than 16,777,216 characters of markup"):
        render_copy(REPEATING[name], name)


def test_breaks_of_a_run_share_its_formatting() -> None:
    run = f"<w:r>{FORMATTING}<w:t>a</w:t>{'<w:br/><w:t>a</w:t>' * 1000}</w:r>"
    rendered = unpack(render_copy(make_docx(f"<w:p>{run}</w:p>"), "a.docx"))
    assert rendered["word/document.xml"].count(b"<w:b/>") == 20_000
    assert rendered["word/document.xml"].count(b"<w:br/>") == 1000


LINEAR = {
    "cue.srt": b"1\n00:00:01,000 --> 00:00:02,500\n" + b"a b\n" * 40_000,
    "tags.srt": b"1\n00:00:01,000 --> 00:00:02,500\n" + b"<" * 100_000,
    "braces.srt": b"1\n00:00:01,000 --> 00:00:02,500\na" + b"{\\" * 50_000,
    "tags.md": b"a" + b"<b>" * 10_000 + b"</i>" * 10_000,
    "bookmarks.odt": make_odt(f"<text:p>{'a<text:bookmark/>' * 20_000}</text:p>"),
    "words.html": b"<p>" + b"<b>a</b> " * 10_000,
}


@pytest.mark.parametrize("name", LINEAR)
def test_long_paragraphs_take_bounded_time(name: str) -> None:
    start = time.process_time()
    render_copy(LINEAR[name], name)
    assert time.process_time() - start < 3


def test_a_number_of_plural_forms_with_thousands_of_digits_is_no_error() -> None:
    header = b'msgid ""\nmsgstr "Plural-Forms: nplurals=' + b"9" * 5000 + b'\\n"\n\n'
    plural = b'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'
    document = read_document(header + plural, "a.po")
    assert document.render([Translation("a", "c"), Translation("b", "d")]).count(b"msgstr[") == 6
