"""The workload of every benchmark here: sentence lengths and words as real text has them, from a seed.

Lengths are log-normal around 27 tokens, the target's close to the source's; words follow Zipf's law.
Only real tokens count, in tokens a second as in FLOPs: padding is what a system pays, not what it does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from manyheads.config import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, ModelConfig
from manyheads.train import flops as speed

MU, SIGMA = math.log(27) - 0.18 + 0.02, 0.6  # of the source's length
RATIO_SIGMA = 0.18  # of the target's length against it
SHORTEST, LONGEST = 3, 100
ZIPF_SHIFT = 2.7


@dataclass(frozen=True)
class Pair:
    """Words of a sentence and of its translation, as ids; without begin and end."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Batch:
    """What a training step reads: source + end; begin + target; target + end."""

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


def draw_pairs(count: int, vocabulary: int, seed: int) -> list[Pair]:
    chance = np.random.default_rng(seed)
    sources = np.clip(np.rint(np.exp(chance.normal(MU, SIGMA, count))), SHORTEST, LONGEST)
    ratios = np.exp(chance.normal(0, RATIO_SIGMA, count))
    targets = np.clip(np.rint(sources * ratios), SHORTEST, LONGEST)
    lengths = np.stack((sources, targets)).astype(int)
    frequencies = 1 / (np.arange(vocabulary - NUM_SPECIAL_TOKENS) + ZIPF_SHIFT)
    bounds = np.cumsum(frequencies / frequencies.sum())
    words = NUM_SPECIAL_TOKENS + np.searchsorted(bounds[:-1], chance.random(int(lengths.sum())))
    pieces = np.split(words, np.cumsum(lengths.T.ravel())[:-1])
    return [Pair(s.tolist(), t.tolist()) for s, t in zip(pieces[::2], pieces[1::2], strict=True)]


def make_batches(pairs: list[Pair], target_tokens: int) -> Iterator[Batch]:
    """Pairs in the order given, each batch with about so many target tokens."""
    chosen: list[Pair] = []
    size = 0
    for pair in pairs:
        chosen.append(pair)
        size += len(pair.target) + 1
        if size >= target_tokens:
            yield make_batch(chosen)
            chosen, size = [], 0


def make_batch(pairs: list[Pair]) -> Batch:
    return Batch(
        [[*pair.source, EOS_ID] for pair in pairs],
        [[BOS_ID, *pair.target] for pair in pairs],
        [[*pair.target, EOS_ID] for pair in pairs],
    )


def sorted_and_random(
    count: int, target_tokens: int, vocabulary: int, seed: int
) -> tuple[list[Batch], list[Batch]]:
    """`count` batches of like lengths, out of a pool large enough to sort well; and the same shuffled."""
    chance = np.random.default_rng(seed + 1)
    pool = draw_pairs(max(20_000, count * target_tokens // 10), vocabulary, seed)
    pool.sort(key=lambda pair: (len(pair.source), len(pair.target)))
    batches = list(make_batches(pool, target_tokens))
    chosen = [batches[i] for i in sorted(chance.choice(len(batches), count, replace=False))]
    pairs = [
        Pair(source[:-1], labels[:-1])
        for batch in chosen
        for source, labels in zip(batch.sources, batch.labels, strict=True)
    ]
    shares = np.array_split(chance.permutation(len(pairs)), count)
    return chosen, [make_batch([pairs[i] for i in share]) for share in shares]


def training_flops(config: ModelConfig, batch: Batch) -> int:
    """Of a step, real tokens only."""
    sources, targets = (np.array([len(one) for one in side]) for side in (batch.sources, batch.labels))
    return speed.training_flops(config, sources, targets)
