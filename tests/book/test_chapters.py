"""The chapters: code from the source, examples that run, numbers from reports, two languages in step."""

import doctest
import re
from pathlib import Path

import pytest
import yaml

from code_lines import find_code, insert_code, list_references
from math_markup import put_formulas, take_formulas
from support.source_tree import ROOT

DOCS = ROOT / "docs"
BOOK = DOCS / "book"
CHAPTERS = sorted(path for path in BOOK.glob("[0-9]*.md") if not path.name.endswith(".ko.md"))
SECTIONS = 8  # question, idea, formula, code, widgets, experiment, study notes, exercises
EXPERIMENT, EXERCISES = 6, 8
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def name(path: Path) -> str:
    return path.name


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def korean(path: Path) -> Path:
    return path.with_name(f"{path.stem}.ko.md")


def list_sections(text: str) -> list[str]:
    return re.split(r"^## .*\n", text, flags=re.M)


def list_examples(text: str) -> list[str]:
    return re.findall(r"^```pycon\n(.*?)^```", text, flags=re.M | re.S)


BOTH = [*CHAPTERS, *map(korean, CHAPTERS)]


def test_the_chapters_are_in_the_order_of_the_paper() -> None:
    assert [path.name[:2] for path in CHAPTERS] == [f"{number:02}" for number in range(1, len(CHAPTERS) + 1)]


@pytest.mark.parametrize("chapter", [*CHAPTERS, BOOK / "study-notes.md", DOCS / "index.md"], ids=name)
def test_both_languages_have_the_same_parts(chapter: Path) -> None:
    parts = {
        "headings": r"^#+(?= )",
        "tables": r"^\|---",
        "rows": r"^\|",
        "widgets": r'data-widget="([\w-]+)"',
        "references": r"^→ .*`: `([\w.]+)`",
        "block formulas": r"^\$\$(.+)\$\$$",
        "examples": r"^```pycon\n(?s:(.*?))^```",
        "commands": r"^    (manyheads .*?)(?:   .*)?$",
        "answers": r"<details",
        "images": r"!\[",
    }
    for part, pattern in parts.items():
        own, other = (re.findall(pattern, read(path), flags=re.M) for path in (chapter, korean(chapter)))
        assert own == other, part


@pytest.mark.parametrize("chapter", BOTH, ids=name)
def test_a_chapter_has_every_part(chapter: Path) -> None:
    text = read(chapter)
    assert len(list_sections(text)) == SECTIONS + 1
    assert "$" in text
    assert list_references(text)
    assert "data-widget" in text
    exercises = list_sections(text)[EXERCISES]
    assert 2 <= exercises.count("<details") <= 3
    assert len(list_examples(exercises)) == exercises.count("<details")


@pytest.mark.parametrize("chapter", BOTH, ids=name)
def test_named_code_is_in_the_source(chapter: Path) -> None:
    for file, symbol in list_references(read(chapter)):
        assert find_code(file, symbol)[0] in insert_code(read(chapter))


def test_code_is_found_by_its_name_wherever_it_is() -> None:
    code, first = find_code("ops/attention_spec.py", "AttentionSpec.scale")
    lines = read(ROOT / "src" / "manyheads" / "ops" / "attention_spec.py").splitlines()
    assert code.startswith("def scale(self, d_k: int)")
    assert lines[first - 1].strip() == code.splitlines()[0]
    with pytest.raises(ValueError, match=r"0 definitions of AttentionSpec\.size"):
        find_code("ops/attention_spec.py", "AttentionSpec.size")


def test_formulas_are_taken_from_text_and_not_from_code() -> None:
    text, formulas = take_formulas("costs $5 and $6, `$x$`, $d_k$로\n\n```\n$y$\n```\n\n$$z$$\n")
    assert text == ("costs $5 and $6, `$x$`, formula0placeholder로\n\n```\n$y$\n```\n\nformula1placeholder\n")
    assert len(formulas) == 2
    html = put_formulas("<p>formula0placeholder로</p><p>formula1placeholder</p>", formulas)
    assert html.startswith('<p><math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">')
    assert '<div class="formula" tabindex="0"><math' in html


@pytest.mark.parametrize("chapter", BOTH, ids=name)
def test_examples_give_what_the_chapter_says(chapter: Path) -> None:
    text = "\n".join(list_examples(read(chapter)))
    test = doctest.DocTestParser().get_doctest(text, {}, chapter.name, str(chapter), 0)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("chapter", BOTH, ids=name)
def test_numbers_of_the_experiment_are_in_the_reports_that_it_names(chapter: Path) -> None:
    section = list_sections(read(chapter))[EXPERIMENT]
    assert re.search(r"`manyheads |^    manyheads ", section, flags=re.M), "the command"
    reports = set(re.findall(r"\]\(([^)#]+\.(?:md|csv))(?:#[^)]*)?\)", section))
    assert reports
    known = list_numbers(" ".join(read(BOOK / report) for report in reports))
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", " ", section)
    missing = [number for number in list_numbers(text) if number not in known and not is_trivial(number)]
    assert not missing


def list_numbers(text: str) -> list[str]:
    return [number.replace(",", "") for number in NUMBER.findall(text)]


def is_trivial(number: str) -> bool:
    """Numbers of sections and tables, and small counts."""
    return number.isdigit() and int(number) <= 10


def test_every_widget_is_used_and_every_used_widget_exists() -> None:
    scripts = "".join(read(path) for path in (ROOT / "website" / "widgets").glob("*.js"))
    tables = re.findall(r"^export const \w+_WIDGETS = \{(.*?)\};", scripts, flags=re.M | re.S)
    defined = set(re.findall(r'"([a-z-]+)":', "".join(tables)))
    used = {widget for path in BOTH for widget in re.findall(r'data-widget="([\w-]+)"', read(path))}
    assert used == defined


def test_every_document_is_in_the_navigation() -> None:
    text = re.sub(r"!!python/name:\S+", "null", read(ROOT / "mkdocs.yml"))
    paths: set[str] = set()

    def collect(item: object) -> None:
        if isinstance(item, str):
            paths.add(item)
        for part in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
            collect(part)

    collect(yaml.safe_load(text)["nav"])
    documents = {
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if not path.name.endswith(".ko.md")
    }
    assert documents == paths
