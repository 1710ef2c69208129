"""Every format becomes sentence pairs, and what is not a pair is reported by file, line and reason."""

import gzip
import lzma
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import CorpusConfig, InputConfig
from manyheads.text import invalid
from manyheads.text.corpus import SentencePair, read_pairs
from manyheads.text.invalid import InvalidRecord

ENGLISH_KOREAN = CorpusConfig(source="en", target="ko")


WRITERS: dict[str, Callable[[Path, bytes], object]] = {
    "": Path.write_bytes,
    ".gz": lambda path, data: path.write_bytes(gzip.compress(data)),
    ".xz": lambda path, data: path.write_bytes(lzma.compress(data)),
    ".zst": lambda path, data: path.write_bytes(zstd.compress(data)),
}


def read_plain(folder: Path, source: bytes, target: bytes) -> list[SentencePair | InvalidRecord]:
    (folder / "a.en").write_bytes(source)
    (folder / "a.ko").write_bytes(target)
    return list(read_pairs(InputConfig(files=(f"{folder}/a.en", f"{folder}/a.ko")), ENGLISH_KOREAN))


def read_file(path: Path, text: str | bytes, **settings: object) -> list[SentencePair | InvalidRecord]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_pairs(InputConfig(files=(str(path),), **settings), ENGLISH_KOREAN))


def get_pairs(records: list[SentencePair | InvalidRecord]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in records if isinstance(pair, SentencePair)]


@pytest.mark.parametrize("suffix", WRITERS)
def test_plain_files_are_read_in_every_compression(tmp_path: Path, suffix: str) -> None:
    WRITERS[suffix](tmp_path / f"a.en{suffix}", b"I go home.\nGood\n")
    WRITERS[suffix](tmp_path / f"a.ko{suffix}", "나는 집에 간다.\n좋다\n".encode())
    records = list(
        read_pairs(
            InputConfig(files=(f"{tmp_path}/a.en{suffix}", f"{tmp_path}/a.ko{suffix}")), ENGLISH_KOREAN
        )
    )
    assert records == [SentencePair("I go home.", "나는 집에 간다.", 1), SentencePair("Good", "좋다", 2)]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_truncated_file_gives_the_pairs_before_the_break_and_reports_it(
    tmp_path: Path, suffix: str, side: int
) -> None:
    lines = b"".join(b"line %d of many, %x\n" % (i, hash((i, 5)) & 0xFFFFFFFF) for i in range(40_000))
    names = [f"{tmp_path}/a.en", f"{tmp_path}/a.ko"]
    names[side] += suffix
    for name in names:
        Path(name).write_bytes(lines)
    WRITERS[suffix](Path(names[side]), lines)
    compressed = Path(names[side]).read_bytes()
    Path(names[side]).write_bytes(compressed[: len(compressed) // 2])
    records = list(read_pairs(InputConfig(files=tuple(names)), ENGLISH_KOREAN))
    pairs = [record for record in records if isinstance(record, SentencePair)]
    broken, *rest = records[len(pairs) :]
    assert isinstance(broken, InvalidRecord)
    assert (broken.file, broken.line, broken.reason) == (names[side], len(pairs) + 1, invalid.BROKEN_FILE)
    assert len(pairs) > 10_000 or suffix == ".zst"  # zstd's blocks are large
    assert get_pairs(pairs) == [(line, line) for line in lines.decode().split("\n")[: len(pairs)]]
    facing = [
        (record.file, record.line, record.reason) for record in rest if isinstance(record, InvalidRecord)
    ]
    lost = range(len(pairs) + 1, 40_001)
    assert facing == [(names[1 - side], line, invalid.NO_COUNTERPART) for line in lost]


def test_garbage_after_a_compressed_file_loses_nothing_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"one\ntwo\n") + b"garbage")
    (tmp_path / "a.ko").write_text("하나\n둘\n", encoding="utf-8")
    records = list(read_pairs(InputConfig(files=(f"{tmp_path}/a.en.gz", f"{tmp_path}/a.ko")), ENGLISH_KOREAN))
    assert get_pairs(records) == [("one", "하나"), ("two", "둘")]
    assert [record.reason for record in records if isinstance(record, InvalidRecord)] == [invalid.BROKEN_FILE]


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = "one\u2028still one\x85still\u2029one\x0b\x0c\x1c\x1d\x1eone"
    records = read_plain(tmp_path, f"{odd}\ntwo\n".encode(), "하나\n둘\n".encode())
    assert [type(record) for record in records] == [InvalidRecord, SentencePair]
    assert records[1] == SentencePair("two", "둘", 2)


def test_windows_line_ends_and_a_leading_byte_order_mark_are_not_text(tmp_path: Path) -> None:
    records = read_plain(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfeins\r\nzwei\r")
    assert get_pairs(records) == [("one", "eins"), ("two", "zwei")]


def test_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(mh.DataError, match=r"a\.en: starts with the byte order mark of UTF-16.*iconv"):
        read_plain(tmp_path, "one\n".encode("utf-16"), b"eins\n")


@pytest.mark.parametrize(
    ("source", "target", "file", "reason", "detail"),
    [
        (b"bad \xff byte", b"x", "a.en", "invalid UTF-8", "byte 5 is 0xff"),
        (b"x", b"cut \xed\x95", "a.ko", "invalid UTF-8", "byte 5 is 0xed"),
        (b"a\x00b", b"x", "a.en", "NUL", "U+0000 at character 2"),
        (b"x", b"a\xef\xbb\xbfb", "a.ko", "byte order mark inside a line", "U+FEFF at character 2"),
        (b"a\rb", b"x", "a.en", "carriage return inside a line", "U+000D at character 2"),
        ("a\u2028b".encode(), b"x", "a.en", "line separator inside a line", "U+2028 at character 2"),
        ("a\u2029b".encode(), b"x", "a.en", "line separator inside a line", "U+2029 at character 2"),
        ("a\x85b".encode(), b"x", "a.en", "line separator inside a line", "U+0085 at character 2"),
        (b"a\x07b", b"x", "a.en", "control character", "U+0007 at character 2"),
        (b"a\x7fb", b"x", "a.en", "control character", "U+007F at character 2"),
        ("a\x9fb".encode(), b"x", "a.en", "control character", "U+009F at character 2"),
        ("a\ufffdb".encode(), b"x", "a.en", "replacement character", "U+FFFD at character 2"),
        (b"", b"x", "a.en", "empty source", ""),
        (b"x", b"", "a.ko", "empty target", ""),
        (b"x", b" \t\xc2\xa0", "a.ko", "empty target", ""),
        (b"", b"", "a.en", "both sides empty", ""),
        (b"a" + "\u0301".encode() * 501, b"x", "a.en", "run of combining marks", "more than 500 in a row"),
        (b"y" * 1_000_000, b"x", "a.en", "line of a megabyte or more", ""),
    ],
)
def test_invalid_text_is_reported_and_its_neighbors_are_read(
    tmp_path: Path, source: bytes, target: bytes, file: str, reason: str, detail: str
) -> None:
    records = read_plain(tmp_path, b"one\n" + source + b"\nlast\n", b"eins\n" + target + b"\nletzte\n")
    assert records == [
        SentencePair("one", "eins", 1),
        InvalidRecord(f"{tmp_path}/{file}", 2, reason, detail),
        SentencePair("last", "letzte", 3),
    ]


def test_valid_characters_are_read_unchanged(tmp_path: Path) -> None:
    line = "tab\there, NBSP\u00a0, 한글, e\u0301, \u200d👩‍👩‍👧, \u202bעברית\u202c, 𠀀"
    assert get_pairs(read_plain(tmp_path, line.encode(), line.encode())) == [(line, line)]


@pytest.mark.parametrize("longer", [0, 1])
def test_every_line_without_a_counterpart_is_reported(tmp_path: Path, longer: int) -> None:
    sides = [b"1\n2\n", b"1\n2\n3\n4\n5"]
    source, target = sides[::-1] if longer == 0 else sides
    records = read_plain(tmp_path, source, target)
    names = [f"{tmp_path}/a.en", f"{tmp_path}/a.ko"]
    detail = f"{names[1 - longer]} has 2 lines, {names[longer]} 5"
    assert records[2:] == [
        InvalidRecord(names[longer], line, invalid.NO_COUNTERPART, detail) for line in (3, 4, 5)
    ]


def test_memory_does_not_grow_with_the_file_or_a_line(tmp_path: Path) -> None:
    for name in ("a.en", "a.ko"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"x" * 30_000_000 + b"\n")
            file.writelines(b"a line of the usual length, number %d\n" % i for i in range(100_000))
    files = (f"{tmp_path}/a.en", f"{tmp_path}/a.ko")
    tracemalloc.start()
    count = sum(1 for _ in read_pairs(InputConfig(files=files), ENGLISH_KOREAN))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 100_001
    assert peak < 12_000_000


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=6))
def test_any_bytes_give_one_record_per_line(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [(source.replace(b"\n", b""), target.replace(b"\n", b"")) for source, target in pairs]
    rows = [(source if source[:1] != b"\xff" else b"x", target) for source, target in rows]
    source, target = (b"".join(row[side] + b"\n" for row in rows) for side in (0, 1))
    if any(start in (b"\xff\xfe", b"\xfe\xff") for start in (source[:2], target[:2])):
        return
    records = read_plain(folder, source, target)
    assert [record.line for record in records] == list(range(1, len(rows) + 1))


# ---- records


def test_tsv_columns_can_be_numbers(tmp_path: Path) -> None:
    text = "1\tI go.\tx\t나는 간다.\n2\tshort\n"
    records = read_file(tmp_path / "a.tsv", text, fields=("2", "4"))
    assert records[0] == SentencePair("I go.", "나는 간다.", 1)
    assert records[1] == InvalidRecord(f"{tmp_path}/a.tsv", 2, "too few columns", "2, but column 4 is needed")
    assert get_pairs(read_file(tmp_path / "a.tsv", "a\tb\n")) == [("a", "b")]


def test_tsv_columns_can_be_names(tmp_path: Path) -> None:
    text = "id\tko\ten\n1\t집\thome\n"
    assert read_file(tmp_path / "a.tsv", text, fields=("en", "ko")) == [SentencePair("home", "집", 2)]
    with pytest.raises(
        mh.DataError, match=r"a\.tsv:1: no column named 'de'; the first line has 'id, ko, en'"
    ):
        read_file(tmp_path / "a.tsv", text, fields=("de", "ko"))


def test_jsonl_keys_can_be_nested(tmp_path: Path) -> None:
    text = '{"en": "home", "ko": "집"}\n{"translation": {"en": "a\\nb", "ko": "ㄱ"}}\n'
    records = read_file(tmp_path / "a.jsonl", text)
    assert records[0] == SentencePair("home", "집", 1)
    assert records[1] == InvalidRecord(f"{tmp_path}/a.jsonl", 2, invalid.WRONG_JSON, "no key 'en'")
    inside = read_file(tmp_path / "a.jsonl", text, fields=("translation.en", "translation.ko"))
    assert inside[1] == SentencePair("a b", "ㄱ", 2)


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        ("{", invalid.WRONG_JSON, "Expecting property name"),
        ("[1]", invalid.WRONG_JSON, "no key 'en'"),
        ('{"en": 3, "ko": "x"}', invalid.WRONG_JSON, "'en' is not a string"),
        ('{"en": "\\ud800", "ko": "x"}', invalid.INVALID_UTF8, "half of a surrogate pair"),
        ('{"en": "a\\u0000b", "ko": "x"}', "NUL", "U+0000 at character 2"),
        ('{"en": "", "ko": "x"}', invalid.EMPTY_SOURCE, ""),
        ("[" * 100_000, invalid.WRONG_JSON, ""),
    ],
)
def test_an_invalid_json_line_is_reported_and_the_next_is_read(
    tmp_path: Path, line: str, reason: str, detail: str
) -> None:
    invalid_record, good = read_file(tmp_path / "a.jsonl", f'{line}\n{{"en": "a", "ko": "b"}}\n')
    assert isinstance(invalid_record, InvalidRecord)
    assert (invalid_record.line, invalid_record.reason) == (1, reason)
    assert invalid_record.detail.startswith(detail)
    assert good == SentencePair("a", "b", 2)


# ---- containers

TMX = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b></bpt>OK<ept i="1">&lt;/b></ept>.</seg></tuv>
<tuv xml:lang="KO"><seg><bpt i="1">&lt;b></bpt>확인<ept i="1">&lt;/b></ept>을 누르세요.</seg></tuv></tu>
<tu><tuv lang="ko_KR"><seg>집</seg></tuv><tuv lang="en"><seg>home
again</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>only</seg></tuv><tuv xml:lang="fr"><seg>seul</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg></seg></tuv><tuv xml:lang="ko"><seg>빈</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("before", ["<!-- exported -->", "<?xml-stylesheet href='a'?><!-- a --><!-- b -->"])
def test_comments_before_the_root_of_xml_are_skipped(before: str, tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="ko"><seg>b</seg></tuv></tu>'
    text = f"{before}<tmx><body>{unit.format('a')}<!-- c -->{unit.format('d')}</body></tmx>{before}"
    assert [record.source for record in read_file(tmp_path / "a.tmx", text)] == ["a", "d"]


@pytest.mark.parametrize("charset", ["punycode", "idna", "Punycode", "rot13", "undefined", "no-charset"])
def test_a_codec_that_is_no_charset_is_refused(charset: str, tmp_path: Path) -> None:
    text = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={charset}\\n"\n\nmsgid "a"\nmsgstr "b"\n'
    with pytest.raises(mh.DataError, match=f"unknown charset '{charset}'"):
        read_file(tmp_path / "a.po", text)


def test_tmx_gives_the_requested_languages_in_any_order(tmp_path: Path) -> None:
    records = read_file(tmp_path / "a.tmx", TMX)
    assert get_pairs(records) == [("Press <b>OK</b>.", "<b>확인</b>을 누르세요."), ("home again", "집")]
    assert [record.line for record in records] == [4, 6, 8, 9]
    assert records[2] == InvalidRecord(f"{tmp_path}/a.tmx", 8, invalid.NO_LANGUAGE, "has en, fr")
    assert records[3] == InvalidRecord(f"{tmp_path}/a.tmx", 9, invalid.EMPTY_SOURCE)


def test_an_exact_language_match_is_preferred(tmp_path: Path) -> None:
    text = TMX.replace(
        'xml:lang="fr"><seg>seul', 'xml:lang="zh-CN"><seg>家</seg></tuv><tuv xml:lang="zh-TW"><seg>屋'
    )
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    wanted = CorpusConfig(source="en", target="zh-TW")
    records = list(read_pairs(InputConfig(files=(f"{tmp_path}/a.tmx",)), wanted))
    assert get_pairs(records) == [("only", "屋")]
    kin = text.replace('xml:lang="zh-TW"', 'xml:lang="zh-HK"')
    (tmp_path / "a.tmx").write_text(kin, encoding="utf-8")
    assert (
        get_pairs(list(read_pairs(InputConfig(files=(f"{tmp_path}/a.tmx",)), wanted))) == []
    )  # a neighbor's is not it


def test_the_first_of_two_segments_in_one_language_counts(tmp_path: Path) -> None:
    again = '<tuv xml:lang="fr"><seg>seul</seg></tuv>'
    twice = '<tuv xml:lang="ko"><seg>하나</seg></tuv><tuv xml:lang="ko"><seg>둘</seg></tuv>'
    assert get_pairs(read_file(tmp_path / "a.tmx", TMX.replace(again, twice)))[2] == ("only", "하나")


def test_tmx_in_utf_16_is_read(tmp_path: Path) -> None:
    text = TMX.replace('encoding="utf-8"', 'encoding="utf-16"').encode("utf-16")
    assert get_pairs(read_file(tmp_path / "a.tmx", text)) == get_pairs(read_file(tmp_path / "b.tmx", TMX))


def test_unbalanced_xml_is_reported_with_its_line_after_the_units_before(tmp_path: Path) -> None:
    records = read_file(tmp_path / "a.tmx", TMX.replace("<seg>seul</seg>", "<seg>seul"))
    assert len(get_pairs(records)) == 2
    last = records[-1]
    assert isinstance(last, InvalidRecord)
    assert (last.line, last.reason) == (8, invalid.BROKEN_FILE)
    assert "mismatch" in last.detail


def test_a_large_translation_memory_is_streamed(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="en"><seg>home {}</seg></tuv><tuv xml:lang="ko"><seg>집</seg></tuv></tu>\n'
    with gzip.open(tmp_path / "a.tmx.gz", "wt", encoding="utf-8") as file:
        file.write("<tmx><body>\n")
        file.writelines(unit.format(i) for i in range(30_000))
        file.write("</body></tmx>\n")
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records = read_pairs(InputConfig(files=(f"{tmp_path}/a.tmx.gz",)), ENGLISH_KOREAN)
    assert sum(isinstance(record, SentencePair) for record in records) == 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


def test_units_are_freed_after_use() -> None:
    from io import BytesIO

    from manyheads.text.containers import iterate_elements

    text = b"<tmx><body>" + b"<tu><tuv/></tu>" * 50 + b"</body></tmx>"
    earlier = [
        len(list(unit.itersiblings(preceding=True))) for unit in iterate_elements(BytesIO(text), "a", "{*}tu")
    ]
    assert len(earlier) == 50
    assert max(earlier) <= 1


def test_a_unit_of_a_megabyte_is_invalid(tmp_path: Path) -> None:
    records = read_file(tmp_path / "a.tmx", TMX.replace("home", "home " * 200_000))
    assert records[1] == InvalidRecord(f"{tmp_path}/a.tmx", 6, invalid.LINE_TOO_LONG)
    assert len(get_pairs(records)) == 1


def test_xml_entities_cannot_read_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret words")
    text = (
        f'<!DOCTYPE tmx [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]><tmx><body><tu><tuv xml:lang="en">'
        '<seg>a &x; b</seg></tuv><tuv xml:lang="ko"><seg>ㄱ</seg></tuv></tu></body></tmx>'
    )
    assert "secret words" not in str(read_file(tmp_path / "a.tmx", text))


def xliff_1(namespace: str, languages: str) -> str:
    return f"""<xliff version="1.2" {namespace}><file {languages} datatype="plaintext" original="a"><body>
<trans-unit id="1"><source>Hello <g id="1">there</g></source><target>안녕</target></trans-unit>
<trans-unit id="2"><source>Later</source><target state="needs-translation">나중</target></trans-unit>
<trans-unit id="3"><source>Never</source></trans-unit>
<trans-unit id="4" approved="no"><source>Maybe</source><target>아마</target></trans-unit>
</body></file></xliff>"""


@pytest.mark.parametrize("version", ["1.1", "1.2", None])
def test_xliff_1_gives_finished_units(tmp_path: Path, version: str | None) -> None:
    namespace = f'xmlns="urn:oasis:names:tc:xliff:document:{version}"' if version else ""
    text = xliff_1(namespace, 'source-language="en-US" target-language="ko"')
    records = read_file(tmp_path / "a.xlf", text)
    file = f"{tmp_path}/a.xlf"
    assert records == [
        SentencePair("Hello <g1>there</g1>", "안녕", 2),
        InvalidRecord(file, 3, invalid.UNFINISHED),
        InvalidRecord(file, 4, invalid.EMPTY_TARGET),
        InvalidRecord(file, 5, invalid.UNFINISHED),
    ]


def test_xliff_of_the_reverse_direction_is_swapped_and_of_other_languages_refused(tmp_path: Path) -> None:
    turned = read_file(tmp_path / "a.xliff", xliff_1("", 'source-language="ko" target-language="en"'))
    assert turned[0] == SentencePair("안녕", "Hello <g1>there</g1>", 2)
    foreign = read_file(tmp_path / "a.xliff", xliff_1("", 'source-language="en" target-language="fr"'))
    assert foreign[0] == InvalidRecord(f"{tmp_path}/a.xliff", 2, invalid.NO_LANGUAGE, "translates en into fr")
    regions = xliff_1("", 'source-language="en_US" target-language="ko-KR"')
    assert read_file(tmp_path / "a.xliff", regions)[0] == SentencePair("Hello <g1>there</g1>", "안녕", 2)


def test_inline_elements_of_xliff_become_tags_and_native_code_is_text(tmp_path: Path) -> None:
    inline = 'mails <x id="2"/><ph id="3">%s</ph> <bpt id="4">&lt;b></bpt>b<ept id="4"/>'
    text = xliff_1("", 'source-language="en" target-language="ko"').replace("Never", inline)
    file = text.replace("</source></trans-unit>", "</source><target>우편</target></trans-unit>")
    assert get_pairs(read_file(tmp_path / "a.xlf", file))[1] == ("mails <x2/>%s <b>b<ept4/>", "우편")


def test_groups_and_units_are_freed_too() -> None:
    from io import BytesIO

    from manyheads.text.containers import iterate_elements

    unit = b"<unit><notes><note>n</note></notes><segment><source>s</source></segment></unit>"
    left = []
    for element in iterate_elements(
        BytesIO(b"<xliff><file>" + unit * 200 + b"</file></xliff>"), "a", "{*}segment"
    ):
        left.append(len(list(element.getparent().itersiblings(preceding=True))))
    assert len(left) == 200
    assert max(left) <= 1


def test_xliff_2_gives_its_segments(tmp_path: Path) -> None:
    text = """<xliff version="2.0" srcLang="en" trgLang="ko" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1"><segment><source>Hi <pc id="1">there</pc></source><target>안녕</target></segment>
</unit></file></xliff>"""
    assert read_file(tmp_path / "a.xlf", text) == [SentencePair("Hi <pc1>there</pc1>", "안녕", 2)]


PO = """# a comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#: file.c:1
msgid "Save %s"
msgstr "%s 저장"

#, fuzzy
msgid "Old"
msgstr "옛것"

msgid ""
"two "
"lines\\n"
"of it"
msgstr "두 줄"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "파일 %d개"

msgid "untranslated"
msgstr ""

#~ msgid "gone"
#~ msgstr "갔다"
"""


def test_po_gives_finished_messages_and_both_forms_of_a_plural(tmp_path: Path) -> None:
    records = read_file(tmp_path / "a.po", PO)
    file = f"{tmp_path}/a.po"
    assert records == [
        SentencePair("Save %s", "%s 저장", 6),
        InvalidRecord(file, 10, invalid.UNFINISHED),
        SentencePair("two lines of it", "두 줄", 14),
        SentencePair("%d file", "파일 %d개", 20),
        SentencePair("%d files", "파일 %d개", 20),
        InvalidRecord(file, 24, invalid.EMPTY_TARGET),
        InvalidRecord(file, 27, invalid.UNFINISHED),
    ]


@pytest.mark.parametrize(
    ("file", "text", "module"), [("a.po", PO, "polib"), ("a.tmx", TMX, "lxml"), ("a.xlf", "<xliff/>", "lxml")]
)
def test_a_missing_extra_is_named_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"{file}: .* needs the extra `formats` \({module} is missing\): pip install '.*\[formats\]'"
    with pytest.raises(mh.DataError, match=message):
        read_file(tmp_path / file, text)


def test_a_missing_extra_for_zst_is_named_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    message = r"a\.tsv\.zst: reading \.zst needs .*: pip install '.*\[formats\]'"
    with pytest.raises(mh.DataError, match=message):
        read_file(tmp_path / "a.tsv.zst", zstd.compress(b"a\tb\n"))


@pytest.mark.parametrize(
    ("comments", "reason"),
    [
        ("#, fuzzy", invalid.UNFINISHED),
        ("#,fuzzy", invalid.UNFINISHED),
        ("#, c-format, fuzzy", invalid.UNFINISHED),
        ('#, c-format\n#| msgid "old"\n#~| msgid "older"\n#comment\n#\n#,\n#:', None),
    ],
)
def test_po_flags_count_and_other_comments_do_not(tmp_path: Path, comments: str, reason: str | None) -> None:
    (record,) = read_file(tmp_path / "a.po", f'{comments}\nmsgctxt "menu"\nmsgid "Save"\nmsgstr "저장"\n')
    expected = InvalidRecord(f"{tmp_path}/a.po", 1, reason) if reason else SentencePair("Save", "저장", 1)
    assert record == expected


def test_po_escapes_are_decoded_and_a_line_separator_does_not_end_a_line(tmp_path: Path) -> None:
    text = 'msgid "say \\"a\\\\b\\"\\tnow"\nmsgstr "ㄱ"\n\nmsgid "a\u2028b"\nmsgstr "ㄴ"\n'
    escaped, separated = read_file(tmp_path / "a.po", text)
    assert escaped == SentencePair('say "a\\b"\tnow', "ㄱ", 1)
    assert isinstance(separated, InvalidRecord)
    assert separated.reason == "line separator inside a line"


def test_the_last_of_several_plural_forms_is_the_plural(tmp_path: Path) -> None:
    text = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n'
    assert get_pairs(read_file(tmp_path / "a.po", text)) == [
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
    ]


def test_po_is_read_in_the_charset_that_it_states(tmp_path: Path) -> None:
    korean = PO.replace("UTF-8", "EUC-KR").encode("euc-kr")
    assert get_pairs(read_file(tmp_path / "a.po", korean))[0] == ("Save %s", "%s 저장")
    records = read_file(tmp_path / "a.po", korean.replace(b"EUC-KR", b"UTF-8"))
    assert records[0] == InvalidRecord(f"{tmp_path}/a.po", 8, invalid.INVALID_UTF8, "byte 0xc0 is not UTF-8")
    with pytest.raises(mh.DataError, match="unknown charset 'klingon'"):
        read_file(tmp_path / "a.po", PO.replace("UTF-8", "klingon"))


@pytest.mark.parametrize("broken", ['msgid "open\nmsgstr "x"', "nonsense", 'msgid "alone"'])
def test_a_broken_message_is_reported_with_its_line_and_the_next_is_read(tmp_path: Path, broken: str) -> None:
    text = f'msgid "a"\nmsgstr "ㄱ"\n\n{broken}\n\nmsgid "b"\nmsgstr "ㄴ"\n'
    first, invalid_record, last = read_file(tmp_path / "a.po", text)
    assert isinstance(invalid_record, InvalidRecord)
    assert (invalid_record.line, invalid_record.reason) == (4, invalid.BROKEN_FILE)
    assert (first, last.source) == (SentencePair("a", "ㄱ", 1), "b")


# ---- wrong calls


def test_wrong_inputs_are_errors_that_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(mh.DataError, match=r"nowhere\.en: No such file or directory"):
        list(read_pairs(InputConfig(files=("nowhere.en", "nowhere.ko")), ENGLISH_KOREAN))
    with pytest.raises(mh.ConfigError, match=r"alone\.txt: read as plain, which must be two files"):
        read_pairs(InputConfig(files=("alone.txt",)), ENGLISH_KOREAN)
    with pytest.raises(mh.ConfigError, match="read as tmx, which must be one file"):
        read_pairs(InputConfig(files=("a.tmx", "b.tmx"), format="tmx"), ENGLISH_KOREAN)
    with pytest.raises(mh.ConfigError, match="an input has 3 files"):
        InputConfig(files=("a", "b", "c"))
    with pytest.raises(mh.ConfigError, match="must be two: the source's and the target's"):
        InputConfig(files=("a.tsv",), fields=("1",))
