"""Pages of the report: prose with placeholders in two languages, as Markdown and as one HTML file.

The prose of a language is text/<language>.md, one part per question, headed by `<!-- name -->`. In it

    {accuracy_tied}     is replaced by a number of this run
    {table}, {figure}   by the table of the question and the URL of its figure
    [if learning]       keeps its paragraph if this finding is true, `[if not learning]` if it is false

So all numbers and conclusions are those of the run. Short texts (titles, axes, columns) are in
text/<language>.toml, one table per question.
"""

import base64
import html
import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from manyheads.paper.notes.drawing import Labels
from manyheads.paper.report import Cell, ReportTable

Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = ("en", "ko")
PART_PATTERN = re.compile(r"^<!-- (\w+) -->\n", flags=re.M)
WRAPPED_LINE_PATTERN = re.compile(r"(?<!\n)\n(?!\n)")  # paragraphs are wrapped; a page has them in one line
CONDITION_PATTERN = re.compile(r"\[if (not )?(\w+)\] ?")
REPORT_LABELS = "report"  # of the report as a whole


@dataclass(frozen=True)
class Prose:
    """The texts of one language."""

    parts: dict[str, str]
    labels: dict[str, dict[str, str]]

    @property
    def report_labels(self) -> Labels:
        return self.labels[REPORT_LABELS]


@cache
def load_prose(language: Language) -> Prose:
    _, *pieces = PART_PATTERN.split(read_text_file(f"{language}.md"))
    texts = (WRAPPED_LINE_PATTERN.sub(" ", text.strip()) for text in pieces[1::2])
    parts = dict(zip(pieces[0::2], texts, strict=True))
    labels = tomllib.loads(read_text_file(f"{language}.toml"))
    return Prose(parts, labels)


def read_text_file(name: str) -> str:
    return files("manyheads.paper.notes").joinpath("text", name).read_text(encoding="utf-8")


def fill_template(text: str, values: Mapping[str, str], findings: Mapping[str, bool]) -> str:
    """Return the paragraphs whose condition is true, with all placeholders filled."""
    kept = []
    for paragraph in text.split("\n\n"):
        condition = CONDITION_PATTERN.match(paragraph)
        if condition is None:
            kept.append(paragraph)
        elif findings[condition[2]] != bool(condition[1]):
            kept.append(paragraph[condition.end() :])
    return "\n\n".join(paragraph.format_map(values) for paragraph in kept)


def list_placeholders(text: str) -> set[str]:
    """Return the names of the placeholders of a text."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def list_conditions(text: str) -> set[tuple[str, bool]]:
    """Return the findings that paragraphs depend on, and the values that they require."""
    return {(name, not negated) for negated, name in CONDITION_PATTERN.findall(text)}


# ---- one language


@dataclass(frozen=True)
class NotesSection:
    """A question and its answer."""

    name: str
    title: str
    effect: str  # the measured effect in one line
    as_expected: bool  # whether all expected findings are true
    body: str  # Markdown
    xavier: tuple[str, bool] | None = None  # effect and verdict from Xavier's initial weights, where trained


@dataclass(frozen=True)
class NotesPage:
    """The report in one language."""

    language: Language
    intro: str
    sections: list[NotesSection]
    end: str

    @property
    def summary(self) -> ReportTable:
        labels = load_prose(self.language).report_labels
        columns = [labels[name] for name in ("question", "measured", "expected", "xavier", "expected")]
        rows: list[list[Cell]] = []
        for section in self.sections:
            effect, as_expected = section.xavier or (None, None)
            verdicts = [
                None if verdict is None else labels["yes" if verdict else "no"]
                for verdict in (section.as_expected, as_expected)
            ]
            rows.append([section.title, section.effect, verdicts[0], effect, verdicts[1]])
        return ReportTable(labels["summary"], columns, rows)

    def to_markdown(self) -> str:
        parts = [
            self.intro,
            self.summary.to_markdown(),
            *(section.body for section in self.sections),
            self.end,
        ]
        return "\n\n".join(part.strip() for part in parts) + "\n"


def make_section(
    language: Language, name: str, results: Any, table: ReportTable, figure: str, xavier: Any = None
) -> NotesSection:
    """Fill the prose of a question. Names of numbers from Xavier's initial weights begin with xavier_."""
    prose = load_prose(language)
    labels = prose.labels[name]
    values: dict[str, str] = {**results.placeholders, "table": table.to_markdown().strip(), "figure": figure}
    others = xavier.placeholders if xavier else {}
    values |= {f"xavier_{key}": value for key, value in others.items()}
    if hasattr(results, "labeled_placeholders"):
        values |= results.labeled_placeholders(labels)
    return NotesSection(
        name=name,
        title=labels["title"],
        effect=labels["effect"].format_map(values),
        as_expected=is_as_expected(results),
        xavier=(labels["effect"].format_map(others), is_as_expected(xavier)) if xavier else None,
        body=f"## {labels['title']}\n\n{fill_template(prose.parts[name], values, results.findings)}",
    )


def is_as_expected(results: Any) -> bool:
    return all(results.findings[finding] for finding in results.EXPECTED)


# ---- the HTML file


def render_html(pages: Sequence[NotesPage], figures: Mapping[str, Path]) -> str:
    """Render one self-contained file with all languages and figures and no scripts.

    `figures` maps the URLs in the prose to SVG files.
    """
    style = read_text_file("page.css")
    articles = [render_article(page, figures) for page in pages]
    titles = " / ".join(dict.fromkeys(load_prose(page.language).report_labels["title"] for page in pages))
    values = {
        "language": pages[0].language,
        "title": html.escape(titles),
        "style": style,
        "switch": render_language_switch(pages),
        "articles": "\n".join(articles),
    }
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], read_text_file("page.html"))


def render_language_switch(pages: Sequence[NotesPage]) -> str:
    """Render the buttons that select the language; the style sheet does the rest."""
    if len(pages) < 2:
        return ""
    return "\n".join(
        f'<input type="radio" name="language" id="show-{page.language}"{" checked" if not index else ""}>'
        f'<label for="show-{page.language}" lang="{page.language}">'
        f"{load_prose(page.language).report_labels['name']}</label>"
        for index, page in enumerate(pages)
    )


def render_article(page: NotesPage, figures: Mapping[str, Path]) -> str:
    labels, language = load_prose(page.language).report_labels, page.language
    contents = "".join(
        f'<li><a href="#{language}-{section.name}">{html.escape(section.title)}</a></li>'
        for section in page.sections
    )
    sections = "\n".join(
        f'<section id="{language}-{section.name}">{render_markdown(section.body, figures)}</section>'
        for section in page.sections
    )
    return (
        f'<article lang="{language}" class="{language}">\n{render_markdown(page.intro, figures)}\n'
        f"{render_markdown(page.summary.to_markdown(), figures)}\n"
        f"<nav><h2>{labels['contents']}</h2><ol>{contents}</ol></nav>\n{sections}\n"
        f"<footer>{render_markdown(page.end, figures)}</footer>\n</article>"
    )


def render_markdown(markdown: str, figures: Mapping[str, Path]) -> str:
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    for url, path in figures.items():
        if f'src="{url}"' in text:
            text = text.replace(f'src="{url}"', f'src="{to_data_uri(path)}"')
    return text


def to_data_uri(svg: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode('ascii')}"
