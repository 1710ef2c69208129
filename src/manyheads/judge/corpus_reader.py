"""Reading the corpus that is judged: several passes that yield the same pairs in the same order."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from manyheads.config import Recipe
from manyheads.data.filtering import DropLog, InputReport, make_byte_progress, read_normalized_pairs
from manyheads.data.held_out import sample_reservoir
from manyheads.errors import DataError
from manyheads.progress import ReportProgress
from manyheads.text.clean import Cleaner
from manyheads.text.corpus import SentencePair

MIN_PAIRS = 200  # of a corpus that models can learn from


class Position(NamedTuple):
    """Where a pair comes from: the number of its input, and its line."""

    input: int
    line: int


class CorpusReader:
    """Reads the pairs of a recipe's training inputs, always in the same order."""

    def __init__(self, recipe: Recipe, report_progress: ReportProgress) -> None:
        self.recipe, self.report_progress = recipe, report_progress
        self.reports: list[InputReport] = []  # of the latest pass
        self.num_pairs = 0

    def read(self, stage: str) -> Iterator[tuple[Position, SentencePair]]:
        cleaner = Cleaner(self.recipe.clean, self.recipe.corpus)
        log = DropLog(self.recipe.corpus.on_invalid, None)
        progress = make_byte_progress(stage, self.recipe.train, self.report_progress)
        self.reports = [InputReport(item.name, item.files, item.weight) for item in self.recipe.train]
        for number, (item, report) in enumerate(zip(self.recipe.train, self.reports, strict=True)):
            for pair in read_normalized_pairs(item, "train", cleaner, log, report, progress):
                yield Position(number, pair.line), pair

    def sample(self, count: int, seed: int) -> tuple[list[str], list[str]]:
        """Return the sides of sampled pairs, in the order of the files."""
        stream = (pair._replace(line=n) for n, (_, pair) in enumerate(self.read("sampling")))
        pairs, self.num_pairs = sample_reservoir(stream, count, random.Random(seed))
        if self.num_pairs < MIN_PAIRS:
            raise DataError(
                f"{self.num_pairs:,} pairs, but judging learns from the corpus and needs at least "
                f"{MIN_PAIRS:,}: add text, or look at the pairs yourself"
            )
        pairs.sort(key=lambda pair: pair.line)
        return [pair.source for pair in pairs], [pair.target for pair in pairs]
