"""The command's work: measure, draw, write. Markdown a language, one HTML file, all numbers as JSON."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from manyheads.errors import RequestError
from manyheads.look.fonts import fonts_covering
from manyheads.paper.notes import (
    example,
    heads,
    normalization,
    positions,
    projections,
    relations,
    residuals,
    scale,
    smoothing,
    warmup,
)
from manyheads.paper.notes.answers import Answers, measure_all, single_thread
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
    describe_machine,
    import_pyplot,
    save_figure,
    write_report,
)
from manyheads.progress import ReportProgress, make_counter

QUESTIONS: dict[str, Any] = {  # each with its table and its figure
    "example": example,
    "projections": projections,
    "scale": scale,
    "heads": heads,
    "positions": positions,
    "residuals": residuals,
    "normalization": normalization,
    "warmup": warmup,
    "smoothing": smoothing,
    "relations": relations,
}
FIGURE_FOLDER = "notes"  # the folder beside the report
LanguageChoice = Literal["en", "ko", "both"]


@dataclass(frozen=True)
class NotesReport:
    """What came of it."""

    pages: list[NotesPage]
    files: list[Path]
    answers: Answers
    provenance: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": [str(one) for one in self.files],
            "where": self.provenance,
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
    """Into the folder `out`. `share` is of the usual steps of training."""
    import_pyplot()  # whether figures can be drawn is known before the long work
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    answers = measure_all(model, report_progress, steps_fraction=steps_fraction)
    with single_thread():
        where = f"`{command}`; {describe_environment(describe_machine('cpu'))}"
    seconds = time.monotonic() - began
    chosen = LANGUAGES if language == "both" else (language,)
    advance = make_counter(report_progress, "figures", len(chosen) * len(QUESTIONS))
    pages: list[NotesPage] = []
    figures: dict[str, Path] = {}  # by their addresses in the prose
    for own in chosen:
        drawn = dict(draw_figures(answers, own, out / FIGURE_FOLDER, advance))
        figures |= {f"{FIGURE_FOLDER}/{place.name}": place for place in drawn.values()}
        pages.append(make_page(answers, own, drawn, where, seconds))
    written = NotesReport(pages, [], answers, where, seconds)
    write_files(written, figures, out)
    return written


def write_files(written: NotesReport, figures: dict[str, Path], out: Path) -> None:
    for one in written.pages:
        written.files.extend(write_report(out, f"notes.{one.language}", one.markdown(), {}))
    written.files.append(written_aside(out / "notes.html", render_html(written.pages, figures)))
    data = json.dumps(written.to_dict(), ensure_ascii=False, indent=1)
    written.files.append(written_aside(out / "notes.json", data + "\n"))


def written_aside(place: Path, text: str) -> Path:
    """Complete, or as it was."""
    aside = place.with_name(f".{place.name}.aside")
    aside.write_text(text, encoding="utf-8")
    return aside.replace(place)


def make_page(
    answers: Answers, language: Language, figures: dict[str, Path], where: str, seconds: float
) -> NotesPage:
    written = load_prose(language)
    told = {"where": where, "seconds": f"{seconds:.0f}", "questions": f"{len(figures)}"}
    findings = {"hangul": language == "en" or has_hangul_font()}
    sections = [
        make_section(
            language,
            name,
            numbers,
            QUESTIONS[name].table(numbers, written.labels[name]),
            f"{FIGURE_FOLDER}/{figures[name].name}",
        )
        for name, numbers in answers.by_question().items()
    ]
    intro, end = (fill_template(written.parts[part], told, findings) for part in ("intro", "end"))
    return NotesPage(language, intro, sections, end)


# ---- figures


def draw_figures(
    answers: Answers, language: Language, folder: Path, advance: Advance
) -> Iterator[tuple[str, Path]]:
    """The name of a question and its figure's SVG. Without a font for Hangul, labels are English."""
    hangul = has_hangul_font()
    for name, numbers in answers.by_question().items():
        labels = load_prose(language if hangul else "en").labels[name]
        words = "".join(numbers.words + numbers.read) if name == "example" and hangul else ""
        with fonts_covering("".join(labels.values()) + words):
            more = {"hangul": hangul} if name == "example" else {}
            figure = QUESTIONS[name].draw(numbers, labels, **more)
            place = save_figure(figure, folder, f"{name}.{language}")[0]
        advance(1)
        yield name, place


def has_hangul_font() -> bool:
    try:
        with fonts_covering("한글"):
            return True
    except RequestError:
        return False
