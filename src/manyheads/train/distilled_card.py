"""What the model card of a student says of its distillation, from the report of `manyheads distill`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyheads.errors import DataError
from manyheads.evaluate.bleu import Score
from manyheads.evaluate.stress_results import format_markdown_table, format_score
from manyheads.train.run_summary import is_run

REPORT_JSON = "report.json"
STUDENT_RUN = "student"  # the folder of the training run in that of the distillation

# The names of the systems in a report.
TEACHER, STUDENT, INT8_STUDENT = "teacher", "student", "student, int8"

DistillReport = Mapping[str, Any]


def find_run(model: Path) -> tuple[Path | None, DistillReport | None]:
    """Return the training run that a model folder is in, and the report if it was distilled."""
    parent = model.resolve().parent
    if is_run(parent):
        return parent, None
    if is_run(parent / STUDENT_RUN) and (parent / REPORT_JSON).exists():
        return parent / STUDENT_RUN, read_report(parent)
    return None, None


def read_report(folder: Path) -> DistillReport:
    path = folder / REPORT_JSON
    try:
        report = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise DataError(f"{path}: not a report: delete it, and run manyheads distill again") from None
    return report


def format_student_scores(report: DistillReport, beam: int) -> Iterator[str]:
    """List the student's scores on whole test sets, those by its own beam first."""
    rows = [row for row in report["quality"] if row["system"] == INT8_STUDENT]
    for row in sorted(rows, key=lambda row: row["beam"] != beam):
        yield f"- {row['test_set']}, all lines, by {row['engine']}, {describe_beam(row['beam'])}:"
        for score in (Score(**row["bleu"]), Score(**row["chrf"])):
            yield f"  - {score.name} {format_score(score)} (`{score.signature}`)"


def describe_beam(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


def format_distillation(report: DistillReport) -> Iterator[str]:
    """Say who taught the model, from what, and how close it came."""
    settings, pairs = report["settings"], report["pairs"]
    plural = "an ensemble of " if len(report["teachers"]) > 1 else ""
    yield f"- teacher: {plural}{', '.join(report['teachers'])}, {report['megabytes'][TEACHER]:.1f} MB"
    chosen = settings["distill.choose"]
    choice = "the best by score" if chosen == "score" else f"the one closest to the reference by {chosen}"
    yield f"- its translations by {describe_beam(settings['distill.beam'])}, {choice}"
    for key, label in (("min_confidence", "confidence"), ("min_score", "log-probability per token")):
        if settings[f"distill.{key}"] is not None:
            yield f"- pairs below {label} {settings[f'distill.{key}']:g} left out"
    if share := settings["distill.original_share"]:
        yield f"- {share:.0%} of what it read of parallel text were original pairs"
    if settings["--mono"]:
        yield f"- monolingual text: {', '.join(name for name, _ in settings['--mono'])}"
    yield f"- {pairs['learned']:,} pairs after cleaning; weights rounded to int8 after training"
    if report["quality"]:
        yield ""
        yield format_comparison(report["quality"])


def format_comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of teacher and student. Signatures are those of the section on scores."""
    cells = [
        [
            row["test_set"],
            row["system"],
            describe_beam(row["beam"]),
            format_score(Score(**row["bleu"])),
            format_score(Score(**row["chrf"])),
        ]
        for row in rows
    ]
    return format_markdown_table(["test set", "system", "search", "BLEU", "chrF"], cells)
