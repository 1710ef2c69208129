"""The workload of the benchmarks: sentence lengths and word frequencies like those of real text, from a seed.

Source lengths are log-normal with a median near 27 tokens, target lengths are close to them; words follow
Zipf's law. Only real tokens count, in tokens per second and in FLOPs; padding does not.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, ModelConfig
from manyheads.train import flops

MU, SIGMA = math.log(27) - 0.18 + 0.02, 0.6  # of the source length
RATIO_SIGMA = 0.18  # of the ratio of target to source length
MIN_LENGTH, MAX_LENGTH = 3, 100
ZIPF_SHIFT = 2.7


@dataclass(frozen=True)
class SentencePair:
    """Token ids of a sentence and its translation, without begin and end."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class WorkloadBatch:
    """The input of a training step: source + end; begin + target; target + end."""

    sources: list[list[int]]
    inputs: list[list[int]]
    labels: list[list[int]]

    @property
    def source_tokens(self) -> int:
        return sum(map(len, self.sources))

    @property
    def target_tokens(self) -> int:
        return sum(map(len, self.labels))

    @property
    def tokens(self) -> int:
        return self.source_tokens + self.target_tokens


def draw_pairs(count: int, vocab_size: int, seed: int) -> list[SentencePair]:
    generator = np.random.default_rng(seed)
    sources = np.clip(np.rint(np.exp(generator.normal(MU, SIGMA, count))), MIN_LENGTH, MAX_LENGTH)
    ratios = np.exp(generator.normal(0, RATIO_SIGMA, count))
    targets = np.clip(np.rint(sources * ratios), MIN_LENGTH, MAX_LENGTH)
    lengths = np.stack((sources, targets)).astype(int)
    frequencies = 1 / (np.arange(vocab_size - NUM_SPECIAL_TOKENS) + ZIPF_SHIFT)
    bounds = np.cumsum(frequencies / frequencies.sum())
    words = NUM_SPECIAL_TOKENS + np.searchsorted(bounds[:-1], generator.random(int(lengths.sum())))
    pieces = np.split(words, np.cumsum(lengths.T.ravel())[:-1])
    return [SentencePair(s.tolist(), t.tolist()) for s, t in zip(pieces[::2], pieces[1::2], strict=True)]


def make_batches(pairs: list[SentencePair], target_tokens: int) -> Iterator[WorkloadBatch]:
    """Yield batches of about `target_tokens` in the given order."""
    chosen: list[SentencePair] = []
    size = 0
    for pair in pairs:
        chosen.append(pair)
        size += len(pair.target) + 1
        if size >= target_tokens:
            yield make_batch(chosen)
            chosen, size = [], 0


def make_batch(pairs: list[SentencePair]) -> WorkloadBatch:
    return WorkloadBatch(
        [[*pair.source, EOS_ID] for pair in pairs],
        [[BOS_ID, *pair.target] for pair in pairs],
        [[*pair.target, EOS_ID] for pair in pairs],
    )


def make_sorted_and_random(
    count: int, target_tokens: int, vocab_size: int, seed: int
) -> tuple[list[WorkloadBatch], list[WorkloadBatch]]:
    """Return `count` batches of similar lengths from a large pool, and the same sentences shuffled."""
    generator = np.random.default_rng(seed + 1)
    pool = draw_pairs(max(20_000, count * target_tokens // 10), vocab_size, seed)
    pool.sort(key=lambda pair: (len(pair.source), len(pair.target)))
    batches = list(make_batches(pool, target_tokens))
    chosen = [batches[i] for i in sorted(generator.choice(len(batches), count, replace=False))]
    pairs = [
        SentencePair(source[:-1], labels[:-1])
        for batch in chosen
        for source, labels in zip(batch.sources, batch.labels, strict=True)
    ]
    shares = np.array_split(generator.permutation(len(pairs)), count)
    return chosen, [make_batch([pairs[i] for i in share]) for share in shares]


def training_flops(config: ModelConfig, batch: WorkloadBatch) -> int:
    """Return the FLOPs of a step on real tokens."""
    sources, targets = (
        np.array([len(sentence) for sentence in side]) for side in (batch.sources, batch.labels)
    )
    return flops.training_flops(config, sources, targets)
