"""Filtering pairs, and the account of it: what each input gave, what was dropped and why."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from manyheads.config import InputConfig
from manyheads.data.judged import JUDGED_BAD, ScorePass
from manyheads.errors import DataError
from manyheads.progress import ReportProgress, make_counter
from manyheads.text.clean import DUPLICATE, LEAKAGE, LENGTH_RATIO, WRONG_SCRIPT, Cleaner, SeenKeys, hash_pairs
from manyheads.text.corpus import SentencePair, read_pairs
from manyheads.text.invalid import (
    INVALID_UTF8,
    NO_COUNTERPART,
    NO_LANGUAGE,
    STRUCTURAL,
    WRONG_COLUMNS,
    WRONG_JSON,
    InvalidRecord,
)

HELD_OUT = "held out for valid or test"
MAX_LISTED_CHARACTERS = 100  # of each side of a dropped pair
HINTS = {
    WRONG_COLUMNS: "Choose columns with --fields 2,4 or by their names, --fields en,ko",
    WRONG_JSON: "Choose keys with --fields, such as translation.en,translation.ko",
    INVALID_UTF8: "If the file has another encoding: iconv -f EUC-KR -t UTF-8 converts it",
    NO_LANGUAGE: "Choose languages with --pair, or corpus.source and corpus.target",
    WRONG_SCRIPT: "Are source and target swapped, or the languages others (--pair)?",
    LENGTH_RATIO: "Are source and target the right columns (--fields)? Or set clean.max_length_ratio",
    JUDGED_BAD: "Keep more with --keep, such as --keep 0.9",
    LEAKAGE: "Is valid or test the same text? clean.leakage=false keeps it",
    HELD_OUT: "The text is too small to hold out pairs: corpus.hold_out=0",
}


@dataclass
class InputReport:
    """Counts of what became of the records of an input."""

    name: str
    files: tuple[str, ...]
    weight: float
    read: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    normalized: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    first: dict[str, str] = field(default_factory=dict)  # the first case of each reason

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON, the most frequent reasons first."""
        counts = {key: dict(getattr(self, key).most_common()) for key in ("invalid", "dropped", "normalized")}
        plain = {key: getattr(self, key) for key in ("name", "files", "weight", "read", "kept")}
        return plain | counts


class DropLog:
    """Lists dropped pairs and invalid records in a file. The policy decides whether invalid records stop."""

    def __init__(self, policy: str, file: IO[str] | None) -> None:
        self.policy, self.file = policy, file
        self._write("split", "file", "line", "reason", "detail", "source", "target")

    def handle_invalid(self, split: str, record: InvalidRecord, report: InputReport) -> None:
        if self.policy == "stop" or (self.policy == "default" and record.reason in STRUCTURAL):
            raise DataError(f"{record}. {suggest_remedy(record)}")
        report.invalid[record.reason] += 1
        report.first.setdefault(record.reason, str(record))
        self._write(split, record.file, str(record.line), record.reason, record.detail, "", "")

    def record_drop(
        self, split: str, pair: SentencePair, reason: str, detail: str, report: InputReport
    ) -> None:
        report.dropped[reason] += 1
        file = report.files[-1 if detail.startswith("target") else 0]
        report.first.setdefault(reason, f"{file}:{pair.line}: {reason}" + (f" ({detail})" if detail else ""))
        sides = pair.source[:MAX_LISTED_CHARACTERS], pair.target[:MAX_LISTED_CHARACTERS]
        self._write(split, file, str(pair.line), reason, detail, *sides)

    def _write(self, *cells: str) -> None:
        if self.file:
            self.file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def suggest_remedy(record: InvalidRecord) -> str:
    if record.reason == NO_COUNTERPART:
        return "Lines may be misaligned: align the files, or skip the rest with --on-invalid skip"
    return "Correct it, or skip it with --on-invalid skip"


def read_normalized_pairs(
    input_config: InputConfig,
    split: str,
    cleaner: Cleaner,
    log: DropLog,
    report: InputReport,
    progress: Callable[[int], None],
) -> Iterator[SentencePair]:
    """Yield the normalized pairs of an input, and pass invalid records to the log."""
    before = cleaner.normalized.copy()
    for record in read_pairs(input_config, cleaner.corpus, progress):
        report.read += 1
        if isinstance(record, InvalidRecord):
            log.handle_invalid(split, record, report)
        else:
            source, target = cleaner.normalize(record.source), cleaner.normalize(record.target)
            yield SentencePair(source, target, record.line)
    report.normalized = cleaner.normalized - before


def filter_pairs(
    pairs: list[SentencePair],
    cleaner: Cleaner,
    held_out: dict[tuple[str, str], str],
    log: DropLog,
    report: InputReport,
) -> Iterator[SentencePair]:
    """Yield the pairs that no filter rejects. `held_out` maps pairs taken from the text to their split."""
    for pair in pairs:
        if split := held_out.get((pair.source, pair.target)):
            log.record_drop("train", pair, HELD_OUT, split, report)
        elif rejection := cleaner.find_rejection(pair.source, pair.target):
            log.record_drop("train", pair, *rejection, report)
        else:
            yield pair


def drop_judged_bad(
    pairs: list[SentencePair], scores: ScorePass | None, log: DropLog, report: InputReport
) -> Iterator[SentencePair]:
    """Yield the pairs that are not judged bad. They are read in the order in which they were judged."""
    for pair in pairs:
        score = scores.get_next(report.files[0], pair.line) if scores else 1.0
        if scores and score < scores.min_score:
            log.record_drop("train", pair, JUDGED_BAD, f"score {score:.3f}", report)
        else:
            yield pair


def drop_duplicates(
    pairs: list[SentencePair], seen: SeenKeys, log: DropLog, report: InputReport
) -> Iterator[SentencePair]:
    are_new = seen.add(hash_pairs((pair.source, pair.target) for pair in pairs))
    for pair, is_new in zip(pairs, are_new.tolist(), strict=True):
        if is_new:
            yield pair
        else:
            log.record_drop("train", pair, DUPLICATE, "", report)


def explain_empty(reports: list[InputReport]) -> str:
    """Say why no pair is left: the reasons with counts, the first case of the commonest, and a hint."""
    read = sum(report.read for report in reports)
    reasons: Counter[str] = sum((report.invalid + report.dropped for report in reports), Counter())
    if not reasons:
        return f"{read:,} read; the files are empty"
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    commonest = reasons.most_common(1)[0][0]
    first = next(report.first[commonest] for report in reports if commonest in report.first)
    hint = HINTS.get(commonest, "Filters are set with clean.KEY=VALUE")
    return f"{read:,} read; {counts}. The first: {first}. {hint}"


def make_byte_progress(
    stage: str, inputs: Iterable[InputConfig], report_progress: ReportProgress
) -> Callable[[int], None]:
    """Return a callback that adds up bytes read, out of the size of all files."""
    total = sum(get_file_size(file) for input_config in inputs for file in input_config.files)
    return make_counter(report_progress, stage, total)


def get_file_size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None
