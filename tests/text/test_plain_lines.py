"""Lines of plain text: none is lost, and those that are not UTF-8 are named, but not thousands of them."""

import sys
import warnings
from pathlib import Path

import pytest

from manyheads.cli import main
from manyheads.errors import DataError
from manyheads.text.plain_lines import MAX_WARNINGS, read_plain_lines
from support.untrained_model import save_untrained_model


def test_many_lines_that_are_not_utf8_are_few_warnings(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"good\n" + b"bad \xff\n" * 1000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = list(read_plain_lines(path))
    assert lines == ["good", *["bad \ufffd"] * 1000]
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == MAX_WARNINGS
    assert "line 2 is not UTF-8" in messages[0]
    assert messages[-1].endswith("further lines are not named")


BINARY = {
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "JPEG": b"\xff\xd8\xff\xe0\0\x10JFIF\0",
    "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n",
    "ZIP": b"PK\x03\x04\x14\0\0\0\x08\0",
    "NUL bytes": bytes(range(256)) * 9,
}


@pytest.mark.parametrize("file_type", BINARY)
def test_a_binary_file_is_refused(file_type: str, tmp_path: Path) -> None:
    path = tmp_path / "photo"
    path.write_bytes(BINARY[file_type])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=rf"photo: is binary, not text \({file_type}\): give UTF-8 text"):
            list(read_plain_lines(path))


def test_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.ko"
    path.write_bytes("나는 집에 간다.\n".encode("utf-16"))
    with pytest.raises(DataError, match="starts with the byte order mark of UTF-16"):
        list(read_plain_lines(path))


@pytest.mark.parametrize(
    ("content", "num_warnings"),
    [
        (b"", 0),
        (b"GIF89a and PK are text.\n", 0),
        (b"I go \xff home.\n", 1),
        (b"a\0b\nwe \xfe\n", 1),
        ("나는 집에 간다.\n".encode("cp949") * 20, 10),
        (("나는 집에 간다.\n" * 2000 + "\0\1\2\n").encode(), 0),
    ],
)
def test_text_with_a_few_wrong_bytes_is_read(content: bytes, num_warnings: int, tmp_path: Path) -> None:
    path = tmp_path / "a.en"
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(read_plain_lines(path))) == content.count(b"\n")
    assert len(caught) == num_warnings


def test_commands_refuse_a_binary_file_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    save_untrained_model(tmp_path / "model")
    Path("photo.png").write_bytes(BINARY["PNG"] + bytes(range(256)) * 9)
    for verb, num_files in (("translate", 1), ("score", 2), ("evaluate", 2)):
        monkeypatch.setattr(sys, "argv", ["manyheads", verb, "model", *["photo.png"] * num_files])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert (end.value.code, out) == (3, "")
        assert err.startswith("manyheads: photo.png: is binary, not text (PNG): ")
        assert err.count("\n") == 1
