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
from manyheads.paper.report import Table

Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = ("en", "ko")
PART = re.compile(r"^<!-- (\w+) -->\n", flags=re.M)
CONDITION = re.compile(r"\[if (not )?(\w+)\] ?")
REPORT = "report"  # labels of the report as a whole


@dataclass(frozen=True)
class Prose:
    """What is written in one language."""

    parts: dict[str, str]
    labels: dict[str, dict[str, str]]

    @property
    def of_report(self) -> Labels:
        return self.labels[REPORT]


@cache
def prose(language: Language) -> Prose:
    _, *parted = PART.split(part_file(f"{language}.md"))
    parts = dict(zip(parted[0::2], (text.strip() for text in parted[1::2]), strict=True))
    labels = tomllib.loads(part_file(f"{language}.toml"))
    return Prose(parts, labels)


def part_file(name: str) -> str:
    return files("manyheads.paper.notes").joinpath("text", name).read_text(encoding="utf-8")


def filled(text: str, told: Mapping[str, str], findings: Mapping[str, bool]) -> str:
    """The paragraphs whose condition holds, with every place filled."""
    kept = []
    for paragraph in text.split("\n\n"):
        condition = CONDITION.match(paragraph)
        if condition is None:
            kept.append(paragraph)
        elif findings[condition[2]] != bool(condition[1]):
            kept.append(paragraph[condition.end() :])
    return "\n\n".join(paragraph.format_map(told) for paragraph in kept)


def places(text: str) -> set[str]:
    """The names of the numbers that a text has places for."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def conditions(text: str) -> set[tuple[str, bool]]:
    """What paragraphs depend on, and whether it has to hold."""
    return {(name, not negated) for negated, name in CONDITION.findall(text)}


# ---- one language


@dataclass(frozen=True)
class Section:
    """A question and its answer."""

    name: str
    title: str
    short: str  # the measured effect in a line
    shown: bool  # whether what was expected is what was found
    body: str  # Markdown


@dataclass(frozen=True)
class Page:
    """The report in one language."""

    language: Language
    intro: str
    sections: list[Section]
    end: str

    @property
    def summary(self) -> Table:
        labels = prose(self.language).of_report
        columns = [labels["question"], labels["measured"], labels["expected"]]
        rows = [[one.title, one.short, labels["yes" if one.shown else "no"]] for one in self.sections]
        return Table(labels["summary"], columns, rows)

    def markdown(self) -> str:
        parts = [self.intro, self.summary.markdown(), *(one.body for one in self.sections), self.end]
        return "\n\n".join(part.strip() for part in parts) + "\n"


def section(language: Language, name: str, numbers: Any, table: Table, figure: str) -> Section:
    written = prose(language)
    labels = written.labels[name]
    told: dict[str, str] = {**numbers.told, "table": table.markdown().strip(), "figure": figure}
    if hasattr(numbers, "named"):
        told |= numbers.named(labels)
    return Section(
        name=name,
        title=labels["title"],
        short=labels["short"].format_map(told),
        shown=all(numbers.findings[one] for one in numbers.EXPECTED),
        body=f"## {labels['title']}\n\n{filled(written.parts[name], told, numbers.findings)}",
    )


# ---- the HTML file


def as_html(pages: Sequence[Page], figures: Mapping[str, Path]) -> str:
    """One file: every language, every figure inside, no script, nothing from elsewhere.

    `figures` tells for each address in the prose the SVG file that it stands for.
    """
    style = part_file("page.css")
    articles = [article(page, figures) for page in pages]
    titles = " / ".join(dict.fromkeys(prose(page.language).of_report["title"] for page in pages))
    inside = {
        "language": pages[0].language,
        "title": html.escape(titles),
        "style": style,
        "switch": switch(pages),
        "articles": "\n".join(articles),
    }
    return re.sub(r"\{(\w+)\}", lambda found: inside[found[1]], part_file("page.html"))


def switch(pages: Sequence[Page]) -> str:
    """Which language is shown, without a script: the style follows these two buttons."""
    if len(pages) < 2:
        return ""
    return "\n".join(
        f'<input type="radio" name="language" id="show-{page.language}"{" checked" if not number else ""}>'
        f'<label for="show-{page.language}" lang="{page.language}">'
        f"{prose(page.language).of_report['name']}</label>"
        for number, page in enumerate(pages)
    )


def article(page: Page, figures: Mapping[str, Path]) -> str:
    labels, own = prose(page.language).of_report, page.language
    contents = "".join(
        f'<li><a href="#{own}-{one.name}">{html.escape(one.title)}</a></li>' for one in page.sections
    )
    sections = "\n".join(
        f'<section id="{own}-{one.name}">{rendered(one.body, figures)}</section>' for one in page.sections
    )
    return (
        f'<article lang="{own}" class="{own}">\n{rendered(page.intro, figures)}\n'
        f"{rendered(page.summary.markdown(), figures)}\n"
        f"<nav><h2>{labels['contents']}</h2><ol>{contents}</ol></nav>\n{sections}\n"
        f"<footer>{rendered(page.end, figures)}</footer>\n</article>"
    )


def rendered(markdown: str, figures: Mapping[str, Path]) -> str:
    from markdown_it import MarkdownIt

    text = str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))
    for address, place in figures.items():
        if f'src="{address}"' in text:
            text = text.replace(f'src="{address}"', f'src="{inside_the_page(place)}"')
    return text


def inside_the_page(svg: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode('ascii')}"
