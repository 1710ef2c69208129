"""The report of a distillation: Markdown for people, JSON for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyheads.atomic_io import report_disk_full, write_text_atomically
from manyheads.evaluate.bleu import Score
from manyheads.evaluate.stress_results import format_markdown_table, format_score
from manyheads.train.distilled_card import INT8_STUDENT, REPORT_JSON, STUDENT, TEACHER, describe_beam

REPORT_MARKDOWN = "report.md"
SEARCH_NOTE = (
    'searched without reading scores (`scores="none"`), with the shortlist of a model where it has one'
)
STAGE_TITLES = {
    "text": "decode the sources",
    "translate": "translate them",
    "pairs": "choose and filter",
    "data": "prepare the data",
    "train": "train the student",
    "quantize": "quantize",
    "report": "measure",
}


def write_report(run: Path, report: Mapping[str, Any]) -> None:
    """Write both files into the run's folder."""
    texts = {
        REPORT_MARKDOWN: format_report(report),
        REPORT_JSON: json.dumps(report, ensure_ascii=False, indent=1) + "\n",
    }
    for name, text in texts.items():
        with report_disk_full(run / name, len(text)):
            write_text_atomically(run / name, text)


def has_report(run: Path) -> bool:
    return all((run / name).exists() for name in (REPORT_MARKDOWN, REPORT_JSON))


def format_report(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    sections = {
        "Quality": format_quality(report["quality"]),
        "Speed": format_speed(report["speed"], report["cpu"]),
        "Size": format_size(report["megabytes"]),
        "Data": format_data(report["pairs"]),
        "Time": format_time(report["seconds"]),
    }
    pair = f"{report['languages']['source']} to {report['languages']['target']}"
    title = f"# A student of {', '.join(report['teachers'])}, {pair}\n\n`{report['command']}`"
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items()]
    return "\n\n".join([title, *parts]) + "\n"


def format_quality(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """List the scores, and how far each is from the teacher's with the same beam."""
    if not rows:
        yield "Not measured: the data has no held-out pairs."
        return
    teacher = {
        (row["test_set"], row["beam"]): row["bleu"]["value"] for row in rows if row["system"] == TEACHER
    }
    cells = [
        [
            row["test_set"],
            row["system"],
            describe_beam(row["beam"]),
            format_score(Score(**row["bleu"])),
            f"{row['bleu']['value'] - teacher[row['test_set'], row['beam']]:+.2f}",
            format_score(Score(**row["chrf"])),
            f"{row['length_ratio']:.3f}",
            row["engine"],
        ]
        for row in rows
    ]
    head = ["test set", "system", "search", "BLEU", "to the teacher", "chrF", "length ratio", "engine"]
    yield format_markdown_table(head, cells)
    yield ""
    for metric in ("bleu", "chrf"):
        signatures = dict.fromkeys(row[metric]["signature"] for row in rows)
        yield f"- {rows[0][metric]['name']}: {', '.join(f'`{signature}`' for signature in signatures)}"
    yield "- ±: half of the 95 % confidence interval, by bootstrap"
    yield f"- {SEARCH_NOTE}"


def format_speed(rows: Sequence[Mapping[str, Any]], cpu: str) -> Iterator[str]:
    """List words per second, and how many times those of the teacher in the same setting."""
    if not rows:
        yield "Not measured."
        return
    keys = ("engine", "beam", "batch_size")
    teacher = {
        tuple(row[key] for key in keys): row["words_per_second"] for row in rows if row["system"] == TEACHER
    }
    cells = []
    for row in rows:
        if row["system"] == INT8_STUDENT:
            base, words = teacher[tuple(row[key] for key in keys)], row["words_per_second"]
            times = f"{words / base:.1f}" if words and base else "-"
            measured = [f"{value:,.0f}" if value else "-" for value in (base, words)]
            cells.append(
                [row["engine"], describe_beam(row["beam"]), str(row["batch_size"]), *measured, times]
            )
    yield f"Source words per second on the CPU ({cpu}), sentences of the test sets:"
    yield ""
    head = ["engine", "search", "sentences at once", TEACHER, INT8_STUDENT, "times"]
    yield format_markdown_table(head, cells)
    yield ""
    yield f"- teacher and student translate the same sentences\n- {SEARCH_NOTE}"


def format_size(megabytes: Mapping[str, float]) -> Iterator[str]:
    rows = [[system, f"{megabytes[system]:.1f}"] for system in (TEACHER, STUDENT, INT8_STUDENT)]
    yield format_markdown_table(["model", "MB (10^6 bytes)"], rows)


def format_data(pairs: Mapping[str, int]) -> Iterator[str]:
    dropped = {
        reason: count for reason, count in pairs.items() if reason not in ("kept", "unknown", "learned")
    }
    if pairs["unknown"]:
        yield f"- {pairs['unknown']:,} pairs skipped: characters that the subwords of the data do not know"
    yield f"- {pairs['kept'] + sum(dropped.values()):,} sources translated by the teacher"
    for reason, count in dropped.items():
        if count:
            yield f"- {count:,} dropped: {reason}"
    yield f"- {pairs['learned']:,} pairs after cleaning, which the student learned from"


def format_time(seconds: Mapping[str, float]) -> Iterator[str]:
    rows = [[STAGE_TITLES[stage], f"{value:,.1f}"] for stage, value in seconds.items()]
    yield format_markdown_table(["stage", "seconds"], [*rows, ["all", f"{sum(seconds.values()):,.1f}"]])
