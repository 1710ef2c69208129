"""Tables printed on a terminal."""

import pytest

from manyheads.paper.report import ReportTable


def test_no_digit_is_cut_off_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = [f"a long heading {number}" for number in range(12)]
    ReportTable("Wide", columns, [[123_456_000 + number for number in range(12)]], ["A note."]).show()
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(heading in shown for heading in columns)
    assert all(f"123,456,{number:03}" in shown for number in range(12))
    assert "A note." in shown
