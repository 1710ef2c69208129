"""Verification of exports: both models must give the same scores to the same translations."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.errors import CheckpointError
from manyheads.inference.torch_engine import TorchEngine
from manyheads.text.subwords import SubwordPair

NUM_SAMPLES = 8
TOLERANCE = 1e-3  # of log p, for each token of a sentence


@dataclass(frozen=True)
class ScoreComparison:
    """A translation and its log-probability by our model and by the exported one."""

    source: str
    target: str
    our_score: float
    their_score: float


def sample_pairs(subwords: SubwordPair, count: int = NUM_SAMPLES) -> list[tuple[list[int], list[int]]]:
    """Return random sources and targets of 1 to 20 tokens, without begin and end. The seed is fixed."""
    generator = random.Random(1)

    def draw(size: int) -> list[int]:
        return [generator.randrange(NUM_SPECIAL_TOKENS, size) for _ in range(generator.randint(1, 20))]

    return [(draw(len(subwords.source)), draw(len(subwords.target))) for _ in range(count)]


def score_pairs(engine: TorchEngine, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """Return log p of each target, its end token included."""
    sources = [[*source, EOS_ID] for source, _ in pairs]
    return [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]


def compare_scores(
    name: str,
    subwords: SubwordPair,
    pairs: Sequence[tuple[list[int], list[int]]],
    ours: Sequence[float],
    theirs: Sequence[float],
) -> list[ScoreComparison]:
    """Return the scores of both models. A difference beyond rounding is an error."""
    checks = [
        ScoreComparison(subwords.source.decode(source), subwords.target.decode(target), own, other)
        for (source, target), own, other in zip(pairs, ours, theirs, strict=True)
    ]
    for (_, target), check in zip(pairs, checks, strict=True):
        if not abs(check.our_score - check.their_score) <= TOLERANCE * (len(target) + 1):
            raise CheckpointError(
                f"{name}: gives {check.their_score:.4f} where our model gives {check.our_score:.4f} "
                f"(log-probability of {check.target!r}); the export is not the same model and was not kept"
            )
    return checks
