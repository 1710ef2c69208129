"""CSV as spreadsheets write it, and XLSX, are read like TSV."""

import zipfile
from pathlib import Path

import pytest

from manyheads.config import CorpusConfig, InputConfig
from manyheads.errors import DataError
from manyheads.text import invalid
from manyheads.text.corpus import SentencePair, read_pairs
from manyheads.text.invalid import MAX_LINE_BYTES, InvalidRecord
from manyheads.text.spreadsheets import find_delimiter, get_column

ENGLISH_KOREAN = CorpusConfig(source="en", target="ko")
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def read(path: Path, fields: tuple[str, ...] = ()) -> list[SentencePair | InvalidRecord]:
    return list(read_pairs(InputConfig(files=(str(path),), fields=fields), ENGLISH_KOREAN))


def test_quotes_commas_and_lines_inside_cells_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = '\ufeffen,ko\r\n"He said ""hi"", and left.",그는 갔다.\r\n"two\r\nlines",두 줄\r\n,\r\nlast,끝'
    path.write_text(text, encoding="utf-8", newline="")
    assert read(path, ("en", "ko")) == [
        SentencePair('He said "hi", and left.', "그는 갔다.", 2),
        SentencePair("two lines", "두 줄", 3),
        SentencePair("last", "끝", 6),
    ]


@pytest.mark.parametrize(
    ("line", "delimiter"),
    [
        ("a,b", ","),
        ("a;b", ";"),
        ("a\tb", "\t"),
        ('"x;y;z",b', ","),
        ("a,b\nc;c,d", ","),
        ("a;b,c\nd;e", ";"),
        ("", ","),
    ],
)
def test_the_delimiter_is_found_outside_of_quotes(line: str, delimiter: str) -> None:
    assert find_delimiter(line) == delimiter


def test_semicolons_separate_where_the_decimal_point_is_a_comma(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,5 liters;1,5 리터\n", encoding="utf-8")
    assert read(tmp_path / "a.csv") == [SentencePair("1,5 liters", "1,5 리터", 1)]


def test_wrong_rows_of_a_csv_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("good,좋다\nalone\n".encode() + b"caf\xe9,x\n" + b"empty,\n")
    records = read(path)
    assert records[0] == SentencePair("good", "좋다", 1)
    assert [(record.line, record.reason) for record in records[1:]] == [
        (2, invalid.WRONG_COLUMNS),
        (3, invalid.INVALID_UTF8),
        (4, invalid.EMPTY_TARGET),
    ]
    assert records[2].detail == "byte 0xe9: save it as UTF-8"  # type: ignore[union-attr]


@pytest.mark.parametrize("header", ["en;ko", "note;KO; en ", "sep=;\r\nid;en;ko"])
def test_a_first_row_with_both_languages_names_their_columns(header: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    names = [name.strip().lower() for name in header.split("\n")[-1].split(";")]
    cells = {"en": "one, two", "ko": "하나, 둘"}
    row = ";".join(cells.get(name, "x") for name in names)
    path.write_text(f"\ufeff{header}\r\n{row}\r\n", encoding="utf-8", newline="")
    (pair,) = read(path)
    assert (pair.source, pair.target) == ("one, two", "하나, 둘")  # type: ignore[union-attr]


def test_a_later_row_with_both_codes_is_a_pair(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("one,하나\nen,ko\n", encoding="utf-8")
    assert read(tmp_path / "a.csv") == [SentencePair("one", "하나", 1), SentencePair("en", "ko", 2)]


def test_a_quote_that_is_never_closed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"open,c\n' + "x,y\n" * 300_000, encoding="utf-8")
    records = read(tmp_path / "a.csv")
    assert records[0] == SentencePair("a", "b", 1)
    assert (records[1].line, records[1].reason) == (2, invalid.LINE_TOO_LONG)


@pytest.mark.parametrize("num_before", [1, 30])  # inside and behind the lines that show the delimiter
def test_a_line_that_is_too_long_is_the_only_one_lost(num_before: int, tmp_path: Path) -> None:
    sides = [(f"word {n}", f"낱말 {n}") for n in range(num_before + 1)]
    rows = [",".join(own) for own in sides]
    lines = ["en,ko", *rows[:num_before], "x" * MAX_LINE_BYTES, *rows[num_before:]]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    records = read(tmp_path / "a.csv", ("en", "ko"))
    place = num_before + 2
    numbers = [*range(2, place), place + 1]
    pairs = [SentencePair(*own, number) for own, number in zip(sides, numbers, strict=True)]
    long_line = InvalidRecord(str(tmp_path / "a.csv"), place, invalid.LINE_TOO_LONG)
    assert records == [*pairs[:num_before], long_line, *pairs[num_before:]]


def test_a_line_that_is_too_long_inside_a_cell_is_reported_once(tmp_path: Path) -> None:
    text = f'a,b\n"open\n{"x" * MAX_LINE_BYTES}\nclosed",c\nd,e\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    records = read(tmp_path / "a.csv")
    long_line = InvalidRecord(str(tmp_path / "a.csv"), 3, invalid.LINE_TOO_LONG)
    assert records == [SentencePair("a", "b", 1), long_line, SentencePair("d", "e", 5)]


def write_xlsx(path: Path, rows: str, strings: str | None = None) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets><sheet name="A" r:id="r7"/></sheets>'
            "</workbook>",
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            '<Relationship Id="r7" Target="worksheets/sheet1.xml"/></Relationships>',
        )
        sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        if strings is not None:
            archive.writestr("xl/sharedStrings.xml", f'<sst xmlns="{MAIN}">{strings}</sst>')


def test_cells_of_a_sheet_are_read_by_their_columns(tmp_path: Path) -> None:
    strings = "<si><t>en</t></si><si><t>ko</t></si><si><r><t>go </t></r><r><t>home</t></r></si>"
    rows = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>'
        '<row r="2"><c r="A2" t="s"><v>2</v></c><c r="C2" t="inlineStr"><is><t>집에\n가</t></is></c></row>'
        '<row r="3"/>'
        '<row r="5"><c r="A5"><v>12.5</v></c><c r="C5" t="str"><v>십이</v></c></row>'
        '<row r="6"><c r="A6" t="s"><v>2</v></c></row>'
    )
    write_xlsx(tmp_path / "a.xlsx", rows, strings)
    assert read(tmp_path / "a.xlsx", ("en", "ko")) == [
        SentencePair("go home", "집에 가", 2),
        SentencePair("12.5", "십이", 5),
        InvalidRecord(str(tmp_path / "a.xlsx"), 6, invalid.WRONG_COLUMNS, "1, but column 3 is needed"),
    ]


@pytest.mark.parametrize(("reference", "column"), [("A1", 0), ("Z9", 25), ("AB12", 27), (None, 5)])
def test_columns_are_numbered_from_their_letters(reference: str | None, column: int) -> None:
    assert get_column(reference, 5) == column


def test_what_is_no_spreadsheet_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"no archive")
    (record,) = read(tmp_path / "a.xlsx")
    assert record.reason == invalid.BROKEN_FILE
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as archive:
        archive.writestr("other", "x")
    with pytest.raises(DataError, match=r"b.xlsx: not a spreadsheet of XLSX: has no sheet"):
        read(tmp_path / "b.xlsx")
    write_xlsx(tmp_path / "c.xlsx", '<row r="1"><c r="A1" t="s"><v>9</v></c></row>', "<si><t>a</t></si>")
    (record,) = read(tmp_path / "c.xlsx")
    assert record.reason == invalid.BROKEN_FILE
    assert "string 9" in record.detail
    with pytest.raises(DataError, match=r"d.xlsx: No such file"):
        read(tmp_path / "d.xlsx")


ONE_ROW = '<row r="{row}"><c r="A1" t="s"><v>{string}</v></c><c r="B1" t="s"><v>0</v></c></row>'


@pytest.mark.parametrize(
    ("row", "string", "detail"),
    [
        ("x", "0", "a row with the number 'x'"),
        ("-1", "0", "a row with the number '-1'"),
        ("9" * 5000, "0", "a row with the number '99999999999999999999'"),
        ("1", "-1", "string -1 is not in the file"),
        ("1", "x", "string x is not in the file"),
    ],
)
def test_wrong_numbers_in_a_sheet_are_reported(row: str, string: str, detail: str, tmp_path: Path) -> None:
    write_xlsx(tmp_path / "a.xlsx", ONE_ROW.format(row=row, string=string), "<si><t>a</t></si>")
    (record,) = read(tmp_path / "a.xlsx")
    assert (record.reason, record.detail) == (invalid.BROKEN_FILE, detail)


def test_a_sheet_that_the_archive_lacks_is_reported(tmp_path: Path) -> None:
    write_xlsx(tmp_path / "whole.xlsx", ONE_ROW.format(row=1, string=0), "<si><t>a</t></si>")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as part:
        for name in whole.namelist():
            if name != "xl/worksheets/sheet1.xml":
                part.writestr(name, whole.read(name))
    with pytest.raises(DataError, match=r"a.xlsx: its first sheet, xl/worksheets/sheet1.xml, is not in"):
        read(tmp_path / "a.xlsx")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_an_archive_is_reported(compression: int, tmp_path: Path) -> None:
    write_xlsx(tmp_path / "whole.xlsx", ONE_ROW.format(row=1, string=0), "<si><t>a</t></si>")
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        sheet = archive.getinfo("xl/worksheets/sheet1.xml")
        start = sheet.header_offset + 30 + len(sheet.filename)
    data = bytearray((tmp_path / "a.xlsx").read_bytes())
    data[start + 4 : start + 40] = b"\xff" * 36  # behind the sizes that LZMA begins with
    (tmp_path / "a.xlsx").write_bytes(data)
    assert [record.reason for record in read(tmp_path / "a.xlsx")] == [invalid.BROKEN_FILE]
