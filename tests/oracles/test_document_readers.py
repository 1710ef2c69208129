"""Documents that we write are read by other libraries: python-docx, odfdo, pysubs2 and polib."""

import io
from pathlib import Path

import polib
import pytest

from manyheads.documents.document import read_document
from manyheads.translation import Translation

pytestmark = pytest.mark.heavy


def translate(data: bytes, name: str) -> bytes:
    document = read_document(data, name)
    return document.render([Translation(text, " ".join(reversed(text.split()))) for text in document.texts])


def test_python_docx_reads_what_it_wrote_with_formatting_tables_and_headers() -> None:
    docx = pytest.importorskip("docx", reason="installed by `make test-all`")
    source = docx.Document()
    source.add_heading("one two", 1)
    paragraph = source.add_paragraph("three ")
    paragraph.add_run("four").bold = True
    paragraph.add_run(" five six")
    source.add_paragraph("a b", style="List Bullet")
    source.add_table(1, 2).cell(0, 1).text = "c d"
    source.sections[0].header.paragraphs[0].text = "e f"
    data = io.BytesIO()
    source.save(data)
    target = docx.Document(io.BytesIO(translate(data.getvalue(), "a.docx")))
    assert [paragraph.text for paragraph in target.paragraphs] == ["two one", "six five four three", "b a"]
    assert [paragraph.style.name for paragraph in target.paragraphs] == ["Heading 1", "Normal", "List Bullet"]
    assert [run.text for run in target.paragraphs[1].runs if run.bold] == ["four"]
    assert target.tables[0].cell(0, 1).text == "d c"
    assert target.sections[0].header.paragraphs[0].text == "f e"


def test_odfdo_reads_what_it_wrote(tmp_path: Path) -> None:
    odfdo = pytest.importorskip("odfdo", reason="installed by `make test-all`")
    source = odfdo.Document("text")
    source.body.append(odfdo.Header(1, "one two"))
    paragraph = odfdo.Paragraph("three four five")
    paragraph.set_span("bold", regex="four")
    source.body.append(paragraph)
    source.save(tmp_path / "a.odt")
    (tmp_path / "b.odt").write_bytes(translate((tmp_path / "a.odt").read_bytes(), "a.odt"))
    body = odfdo.Document(tmp_path / "b.odt").body
    assert body.get_headers()[0].text_recursive == "two one"
    paragraph = body.get_paragraphs()[-1]
    assert paragraph.text_recursive == "five four three"
    assert [span.text for span in paragraph.get_spans()] == ["four"]


def test_pysubs2_reads_the_times_and_texts() -> None:
    pysubs2 = pytest.importorskip("pysubs2", reason="installed by `make test-all`")
    text = "1\n00:00:01,000 --> 00:00:02,500\none two\n\n2\n00:01:00,000 --> 00:01:02,000\n<i>a b</i>\nc\n"
    before, after = (
        pysubs2.SSAFile.from_string(own, format_="srt")
        for own in (text, translate(text.encode(), "a.srt").decode())
    )
    assert [(cue.start, cue.end) for cue in before] == [(cue.start, cue.end) for cue in after]
    assert [cue.plaintext.split() for cue in after] == [["two", "one"], ["c", "b", "a"]]


def test_polib_reads_the_messages(tmp_path: Path) -> None:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    text = header + '#: x\nmsgid "a \\"b\\"\\n"\nmsgstr ""\n'
    (tmp_path / "a.po").write_bytes(translate(text.encode(), "a.po"))
    (entry,) = polib.pofile(str(tmp_path / "a.po"))
    assert (entry.msgid, entry.msgstr, entry.occurrences) == ('a "b"\n', '"b" a\n', [("x", "")])
