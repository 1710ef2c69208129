"""Perplexity per subword, of the unsmoothed likelihood."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manyheads.translator import Translator

MAX_NLL = 700  # whose exponential a float still holds


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood; infinity where a float would overflow."""
    return math.exp(nll) if nll < MAX_NLL else math.inf if nll == nll else math.nan


def reference_perplexity(
    translator: "Translator", sources: Sequence[str], targets: Sequence[str]
) -> tuple[float | None, int]:
    """Return the model's perplexity on the targets, end tokens included, and the number of skipped pairs.

    Pairs that are longer than the model's positions are skipped. The perplexity is None if it is infinite.
    """
    max_positions = translator.engine.capabilities.max_positions or math.inf
    subwords = translator.subwords
    pairs = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if max(len(subwords.source.encode(source)), len(subwords.target.encode(target))) < max_positions
    ]
    if not pairs:
        return None, len(sources)
    scores = translator.score([source for source, _ in pairs], [target for _, target in pairs])
    tokens = sum(len(score.tokens) + 1 for score in scores)
    value = perplexity(-sum(score.log_probability for score in scores) / tokens)
    return value if math.isfinite(value) else None, len(sources) - len(pairs)
