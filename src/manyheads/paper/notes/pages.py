"""From numbers to pages: prose with places for numbers, in two languages, as Markdown and as one HTML file.

The prose of a language is text/<language>.md, a part for each question, headed by `<!-- name -->`. In it

    {accuracy_tied}     is a number of this run
    {table}, {figure}   are the question's table and the address of its figure
    [if learning]       keeps its paragraph if the experiment found that, `[if not learning]` if it did not

so that no number is typed and every conclusion is the run's own. Short texts (titles, axes, columns) are in
text/<language>.toml, a table for each question.
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
from manyheads.paper.report import ReportTable

Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = ("en", "ko")
PART_PATTERN = re.compile(r"^<!-- (\w+) -->\n", flags=re.M)
CONDITION_PATTERN = re.compile(r"\[if (not )?(\w+)\] ?")
REPORT_LABELS = "report"  # labels of the report as a whole


@dataclass(frozen=True)
class Prose:
    """What is written in one language."""

    parts: dict[str, str]
    labels: dict[str, dict[str, str]]

    @property
    def report_labels(self) -> Labels:
        return self.labels[REPORT_LABELS]


@cache
def load_prose(language: Language) -> Prose:
    _, *parted = PART_PATTERN.split(read_text_file(f"{language}.md"))
    parts = dict(zip(parted[0::2], (text.strip() for text in parted[1::2]), strict=True))
    labels = tomllib.loads(read_text_file(f"{language}.toml"))
    return Prose(parts, labels)


def read_text_file(name: str) -> str:
    return files("manyheads.paper.notes").joinpath("text", name).read_text(encoding="utf-8")


def fill_template(text: str, told: Mapping[str, str], findings: Mapping[str, bool]) -> str:
    """The paragraphs whose condition holds, with every place filled."""
    kept = []
    for paragraph in text.split("\n\n"):
        condition = CONDITION_PATTERN.match(paragraph)
        if condition is None:
            kept.append(paragraph)
        elif findings[condition[2]] != bool(condition[1]):
            kept.append(paragraph[condition.end() :])
    return "\n\n".join(paragraph.format_map(told) for paragraph in kept)


def list_placeholders(text: str) -> set[str]:
    """The names of the numbers that a text has places for."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def list_conditions(text: str) -> set[tuple[str, bool]]:
    """What paragraphs depend on, and whether it has to hold."""
    return {(name, not negated) for negated, name in CONDITION_PATTERN.findall(text)}


# ---- one language


@dataclass(frozen=True)
class NotesSection:
    """A question and its answer."""

    name: str
    title: str
    effect: str  # the measured effect in a line
    as_expected: bool  # whether what was expected is what was found
    body: str  # Markdown


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
        columns = [labels["question"], labels["measured"], labels["expected"]]
        rows = [[one.title, one.effect, labels["yes" if one.as_expected else "no"]] for one in self.sections]
        return ReportTable(labels["summary"], columns, rows)

    def markdown(self) -> str:
        parts = [self.intro, self.summary.to_markdown(), *(one.body for one in self.sections), self.end]
        return "\n\n".join(part.strip() for part in parts) + "\n"


def make_section(
    language: Language, name: str, numbers: Any, table: ReportTable, figure: str
) -> NotesSection:
    written = load_prose(language)
    labels = written.labels[name]
    told: dict[str, str] = {**numbers.told, "table": table.to_markdown().strip(), "figure": figure}
    if hasattr(numbers, "named"):
        told |= numbers.named(labels)
    return NotesSection(
        name=name,
        title=labels["title"],
        effect=labels["short"].format_map(told),
        as_expected=all(numbers.findings[one] for one in numbers.EXPECTED),
        body=f"## {labels['title']}\n\n{fill_template(written.parts[name], told, numbers.findings)}",
    )


# ---- the HTML file


def render_html(pages: Sequence[NotesPage], figures: Mapping[str, Path]) -> str:
    """One file: every language, every figure inside, no script, nothing from elsewhere.

    `figures` tells for each address in the prose the SVG file that it stands for.
    """
    style = read_text_file("page.css")
    articles = [render_article(page, figures) for page in pages]
    titles = " / ".join(dict.fromkeys(load_prose(page.language).report_labels["title"] for page in pages))
    inside = {
        "language": pages[0].language,
        "title": html.escape(titles),
        "style": style,
        "switch": render_language_switch(pages),
        "articles": "\n".join(articles),
    }
    return re.sub(r"\{(\w+)\}", lambda found: inside[found[1]], read_text_file("page.html"))


def render_language_switch(pages: Sequence[NotesPage]) -> str:
    """Which language is shown, without a script: the style follows these two buttons."""
    if len(pages) < 2:
        return ""
    return "\n".join(
        f'<input type="radio" name="language" id="show-{page.language}"{" checked" if not number else ""}>'
        f'<label for="show-{page.language}" lang="{page.language}">'
        f"{load_prose(page.language).report_labels['name']}</label>"
        for number, page in enumerate(pages)
    )


def render_article(page: NotesPage, figures: Mapping[str, Path]) -> str:
    labels, own = load_prose(page.language).report_labels, page.language
    contents = "".join(
        f'<li><a href="#{own}-{one.name}">{html.escape(one.title)}</a></li>' for one in page.sections
    )
    sections = "\n".join(
        f'<section id="{own}-{one.name}">{render_markdown(one.body, figures)}</section>'
        for one in page.sections
    )
    return (
        f'<article lang="{own}" class="{own}">\n{render_markdown(page.intro, figures)}\n'
        f"{render_markdown(page.summary.to_markdown(), figures)}\n"
        f"<nav><h2>{labels['contents']}</h2><ol>{contents}</ol></nav>\n{sections}\n"
        f"<footer>{render_markdown(page.end, figures)}</footer>\n</article>"
    )


def render_markdown(markdown: str, figures: Mapping[str, Path]) -> str:
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    for address, place in figures.items():
        if f'src="{address}"' in text:
            text = text.replace(f'src="{address}"', f'src="{to_data_uri(place)}"')
    return text


def to_data_uri(svg: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode('ascii')}"
