"""From pairs to token arrays: the spool of training pairs, subword training, and encoding into the store."""

import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from manyheads.config import UNK_ID, Recipe
from manyheads.data.report import LENGTH_BOUNDS
from manyheads.data.store import SideWriter, load_mapped_array, measure_supported_length
from manyheads.progress import ReportProgress
from manyheads.text.casing import CaseLexicon
from manyheads.text.corpus import SentencePair
from manyheads.text.subwords import SubwordPair, TokenSequences

CHUNK_PAIRS = 20_000  # processed together
SPOOL_COMPRESSION = 1  # the fastest level of gzip


class Spool:
    """Training pairs on disk between the two passes, in two compressed files of lines."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "spool.source.gz", folder / "spool.target.gz"]
        self.count = 0

    def __enter__(self) -> Self:
        self.files = [gzip.GzipFile(path, "wb", SPOOL_COMPRESSION) for path in self.paths]
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def write(self, pairs: list[SentencePair]) -> None:
        for side, file in enumerate(self.files):
            file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
        self.count += len(pairs)

    def pairs(self) -> Iterator[tuple[str, str]]:
        with gzip.open(self.paths[0], "rb") as sources, gzip.open(self.paths[1], "rb") as targets:
            for source, target in zip(sources, targets, strict=True):
                yield source[:-1].decode(), target[:-1].decode()

    def sample(self, count: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield `count` pairs in their order, or all if there are fewer. The seed determines which."""
        rng, needed = random.Random(seed), min(count, self.count)
        for left, pair in zip(range(self.count, 0, -1), self.pairs(), strict=True):
            if rng.random() * left < needed:
                needed -= 1
                yield pair

    def remove(self) -> None:
        for path in self.paths:
            path.unlink()


def train_subwords(recipe: Recipe, spool: Spool, report_progress: ReportProgress) -> SubwordPair:
    report_progress("training subwords", 0, None)
    config = recipe.subwords
    if recipe.clean.markup != "keep":
        config = replace(config, detect_placeholders=0)
    num_pairs = (config.sample_sentences + 1) // 2
    sample: Callable[[], Iterator[tuple[str, str]]] = lambda: spool.sample(num_pairs, recipe.corpus.seed)  # noqa: E731
    return SubwordPair.train(sample, config)


def restore_source(text: str, casing: CaseLexicon, tags: Sequence[str]) -> str:
    """Return a source as translation will read it, but for the tag before it."""
    tag = next((f"{tag} " for tag in tags if text.startswith(f"{tag} ")), "")
    return tag + casing.read(text[len(tag) :])


@dataclass
class TokenCounts:
    """Counts over one side of a split."""

    tokens: int = 0
    unknown: int = 0
    max_length: int = 0
    supported_length: int = 0  # that few sentences exceed
    lengths: list[int] = field(default_factory=lambda: [0] * (len(LENGTH_BOUNDS) + 1))

    def add(self, sequences: TokenSequences) -> None:
        sizes = np.diff(sequences.offsets)
        histogram = np.bincount(np.searchsorted(LENGTH_BOUNDS, sizes), minlength=len(self.lengths))
        self.tokens += len(sequences.ids)
        self.unknown += int((sequences.ids == UNK_ID).sum())
        self.max_length = max(self.max_length, int(sizes.max(initial=0)))
        self.lengths = [count + int(more) for count, more in zip(self.lengths, histogram, strict=True)]


def encode_split(
    folder: Path,
    split: str,
    subwords: SubwordPair,
    pairs: Iterator[Any],
    num_pairs: int,
    report_progress: ReportProgress,
    tags: Sequence[str] = (),
) -> dict[str, TokenCounts]:
    """Write the token arrays of both sides, and return their counts. Sources are in their usual case.

    `tags` may stand before sources.
    """
    tokenizers = {"source": subwords.source, "target": subwords.target}
    writers = {
        side: SideWriter(folder, split, side, len(tokenizer)) for side, tokenizer in tokenizers.items()
    }
    counts = {side: TokenCounts() for side in tokenizers}
    done = 0
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        for index, (side, tokenizer) in enumerate(tokenizers.items()):
            texts = [pair[index] for pair in chunk]
            if side == "source" and subwords.casing:
                texts = [restore_source(text, subwords.casing, tags) for text in texts]
            sequences = tokenizer.encode_batch(texts)
            writers[side].write(sequences)
            counts[side].add(sequences)
        done += len(chunk)
        report_progress(f"encoding {split}", done, num_pairs)
    for side, writer in writers.items():
        writer.close()
        offsets = load_mapped_array(f"{folder}/{split}.{side}.offsets.npy")
        counts[side].supported_length = measure_supported_length(offsets)
    return counts
