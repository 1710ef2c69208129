"""Lines of plain text: none is lost, and those that are not UTF-8 are named, but not thousands of them."""

import warnings
from pathlib import Path

from manyheads.text.plain_lines import MAX_WARNINGS, read_plain_lines


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
