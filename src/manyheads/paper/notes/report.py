"""`manyheads paper notes`: run the experiments and write Markdown per language, one HTML file, and JSON."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from manyheads.atomic_io import write_text_atomically
from manyheads.cuda.device import describe_machine
from manyheads.errors import RequestError
from manyheads.look.fonts import fonts_covering
from manyheads.paper.notes.answers import QUESTIONS, Answers, measure_all, single_thread
from manyheads.paper.notes.learning import Advance, ignore_progress
from manyheads.paper.notes.pages import (
    LANGUAGES,
    Language,
    NotesPage,
    fill_template,
    load_prose,
    make_section,
    render_html,
)
from manyheads.paper.report import (
    describe_environment,
    save_figure,
    write_report,
)
from manyheads.plot_style import import_pyplot
from manyheads.progress import ReportProgress, make_counter

FIGURE_FOLDER = "notes"  # beside the report
LanguageChoice = Literal["en", "ko", "both"]


@dataclass(frozen=True)
class NotesReport:
    """The pages, the files written and the results."""

    pages: list[NotesPage]
    files: list[Path]
    answers: Answers
    provenance: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": [str(file) for file in self.files],
            "provenance": self.provenance,
            "seconds": round(self.seconds, 1),
            **self.answers.to_dict(),
        }


def write_notes(
    out: Path,
    model: Path | None = None,
    language: LanguageChoice = "both",
    command: str = "manyheads paper notes",
    report_progress: ReportProgress = ignore_progress,
    *,
    steps_fraction: float = 1.0,
) -> NotesReport:
    """Run the experiments and write the report into `out`. `steps_fraction` scales the training steps."""
    import_pyplot()  # fail before the long work if matplotlib is missing
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    answers = measure_all(model, report_progress, steps_fraction=steps_fraction)
    with single_thread():
        provenance = f"`{command}`; {describe_environment(describe_machine('cpu'))}"
    seconds = time.monotonic() - start
    languages = LANGUAGES if language == "both" else (language,)
    advance = make_counter(report_progress, "figures", len(languages) * len(QUESTIONS))
    pages: list[NotesPage] = []
    figures: dict[str, Path] = {}  # by URL in the prose
    for page_language in languages:
        paths = dict(draw_figures(answers, page_language, out / FIGURE_FOLDER, advance))
        figures |= {f"{FIGURE_FOLDER}/{path.name}": path for path in paths.values()}
        pages.append(make_page(answers, page_language, paths, provenance, seconds))
    report = NotesReport(pages, [], answers, provenance, seconds)
    write_files(report, figures, out)
    return report


def write_files(report: NotesReport, figures: dict[str, Path], out: Path) -> None:
    for page in report.pages:
        report.files.extend(write_report(out, f"notes.{page.language}", page.to_markdown(), {}))
    html_path, json_path = out / "notes.html", out / "notes.json"
    write_text_atomically(html_path, render_html(report.pages, figures))
    report.files.append(html_path)
    data = json.dumps(report.to_dict(), ensure_ascii=False, indent=1)
    write_text_atomically(json_path, data + "\n")
    report.files.append(json_path)


def make_page(
    answers: Answers, language: Language, figures: dict[str, Path], provenance: str, seconds: float
) -> NotesPage:
    prose = load_prose(language)
    values = {"provenance": provenance, "seconds": f"{seconds:.0f}", "questions": f"{len(figures)}"}
    findings = {"hangul": language == "en" or has_hangul_font()}
    sections = [
        make_section(
            language,
            name,
            results,
            QUESTIONS[name].make_table(results, prose.labels[name]),
            f"{FIGURE_FOLDER}/{figures[name].name}",
            answers.xavier.get(name),
        )
        for name, results in answers.by_question().items()
    ]
    intro, end = (fill_template(prose.parts[part], values, findings) for part in ("intro", "end"))
    return NotesPage(language, intro, sections, end)


# ---- figures


def draw_figures(
    answers: Answers, language: Language, folder: Path, advance: Advance
) -> Iterator[tuple[str, Path]]:
    """Yield the name of each question and its SVG file. Without a Hangul font, labels are English."""
    hangul = has_hangul_font()
    for name, results in answers.by_question().items():
        labels = load_prose(language if hangul else "en").labels[name]
        words = "".join(results.words + results.decoder_input) if name == "example" and hangul else ""
        with fonts_covering("".join(labels.values()) + words):
            options = {"hangul": hangul} if name == "example" else {}
            figure = QUESTIONS[name].draw_figure(results, labels, **options)
            path = save_figure(figure, folder, f"{name}.{language}")[0]
        advance(1)
        yield name, path


def has_hangul_font() -> bool:
    try:
        with fonts_covering("한글"):
            return True
    except RequestError:
        return False
