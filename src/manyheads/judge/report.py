"""The report on a judged corpus: scores, reasons, the worst pairs, samples, and the inputs to distrust."""

import heapq
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from manyheads.data.judged import Row
from manyheads.errors import DataError
from manyheads.judge.corpus_reader import CorpusReader, Position
from manyheads.judge.reasons import GOOD_SCORE
from manyheads.text.corpus import SentencePair

NUM_BINS = 20  # of the histogram
NUM_WORST, NUM_SAMPLES = 100, 5  # pairs that are listed: the worst, and of each tenth of the scores
BAR_WIDTH = 40
MAX_CHARACTERS = 160  # of a side in the report
SEED = 1
MARKUP = re.compile(r"[&<>|`\[\]\\]")  # of Markdown and HTML, outside of words


class ListedPair(NamedTuple):
    """A pair in the report."""

    file: str
    line: int
    score: float
    reason: str
    source: str
    target: str


@dataclass
class InputSummary:
    """The pairs of an input: how many are bad, and why."""

    name: str
    files: tuple[str, ...]
    pairs: int = 0
    bad: int = 0
    total_score: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    invalid: dict[str, int] = field(default_factory=dict)

    @property
    def bad_share(self) -> float:
        return self.bad / max(1, self.pairs)


@dataclass
class JudgeReport:
    """Counts over all pairs, and pairs to look at."""

    languages: tuple[str, str]
    pairs: int = 0
    bad: int = 0  # with a score below 0.5
    histogram: list[int] = field(default_factory=lambda: [0] * NUM_BINS)
    reasons: Counter[str] = field(default_factory=Counter)
    inputs: list[InputSummary] = field(default_factory=list)
    worst: list[ListedPair] = field(default_factory=list)
    samples: list[list[ListedPair]] = field(default_factory=list)  # of each tenth of the scores, lowest first

    def to_dict(self) -> dict[str, Any]:
        inputs = [
            {**vars(item), "reasons": dict(item.reasons.most_common()), "bad_share": item.bad_share}
            for item in self.inputs
        ]
        return {
            **vars(self),
            "reasons": dict(self.reasons.most_common()),
            "inputs": inputs,
            "worst": [pair._asdict() for pair in self.worst],
            "samples": [[pair._asdict() for pair in sample] for sample in self.samples],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"

    def to_text(self) -> str:
        """Return what the command prints."""
        lines = [
            f"{self.pairs:,} pairs, {' to '.join(self.languages)}: {self.bad:,} "
            f"({self.bad / max(1, self.pairs):.1%}) score below {GOOD_SCORE:g}",
            *format_histogram(self.histogram),
            *(f"{count:>12,}  {reason}" for reason, count in self.reasons.most_common()),
        ]
        for summary in sorted(self.inputs, key=lambda item: -item.bad_share):
            lines.append(
                f"{summary.name}: {summary.bad:,} of {summary.pairs:,} bad ({summary.bad_share:.1%})"
            )
        return "\n".join(lines)

    def to_markdown(self) -> str:
        parts = [f"# Judged pairs\n\n```\n{self.to_text()}\n```", "## Inputs, the most suspicious first"]
        rows = [
            [
                item.name, f"{item.pairs:,}", f"{item.bad_share:.1%}",
                f"{item.total_score / max(1, item.pairs):.3f}",
                ", ".join(f"{reason} {count:,}" for reason, count in item.reasons.most_common(3)) or "-",
                ", ".join(f"{reason} {count:,}" for reason, count in item.invalid.items()) or "-",
            ]
            for item in sorted(self.inputs, key=lambda item: -item.bad_share)
        ]  # fmt: skip
        parts.append(format_table(["input", "pairs", "bad", "mean score", "reasons", "not readable"], rows))
        parts.append(f"## The worst {len(self.worst)}\n\n{format_pairs(self.worst)}")
        parts.append("## Samples of each tenth of the scores")
        for number, sample in enumerate(self.samples):
            parts.append(f"### {10 * number} to {10 * (number + 1)} %\n\n{format_pairs(sample)}")
        return "\n\n".join(parts) + "\n"


def collect_report(
    rows: Iterable[Row], pairs: Iterator[tuple[Position, SentencePair]], reader: CorpusReader
) -> JudgeReport:
    """Join the scores with the text that they are of, in one pass over both."""
    corpus = reader.recipe.corpus
    report = JudgeReport((corpus.source, corpus.target))
    report.inputs = [InputSummary(item.name, item.files) for item in reader.recipe.train]
    collector = PairCollector()
    for (position, pair), (file, line, score, reason) in zip(pairs, rows, strict=True):
        if line != position.line:
            raise DataError(f"{file}:{line}: the file changed while it was judged: judge it again")
        summary, base = report.inputs[position.input], reason.partition(" of ")[0]
        report.pairs += 1
        summary.pairs += 1
        summary.total_score += score
        report.histogram[min(NUM_BINS - 1, int(score * NUM_BINS))] += 1
        if score < GOOD_SCORE:
            report.bad += 1
            summary.bad += 1
            report.reasons[base] += 1
            summary.reasons[base] += 1
        collector.add(ListedPair(file, line, score, reason, shorten(pair.source), shorten(pair.target)))
    for summary, input_report in zip(report.inputs, reader.reports, strict=True):
        summary.invalid = dict(input_report.invalid.most_common())
    report.worst, report.samples = collector.get_worst(), collector.get_samples()
    return report


class PairCollector:
    """Keeps the worst pairs, and a random sample of which the deciles are shown."""

    def __init__(self) -> None:
        self.rng = random.Random(SEED)
        self.worst: list[tuple[float, int, ListedPair]] = []  # a heap of negative scores
        self.sample: list[ListedPair] = []
        self.count = 0

    def add(self, pair: ListedPair) -> None:
        entry = (-pair.score, -self.count, pair)
        if len(self.worst) < NUM_WORST:
            heapq.heappush(self.worst, entry)
        elif entry > self.worst[0]:
            heapq.heapreplace(self.worst, entry)
        size = 100 * NUM_SAMPLES
        index = self.count if self.count < size else int(self.rng.random() * (self.count + 1))
        if index < size:
            self.sample[index : index + 1] = [pair]
        self.count += 1

    def get_worst(self) -> list[ListedPair]:
        return [pair for _, _, pair in sorted(self.worst, reverse=True)]

    def get_samples(self) -> list[list[ListedPair]]:
        ranked = sorted(self.sample, key=lambda pair: pair.score)
        tenths = [ranked[len(ranked) * n // 10 : len(ranked) * (n + 1) // 10] for n in range(10)]
        return [
            sorted(self.rng.sample(tenth, min(NUM_SAMPLES, len(tenth))), key=lambda pair: pair.score)
            for tenth in tenths
        ]


def shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def format_histogram(counts: list[int]) -> Iterator[str]:
    peak = max(1, *counts)
    for number, count in enumerate(counts):
        bar = "▒" * round(BAR_WIDTH * count / peak)
        yield f"{number / len(counts):.2f}-{(number + 1) / len(counts):.2f}  {count:>11,}  {bar}".rstrip()


def format_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, whose cells may hold any text: markup of a corpus is shown, not used."""
    lines = [head, ["---"] * len(head), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def escape_markdown(text: str) -> str:
    """Write what could be a tag, an entity, a link, an image or code as numbers of characters."""
    return MARKUP.sub(lambda match: f"&#{ord(match.group())};", " ".join(text.splitlines()))


def format_pairs(pairs: list[ListedPair]) -> str:
    rows = [[f"{p.score:.3f}", p.reason, f"{p.file}:{p.line}", p.source, p.target] for p in pairs]
    return format_table(["score", "reason", "place", "source", "target"], rows)
