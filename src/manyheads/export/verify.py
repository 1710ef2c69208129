"""Whether an export is the same model: both score the same translations, side by side."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.config import END, SPECIAL_TOKENS
from manyheads.errors import CheckpointError
from manyheads.inference.torch_engine import TorchEngine
from manyheads.text.subwords import SubwordPair

SAMPLES = 8
TOLERANCE = 1e-3  # of a sentence's log-probability, a token


@dataclass(frozen=True)
class Check:
    """A translation and its log-probability, by our model and by what was made of it."""

    source: str
    target: str
    ours: float
    theirs: float


def sample_pairs(subwords: SubwordPair, count: int = SAMPLES) -> list[tuple[list[int], list[int]]]:
    """Sources and targets of 1 to some 20 pieces, drawn by a fixed seed; ids without begin and end."""
    chance = random.Random(1)

    def draw(size: int) -> list[int]:
        return [chance.randrange(SPECIAL_TOKENS, size) for _ in range(chance.randint(1, 20))]

    return [(draw(len(subwords.source)), draw(len(subwords.target))) for _ in range(count)]


def our_scores(engine: TorchEngine, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
    """The log-probability of each target, its end included."""
    sources = [[*source, END] for source, _ in pairs]
    return [sum(scores) for scores in engine.score(sources, [target for _, target in pairs])]


def compared(
    what: str,
    subwords: SubwordPair,
    pairs: Sequence[tuple[list[int], list[int]]],
    ours: Sequence[float],
    theirs: Sequence[float],
) -> list[Check]:
    """The scores side by side; a difference beyond rounding is an error: no such export may be trusted."""
    checks = [
        Check(subwords.source.decode(source), subwords.target.decode(target), own, other)
        for (source, target), own, other in zip(pairs, ours, theirs, strict=True)
    ]
    for (_, target), check in zip(pairs, checks, strict=True):
        if not abs(check.ours - check.theirs) <= TOLERANCE * (len(target) + 1):
            raise CheckpointError(
                f"{what}: gives {check.theirs:.4f} where our model gives {check.ours:.4f} "
                f"(log-probability of {check.target!r}); the export is not the same model and was not kept"
            )
    return checks
