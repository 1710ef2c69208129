"""`manyheads translate FILE.docx`: documents on the command line."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manyheads.cli import app
from manyheads.documents.document import read_document
from support.office_files import make_docx, unpack
from support.scripted_translator import ScriptedTranslator
from support.untrained_model import save_untrained_model

PAGE = "<p>I <b>go</b> home.</p>\n<p>We read.</p>\n"
BODY = (
    "<w:p><w:r><w:t>I go home.</w:t></w:r></w:p>"
    "<w:p><w:r><w:t>We </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>read.</w:t></w:r></w:p>"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "page.html").write_text(PAGE)
    (folder / "report.docx").write_bytes(make_docx(BODY))
    (folder / "lines.txt").write_text("I go home.\n")
    return folder


def run(*arguments: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "manyheads", "translate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True)


def test_a_document_goes_to_stdout_as_bytes(model: Path, folder: Path) -> None:
    done = run(model, folder / "report.docx", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, b"")
    before, after = unpack((folder / "report.docx").read_bytes()), unpack(done.stdout)
    assert list(before) == list(after)
    assert before["word/media/picture.png"] == after["word/media/picture.png"]
    assert b"<w:b/>" in after["word/document.xml"]
    assert before["word/document.xml"] != after["word/document.xml"]


def test_several_documents_go_to_a_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyheads.loading.load", lambda *_, **__: ScriptedTranslator())
    call = ["translate", str(tmp_path), str(folder / "page.html"), str(folder / "report.docx"),
            "--out", str(tmp_path / "out")]  # fmt: skip
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "page.html").read_text() == "<p>home. <b>go</b> I</p>\n<p>read. We</p>\n"
    translated = (tmp_path / "out" / "report.docx").read_bytes()
    assert read_document(translated, "report.docx").texts == ["home. go I", "read. We"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["page.html", "report.docx"]
    again = CliRunner().invoke(app, call)
    assert again.exit_code != 0
    assert "exists already" in str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["page.html", "lines.txt"], 2, "lines.txt: is no document, but"),
        (["page.html", "--json"], 2, "--json is for lines of text, but"),
        (["page.html", "--workers", "2"], 2, "--workers is for lines of text, but"),
        (["page.html", "report.docx"], 2, "2 documents, but one output: give a folder for them with --out"),
        (["broken.docx"], 3, "broken.docx: is not a zip archive\n"),
        (["missing.odt"], 3, "missing.odt: No such file or directory"),
    ],
)
def test_wrong_calls_are_one_line(
    model: Path, folder: Path, arguments: list[str], code: int, message: str
) -> None:
    (folder / "broken.docx").write_bytes(b"no zip")
    done = run(model, *(folder / name if "." in name else name for name in arguments))
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""
