"""Whether an export is the same model: both score the same translations, side by side."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.errors import CheckpointError
from manyheads.inference.torch_engine import TorchEngine
from manyheads.text.subwords import SubwordPair

SAMPLES = 8
TOLERANCE = 1e-3  # of a sentence's log-probability, a token


@dataclass(frozen=True)
class ScoreComparison:
    """A translation and its log-probability, by our model and by what was made of it."""

    source: str
    target: str
    our_score: float
    their_score: float


def sample_pairs(subwords: SubwordPair, count: int = SAMPLES) -> list[tuple[list[int], list[int]]]:
    """Sources and targets of 1 to some 20 pieces, drawn by a fixed seed; ids without begin and end."""
    chance = random.Random(1)

    def draw(size: int) -> list[int]:
        return [chance.randrange(NUM_SPECIAL_TOKENS, size) for _ in range(chance.randint(1, 20))]

    return [(draw(len(subwords.source)), draw(len(subwords.target))) for _ in range(count)]


def score_pairs(engine: TorchEngine, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """The log-probability of each target, its end included."""
    sources = [[*source, EOS_ID] for source, _ in pairs]
    return [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]


def compare_scores(
    what: str,
    subwords: SubwordPair,
    pairs: Sequence[tuple[list[int], list[int]]],
    ours: Sequence[float],
    theirs: Sequence[float],
) -> list[ScoreComparison]:
    """The scores side by side; a difference beyond rounding is an error: no such export may be trusted."""
    checks = [
        ScoreComparison(subwords.source.decode(source), subwords.target.decode(target), own, other)
        for (source, target), own, other in zip(pairs, ours, theirs, strict=True)
    ]
    for (_, target), check in zip(pairs, checks, strict=True):
        if not abs(check.our_score - check.their_score) <= TOLERANCE * (len(target) + 1):
            raise CheckpointError(
                f"{what}: gives {check.their_score:.4f} where our model gives {check.our_score:.4f} "
                f"(log-probability of {check.target!r}); the export is not the same model and was not kept"
            )
    return checks
