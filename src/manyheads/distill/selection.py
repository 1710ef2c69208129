"""Stage 3: one hypothesis of each n-best list, and the filters.

Pairs of all shards of an input become two files. Sentence scores take most of the time, so that several
processes share the shards; this module imports nothing that is slow to import.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from manyheads.config import DistillConfig
from manyheads.errors import DataError
from manyheads.evaluate.bleu import sentence_bleu, sentence_chrf
from manyheads.text.plain_lines import read_plain_lines
from manyheads.worker_processes import create_process_pool

EMPTY, LOW_SCORE, LOW_CONFIDENCE = "empty", "low score", "low confidence"


class ScoredText(NamedTuple):
    """A hypothesis of the teacher."""

    score: float  # log-probability per token
    confidence: float | None
    text: str


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard."""

    source: Path
    translation: Path  # n-best lists
    reference: Path | None


@dataclass(frozen=True)
class ShardSelector:
    """Chooses and filters the hypotheses of shards. It is sent to other processes."""

    config: DistillConfig
    target_language: str

    def select_shard(self, files: ShardFiles, out: tuple[Path, Path]) -> Counter[str]:
        """Write the pairs that are kept, a file for each side. Return counts, also of reasons to drop."""
        counts: Counter[str] = Counter(kept=0)
        with (
            out[0].open("w", encoding="utf-8", newline="\n") as sources,
            out[1].open("w", encoding="utf-8", newline="\n") as targets,
        ):
            for source, hypotheses, reference in read_shard(files):
                chosen = choose_hypothesis(hypotheses, reference, self.config.choose, self.target_language)
                reason = find_reason_to_drop(chosen, self.config)
                counts[reason or "kept"] += 1
                if not reason:
                    sources.write(f"{source}\n")
                    targets.write(f"{chosen.text}\n")
        return counts


def read_shard(files: ShardFiles) -> Iterator[tuple[str, list[ScoredText], str | None]]:
    """Yield the source, the hypotheses and the reference of each line."""
    references: Iterable[str | None] = read_plain_lines(files.reference) if files.reference else ()
    rows = zip_longest(read_plain_lines(files.source), read_plain_lines(files.translation), references)
    for source, line, reference in rows:
        if source is None or line is None:
            raise DataError(
                f"{files.translation}: has not as many lines as {files.source}: delete it, and run the same "
                f"command again"
            )
        yield source, [ScoredText(*values) for values in json.loads(line)], reference


def choose_hypothesis(
    hypotheses: Sequence[ScoredText], reference: str | None, metric: str, language: str
) -> ScoredText:
    """Return the hypothesis that is best by a metric; of equals, and without a reference, the likeliest."""
    if metric == "score" or reference is None or len(hypotheses) == 1:
        return hypotheses[0]  # they are in the order of their scores
    if metric == "chrf":
        return max(hypotheses, key=lambda hypothesis: sentence_chrf(hypothesis.text, reference))
    return max(hypotheses, key=lambda hypothesis: sentence_bleu(hypothesis.text, reference, language))


def find_reason_to_drop(chosen: ScoredText, config: DistillConfig) -> str | None:
    """Return why a pair is not kept. A line with nothing to translate has no confidence, and stays."""
    if not chosen.text:
        return EMPTY
    if config.min_score is not None and chosen.score < config.min_score:
        return LOW_SCORE
    confidence = 1.0 if chosen.confidence is None else chosen.confidence
    if config.min_confidence is not None and confidence < config.min_confidence:
        return LOW_CONFIDENCE
    return None


def select_shards(
    selector: ShardSelector, shards: Sequence[ShardFiles], folder: Path, num_processes: int
) -> Iterator[tuple[tuple[Path, Path], Counter[str]]]:
    """Yield the files and the counts of each shard, in their order."""
    names = [files.source.name for files in shards]
    outs = [(folder / f"{name}.source", folder / f"{name}.target") for name in names]
    if num_processes == 1 or len(shards) == 1:
        yield from zip(outs, map(selector.select_shard, shards, outs), strict=True)
        return
    num_processes = min(num_processes, len(shards))
    with create_process_pool(num_processes, "spawn", "end other processes") as pool:
        yield from zip(outs, pool.map(selector.select_shard, shards, outs), strict=True)


def append_file(path: Path, out: Path) -> None:
    """Add the content of a file to another one, and remove it."""
    with path.open("rb") as part, out.open("ab") as whole:
        shutil.copyfileobj(part, whole)
    os.unlink(path)
