"""Every document exists in English and Korean, with the same parts. Each test lists what differs."""

import re
from collections import Counter
from pathlib import Path

import pytest

from support.source_tree import ROOT

# Written in one language: what a command generates (reports under docs/results/NAME/, licenses), the log and
# the changelog, which are records of what was done, and the files that GitHub expects in the root.
ENGLISH_ONLY = {
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/api.md",  # docstrings
    "docs/licenses.md",
    "docs/log.md",
}
ENGLISH = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if not path.name.endswith(".ko.md")
    and path.relative_to(ROOT).as_posix() not in ENGLISH_ONLY
    and "results" not in path.parts[:-2]
)
# Pictures of pages in Korean, and their counterparts in English.
KOREAN_PICTURES = {"look-phone.png": "look-page.png", "look-live-phone.png": "look-live.png"}
# A word of the left column is another name of what the right column names.
TERMS = {
    "매개변수": "파라미터",
    "주기억장치": "호스트 메모리",
    "표준 편차": "표준편차",
    "조합형": "완성형 또는 풀어 쓴 자모",
    "기계에서": "머신에서",
    "숨은 층": "은닉층",
    "키-값 캐시": "KV 캐시",
    "기울기 크기": "기울기 노름",
    "포착": "캡처",
    "낱말": "단어",
    "워밍업": "웜업",
    "미리 학습": "사전 학습",
    "접두어": "접두사",
    "워커": "작업자",
    "목표 언어": "타깃 언어",
    "검증 집합": "검증 데이터",
    "테스트 집합": "테스트 데이터",
    "시험 데이터": "테스트 데이터",
    "오차 범위": "신뢰 구간",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def translated(path: Path) -> Path:
    return path.with_name(f"{path.stem}.ko.md")


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def table_shapes(text: str) -> list[tuple[int, int]]:
    """Return rows and columns of each table."""
    blocks = re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.M)
    return [(len(lines := block.splitlines()), len(re.findall(r"(?<!\\)\|", lines[1]))) for block in blocks]


def command_of(line: str) -> str:
    """Return a line of a code block without its remark, which is translated."""
    return re.split(r"  +|\t| #|#", line.strip())[0].strip()


def indented_blocks(text: str) -> list[list[str]]:
    blocks = re.findall(r"(?:(?<=\n\n)|\A)(?:    .*\n(?:\n(?=    ))?)+", without_fences(text))
    return [[command for line in block.splitlines() if (command := command_of(line))] for block in blocks]


def commands(text: str) -> list[str]:
    return [
        line
        for block in indented_blocks(text)
        for line in block
        if re.match(r"manyheads |make |python ", line)
    ]


def parts(text: str) -> dict[str, object]:
    prose = without_fences(text)
    figures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", prose)
    return {
        "headings": [len(level) for level in re.findall(r"^(#+) ", prose, flags=re.M)],
        "fenced blocks": re.findall(r"^```(\w+)$", text, flags=re.M),
        "indented blocks": len(indented_blocks(text)),
        "commands": [
            len(commands(text)),
            *sorted(Counter(line.split()[1] for line in commands(text)).items()),
        ],
        "tables": table_shapes(prose),
        "figures": [KOREAN_PICTURES.get(Path(target).name, Path(target).name) for target in figures],
        "list items": len(re.findall(r"^(?:- |\d+\. )", prose, flags=re.M)),
    }


def numbers_in_tables(text: str) -> list[Counter[str]]:
    """Return the long numbers (1.5, 1,000, 2026) of each row of each table. A million is 100만 in Korean."""
    rows = re.findall(r"^\|.*$", without_fences(text), flags=re.M)
    plain = [
        re.sub(r"(?:[\d.]+ to )?[\d.]+ million|(\d+억 )?\d+만", "", re.sub(r"`[^`]*`|\]\([^)]*\)", "", row))
        for row in rows
    ]
    return [Counter(re.findall(r"\d+(?:[.,]\d+)+|\d{3,}", row)) for row in plain]


def test_every_document_has_a_korean_version() -> None:
    assert len(ENGLISH) > 25
    assert not [name(path) for path in ENGLISH if not translated(path).exists()]


def test_every_korean_document_has_an_english_original() -> None:
    korean = [*ROOT.glob("*.ko.md"), *ROOT.glob("docs/**/*.ko.md")]
    originals = [path.with_name(path.name.replace(".ko.md", ".md")) for path in korean]
    assert not [name(path) for path in originals if not path.exists() and path.name != "notes.md"]


@pytest.mark.parametrize("document", ENGLISH, ids=name)
def test_both_versions_have_the_same_parts(document: Path) -> None:
    english = parts(document.read_text(encoding="utf-8"))
    korean = parts(translated(document).read_text(encoding="utf-8"))
    assert {part: (english[part], korean[part]) for part in english if english[part] != korean[part]} == {}


@pytest.mark.parametrize("document", ENGLISH, ids=name)
def test_tables_have_the_same_numbers(document: Path) -> None:
    english = numbers_in_tables(document.read_text(encoding="utf-8"))
    korean = numbers_in_tables(translated(document).read_text(encoding="utf-8"))
    rows = enumerate(zip(english, korean, strict=False), 1)
    differences = {
        row: (dict(first - second), dict(second - first)) for row, (first, second) in rows if first != second
    }
    assert not differences


@pytest.mark.parametrize("document", ENGLISH, ids=name)
def test_korean_documents_link_to_korean_documents(document: Path) -> None:
    """One link to the English version chooses the language; a second one would stand for a missing part."""
    korean = translated(document)
    links = re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", korean.read_text(encoding="utf-8"))
    targets = [(korean.parent / link).resolve() for link in links if not link.startswith("http")]
    assert [name(target) for target in targets if target in ENGLISH] == [name(document)]


@pytest.mark.parametrize("document", ENGLISH, ids=name)
def test_both_versions_link_to_each_other(document: Path) -> None:
    assert f"]({translated(document).name})" in document.read_text(encoding="utf-8")[:600]
    assert f"]({document.name})" in translated(document).read_text(encoding="utf-8")[:600]


@pytest.mark.parametrize("document", ENGLISH, ids=name)
def test_korean_documents_use_one_term_for_one_idea(document: Path) -> None:
    text = translated(document).read_text(encoding="utf-8")
    if document.stem != "glossary":
        assert not {term: better for term, better in TERMS.items() if term in text}
