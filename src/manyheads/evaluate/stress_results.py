"""The results of the stress tests, as text, Markdown and JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from manyheads.evaluate.bleu import Score

PER = 10_000  # outputs to which failures are scaled
FAILURE_NAMES = {
    "loops": "loops",
    "empty": "empty",
    "too_long": "over the length limit",
    "invalid": "with U+FFFD",
}


@dataclass(frozen=True)
class Failures:
    """Outputs that are wrong whatever the reference says."""

    outputs: int = 0
    loops: int = 0
    empty: int = 0  # although the source has letters or digits
    too_long: int = 0  # more tokens than the source plus decoding.max_extra_length
    invalid: int = 0  # with U+FFFD, which stands for bytes that are not UTF-8

    def __add__(self, other: "Failures") -> "Failures":
        names = [field.name for field in fields(self)]
        return Failures(*(getattr(self, name) + getattr(other, name) for name in names))

    def rate(self, name: str) -> float:
        """Return how many of 10,000 outputs fail in this way."""
        return PER * float(getattr(self, name)) / max(1, self.outputs)


@dataclass(frozen=True)
class StressRow:
    """The scores of one case. Both are without case where `ignores_case` is set."""

    name: str
    description: str
    lines: int
    ignores_case: bool
    bleu: Score
    chrf: Score
    clean_chrf: float  # of the clean lines, scored in the same way; those joined for long lines
    failures: Failures
    capitals: float | None = None  # share of the outputs in capitals, of the case "capitals"

    @property
    def relative_chrf(self) -> float:
        """The chrF divided by that of the clean lines."""
        return self.chrf.value / self.clean_chrf if self.clean_chrf else math.nan


@dataclass(frozen=True)
class CopyRow:
    """How many tokens of a category come out as they went in."""

    category: str
    tokens: int
    intact: int
    examples: list[tuple[str, str]]  # tokens that did not, with the translations

    @property
    def share(self) -> float:
        return self.intact / max(1, self.tokens)


@dataclass(frozen=True)
class WordRow:
    """Single words, without references: an output is sound if it is not empty, no loop and no sentence."""

    words: int
    sound: int
    examples: list[tuple[str, str]]  # words that are not, with their outputs


@dataclass(frozen=True)
class Calibration:
    """How much the confidences are worth, on the clean lines."""

    lines: int
    adequate_chrf: float  # a translation with at least this chrF counts as adequate
    adequate: float  # share of the lines
    mean_confidence: float
    ece: float | None  # None where a number is not defined
    auroc_adequate: float | None
    auroc_shuffled: float | None  # clean sources against the same with their words shuffled
    coverage: list[float]
    risk: list[float]  # 1 - chrF / 100, mean of the lines with the highest confidence


@dataclass(frozen=True)
class StressReport:
    """The results of `run_stress_tests`."""

    languages: tuple[str, str]
    engine: str
    lines: int
    seed: int
    rows: list[StressRow]  # the first is the clean one
    skipped: list[str]  # cases that change nothing in these sources, such as capitals of Korean
    copies: list[CopyRow]
    words: WordRow
    failures: Failures
    calibration: Calibration | None  # None: the model has no confidences

    @property
    def clean(self) -> StressRow:
        return self.rows[0]

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for row, listed in zip(self.rows, values["rows"], strict=True):
            listed["relative_chrf"] = None if math.isnan(row.relative_chrf) else row.relative_chrf
        for copied, listed in zip(self.copies, values["copies"], strict=True):
            listed["share"] = copied.share
        values["failures_per_10000"] = {name: self.failures.rate(name) for name in FAILURE_NAMES}
        return values

    def to_text(self) -> str:
        title = f"{self.lines:,} lines, {' to '.join(self.languages)}, by {self.engine}, seed {self.seed}"
        tables = [format_text_table(*self._score_table()), format_text_table(*self._copy_table())]
        return "\n\n".join([title, *tables, "\n".join(self._notes())])

    def to_markdown(self) -> str:
        notes = [f"- {escape_asterisks(note)}" for note in self._notes()]
        tables = [format_markdown_table(*self._score_table()), format_markdown_table(*self._copy_table())]
        return "\n\n".join([*tables, "\n".join(notes)])

    def _score_table(self) -> tuple[list[str], list[list[str]]]:
        head = ["case", "lines", "BLEU", "chrF", "of clean", "loops", "empty"]
        rows = [
            [
                row.name + ("*" if row.ignores_case else ""),
                f"{row.lines:,}",
                format_score(row.bleu),
                format_score(row.chrf),
                "-" if math.isnan(row.relative_chrf) else f"{row.relative_chrf:.0%}",
                str(row.failures.loops),
                str(row.failures.empty),
            ]
            for row in self.rows
        ]
        return head, rows

    def _copy_table(self) -> tuple[list[str], list[list[str]]]:
        total = CopyRow("all", sum(row.tokens for row in self.copies), self.num_intact, [])
        rows = [
            [row.category, f"{row.tokens:,}", f"{row.share:.1%}" if row.tokens else "-"]
            for row in (*self.copies, total)
        ]
        return ["copied tokens", "sentences", "intact"], rows

    @property
    def num_intact(self) -> int:
        return sum(row.intact for row in self.copies)

    def _notes(self) -> Iterable[str]:
        cases = "; ".join(f"{row.name}: {row.description}" for row in self.rows[1:])
        yield f"cases: {cases}" + (f"; nothing to change for: {', '.join(self.skipped)}" * bool(self.skipped))
        yield f"signatures: BLEU {self.clean.bleu.signature}; chrF {self.clean.chrf.signature}"
        if caseless := [row for row in self.rows if row.ignores_case]:
            yield (
                f"* scored without case: BLEU {caseless[0].bleu.signature}; chrF {caseless[0].chrf.signature}"
            )
        for row in self.rows:
            if row.capitals is not None:
                yield f"{row.name}: {row.capitals:.1%} of the outputs are in capitals"
        words = self.words
        yield (
            f"single words: {words.sound:,} of {words.words:,} have a sound output (not empty, no loop, "
            f"no sentence)"
        )
        rates = ", ".join(f"{text} {self.failures.rate(name):.1f}" for name, text in FAILURE_NAMES.items())
        yield f"per 10,000 of all {self.failures.outputs:,} outputs: {rates}"
        yield format_calibration(self.calibration)


def format_calibration(calibration: Calibration | None) -> str:
    if calibration is None:
        return "confidence: the model has none"
    return (
        f"confidence: ECE {format_number(calibration.ece)} (adequate is chrF of at least "
        f"{calibration.adequate_chrf:g}: {calibration.adequate:.1%} of the lines, mean confidence "
        f"{calibration.mean_confidence:.3f}), AUROC {format_number(calibration.auroc_adequate)} for adequate "
        f"translations, {format_number(calibration.auroc_shuffled)} for clean against shuffled sources"
    )


def format_score(score: Score) -> str:
    margin = "" if score.margin_of_error is None else f" ± {score.margin_of_error:.2f}"
    return f"{score.value:.2f}{margin}"


def format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def format_text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align the columns, the first to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    )


def escape_asterisks(text: str) -> str:
    return text.replace("*", r"\*")


def format_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {escape_asterisks(' | '.join(row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|---|{'---:|' * (len(head) - 1)}", *lines[1:]])
