"""The command's work: measure, draw, write. Markdown a language, one HTML file, all numbers as JSON."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from manyheads.errors import RequestError
from manyheads.look.figures import fonts_for
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
from manyheads.paper.notes.answers import Answers, measured, one_thread
from manyheads.paper.notes.learning import Advance, untold
from manyheads.paper.notes.pages import LANGUAGES, Language, Page, as_html, filled, prose, section
from manyheads.paper.report import by_what, machine, pyplot, save_figure, write_report
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
FIGURES = "notes"  # the folder beside the report
Chosen = Literal["en", "ko", "both"]


@dataclass(frozen=True)
class Written:
    """What came of it."""

    pages: list[Page]
    files: list[Path]
    answers: Answers
    where: str
    seconds: float

    def as_data(self) -> dict[str, Any]:
        return {
            "files": [str(one) for one in self.files],
            "where": self.where,
            "seconds": round(self.seconds, 1),
            **self.answers.as_data(),
        }


def write_notes(
    out: Path,
    model: Path | None = None,
    language: Chosen = "both",
    command: str = "manyheads paper notes",
    tell: ReportProgress = untold,
    *,
    share: float = 1.0,
) -> Written:
    """Into the folder `out`. `share` is of the usual steps of training."""
    pyplot()  # whether figures can be drawn is known before the long work
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    answers = measured(model, tell, share=share)
    with one_thread():
        where = f"`{command}`; {by_what(machine('cpu'))}"
    seconds = time.monotonic() - began
    chosen = LANGUAGES if language == "both" else (language,)
    advance = make_counter(tell, "figures", len(chosen) * len(QUESTIONS))
    pages: list[Page] = []
    figures: dict[str, Path] = {}  # by their addresses in the prose
    for own in chosen:
        drawn = dict(draw_all(answers, own, out / FIGURES, advance))
        figures |= {f"{FIGURES}/{place.name}": place for place in drawn.values()}
        pages.append(page(answers, own, drawn, where, seconds))
    written = Written(pages, [], answers, where, seconds)
    write_files(written, figures, out)
    return written


def write_files(written: Written, figures: dict[str, Path], out: Path) -> None:
    for one in written.pages:
        written.files.extend(write_report(out, f"notes.{one.language}", one.markdown(), {}))
    written.files.append(written_aside(out / "notes.html", as_html(written.pages, figures)))
    data = json.dumps(written.as_data(), ensure_ascii=False, indent=1)
    written.files.append(written_aside(out / "notes.json", data + "\n"))


def written_aside(place: Path, text: str) -> Path:
    """Complete, or as it was."""
    aside = place.with_name(f".{place.name}.aside")
    aside.write_text(text, encoding="utf-8")
    return aside.replace(place)


def page(answers: Answers, language: Language, figures: dict[str, Path], where: str, seconds: float) -> Page:
    written = prose(language)
    told = {"where": where, "seconds": f"{seconds:.0f}", "questions": f"{len(figures)}"}
    findings = {"hangul": language == "en" or has_hangul()}
    sections = [
        section(
            language,
            name,
            numbers,
            QUESTIONS[name].table(numbers, written.labels[name]),
            f"{FIGURES}/{figures[name].name}",
        )
        for name, numbers in answers.by_question().items()
    ]
    intro, end = (filled(written.parts[part], told, findings) for part in ("intro", "end"))
    return Page(language, intro, sections, end)


# ---- figures


def draw_all(
    answers: Answers, language: Language, folder: Path, advance: Advance
) -> Iterator[tuple[str, Path]]:
    """The name of a question and its figure's SVG. Without a font for Hangul, labels are English."""
    hangul = has_hangul()
    for name, numbers in answers.by_question().items():
        labels = prose(language if hangul else "en").labels[name]
        words = "".join(numbers.words + numbers.read) if name == "example" and hangul else ""
        with fonts_for("".join(labels.values()) + words):
            more = {"hangul": hangul} if name == "example" else {}
            figure = QUESTIONS[name].draw(numbers, labels, **more)
            place = save_figure(figure, folder, f"{name}.{language}")[0]
        advance(1)
        yield name, place


def has_hangul() -> bool:
    try:
        with fonts_for("한글"):
            return True
    except RequestError:
        return False
