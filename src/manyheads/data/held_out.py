"""Validation and test pairs: read from their files, or held out of the training text."""

import random
from collections.abc import Iterable
from pathlib import Path

from manyheads.config import InputConfig, Recipe
from manyheads.data.filtering import DropLog, InputReport, make_byte_progress, read_normalized_pairs
from manyheads.data.judged import JudgedScores
from manyheads.errors import DataError
from manyheads.progress import ReportProgress
from manyheads.text.clean import Cleaner
from manyheads.text.corpus import SentencePair

HeldOut = dict[str, list[SentencePair]]  # by split
MAX_SHARE = 20  # at most one pair in so many is held out for each split


def load_held_out(
    recipe: Recipe, judged: JudgedScores | None, log: DropLog, report_progress: ReportProgress
) -> tuple[HeldOut, dict[str, list[InputReport]]]:
    """Read valid and test. If the recipe has no valid, sample what is missing from the training text."""
    held_out: HeldOut = {}
    reports: dict[str, list[InputReport]] = {}
    for split in ("valid", "test"):
        if getattr(recipe, split):
            held_out[split], reports[split] = read_held_out_split(recipe, split, log, report_progress)
    if "valid" not in held_out and recipe.corpus.hold_out:
        missing = [split for split in ("valid", "test") if split not in held_out]
        sample = sample_held_out(recipe, judged, len(missing), held_out, report_progress)
        for number, split in enumerate(missing if sample else []):
            pairs = held_out[split] = sample[number :: len(missing)]
            reports[split] = [InputReport("out of train", (), 1.0, len(pairs), kept=len(pairs))]
    return held_out, reports


def read_held_out_split(
    recipe: Recipe, split: str, log: DropLog, report_progress: ReportProgress
) -> tuple[list[SentencePair], list[InputReport]]:
    """Read valid or test. Pairs are normalized but never filtered: a score is of the whole set."""
    cleaner = Cleaner(recipe.clean, recipe.corpus)
    inputs: tuple[InputConfig, ...] = getattr(recipe, split)
    progress = make_byte_progress(f"reading {split}", inputs, report_progress)
    pairs: list[SentencePair] = []
    reports: list[InputReport] = []
    for input_config in inputs:
        report = InputReport(input_config.name, input_config.files, input_config.weight)
        before = len(pairs)
        pairs.extend(read_normalized_pairs(input_config, split, cleaner, log, report, progress))
        report.kept = len(pairs) - before
        reports.append(report)
    if inputs and not pairs:
        files = ", ".join(file for input_config in inputs for file in input_config.files)
        raise DataError(f"{split}: no valid pair in {files}")
    return pairs, reports


def sample_held_out(
    recipe: Recipe,
    judged: JudgedScores | None,
    num_splits: int,
    held_out: HeldOut,
    report_progress: ReportProgress,
) -> list[SentencePair]:
    """Sample pairs of the training text that pass the filters and share no side, in a pass of their own.

    As many as the recipe says for each split, but no more than a twentieth of the text. Where the text is
    judged, all of them are good. Inputs with a tag are synthetic, and not sampled.
    """
    cleaner = Cleaner(recipe.clean, recipe.corpus, index_sides(held_out))
    silent_log = DropLog(recipe.corpus.on_invalid, None)
    real = [train for train in recipe.train if not train.tag]
    check_readable_twice(real)
    progress = make_byte_progress("sampling held-out pairs", real, report_progress)
    scores = judged.start_pass() if judged else None
    clean_pairs = (
        pair
        for train in real
        for pair in read_normalized_pairs(
            train, "train", cleaner, silent_log, InputReport(train.name, train.files, 1.0), progress
        )
        if (scores is None or scores.is_next_good(train.files[0], pair.line))
        and cleaner.find_rejection(pair.source, pair.target) is None
    )
    wanted = recipe.corpus.hold_out * num_splits
    rng = random.Random(recipe.corpus.seed)
    sample, total = sample_reservoir(clean_pairs, 2 * wanted, rng)  # twice as many: some share a side
    return keep_distinct(sample)[: min(wanted, total // MAX_SHARE * num_splits)]


def sample_reservoir(
    pairs: Iterable[SentencePair], count: int, rng: random.Random
) -> tuple[list[SentencePair], int]:
    """Return `count` equally likely pairs of a stream in random order, and the length of the stream."""
    sample: list[SentencePair] = []
    total = 0
    for pair in pairs:
        index = total if total < count else int(rng.random() * (total + 1))
        total += 1
        if index < count:
            sample[index : index + 1] = [pair]
    rng.shuffle(sample)
    return sample, total


def keep_distinct(pairs: list[SentencePair]) -> list[SentencePair]:
    """Return the pairs that share no side with an earlier one."""
    seen: set[str] = set()
    kept = []
    for pair in pairs:
        if pair.source not in seen and pair.target not in seen:
            kept.append(pair)
            seen |= {pair.source, pair.target}
    return kept


def index_sides(held_out: HeldOut) -> dict[str, str]:
    """Return the split of every side of the held-out pairs."""
    return {
        text: split
        for split, pairs in held_out.items()
        for pair in pairs
        for text in (pair.source, pair.target)
    }


def check_readable_twice(inputs: Iterable[InputConfig]) -> None:
    """Refuse pipes, which are empty after the first pass."""
    for file in (file for input_config in inputs for file in input_config.files):
        if Path(file).exists() and not Path(file).is_file():
            raise DataError(
                f"{file}: not a regular file, and holding out pairs needs to read it twice: give --valid, "
                f"set corpus.hold_out=0, or write it to a file first"
            )
