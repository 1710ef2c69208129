"""What a model is not for, in sentences: generated from what the stress tests measured."""

from collections.abc import Iterator

from manyheads.evaluate.stress_results import FAILURE_NAMES, StressReport

BROKEN_SHARE = 0.5  # of the chrF of clean lines: a case below it is broken
WEAK_SHARE = 0.8
MIN_CHRF = 40.0  # of clean lines; below it nothing should be used without review
MIN_INTACT = 0.95  # of copied tokens
MIN_SOUND = 0.9  # of single words
MAX_FAILURES = 10.0  # of 10,000 outputs
MIN_AUROC = 0.8  # of confidence, clean against shuffled sources

CASE_TEXTS = {
    "capitals": "text in capitals",
    "lower case": "text in lower case",
    "title case": "text In Title Case",
    "typos": "text with typos",
    "no punctuation": "text without punctuation",
    "spacing": "text with wrong spaces",
    "shortest lines": "very short lines",
    "long lines": "long lines that are not split into sentences",
}


def list_weaknesses(report: StressReport) -> list[str]:
    """Return sentences about everything that the model does badly, the worst first."""
    return [
        *describe_clean(report),
        *describe_cases(report),
        *describe_copies(report),
        *describe_failures(report),
        *describe_confidence(report),
    ]


def describe_clean(report: StressReport) -> Iterator[str]:
    if (score := report.clean.chrf.value) < MIN_CHRF:
        yield f"Not without review: chrF is {score:.1f} even on clean text like that of its training."


def describe_cases(report: StressReport) -> Iterator[str]:
    for name, limit in (("Not for", BROKEN_SHARE), ("Weak on", WEAK_SHARE)):
        for row in report.rows[1:]:
            is_broken = row.relative_chrf < BROKEN_SHARE
            if row.relative_chrf < limit and is_broken == (limit == BROKEN_SHARE):
                scores = f"chrF {row.chrf.value:.1f} instead of {row.clean_chrf:.1f}"
                yield f"{name} {CASE_TEXTS[row.name]}: {scores}."


def describe_copies(report: StressReport) -> Iterator[str]:
    lost = [row for row in report.copies if row.tokens and row.share < MIN_INTACT]
    if lost:
        categories = ", ".join(f"{row.category} {row.share:.0%}" for row in lost)
        yield f"Not for text with tokens that must be kept: so many came out intact: {categories}."


def describe_failures(report: StressReport) -> Iterator[str]:
    rates = {text: report.failures.rate(name) for name, text in FAILURE_NAMES.items()}
    often = [f"{text} {rate:.0f}" for text, rate in rates.items() if rate > MAX_FAILURES]
    if often:
        yield f"Not without a check of its output: of 10,000 outputs of these tests, {', '.join(often)}."
    if report.words.sound < MIN_SOUND * report.words.words:
        yield (
            f"Not as a dictionary: {report.words.words - report.words.sound} of {report.words.words} single "
            f"words became a sentence, a loop or nothing."
        )


def describe_confidence(report: StressReport) -> Iterator[str]:
    if report.calibration is None:
        yield "It does not say how sure it is: the model has no confidences."
        return
    auroc = report.calibration.auroc_shuffled
    if auroc is not None and auroc < MIN_AUROC:
        yield f"Its confidence tells sentences from shuffled words with an AUROC of {auroc:.2f} only."
