"""The words of a translation: how sure the model is of each, and which source words it came from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.look.attention_data import word_numbers, words_of
from manyheads.translator import Translation


@dataclass(frozen=True)
class Words:
    """What the tokens of a translation make up."""

    source: list[str]
    target: list[str]
    chances: list[float | None]  # that all tokens of a word come, given what stands before
    sources: list[list[int]]  # numbers of the source words that a word looked at most

    @classmethod
    def of(cls, found: Translation) -> "Words":
        target = words_of(found.tokens)
        numbers = [word_numbers(found.source_tokens), word_numbers(found.tokens)]
        sources: list[set[int]] = [set() for _ in target]
        for source_token, token in found.alignment or []:
            sources[numbers[1][token]].add(numbers[0][source_token])
        chances = chances_of(len(target), numbers[1], found.token_scores)
        return cls(words_of(found.source_tokens), target, chances, [sorted(one) for one in sources])

    def told(self) -> dict[str, Any]:
        words = zip(self.target, self.chances, self.sources, strict=True)
        return {
            "sourceWords": self.source,
            "words": [
                {"text": text, "chance": chance, "sources": sources} for text, chance, sources in words
            ],
        }


def chances_of(words: int, numbers: Sequence[int], scores: Sequence[float]) -> list[float | None]:
    """None where the engine gave no scores."""
    if len(scores) != len(numbers):
        return [None] * words
    totals = [0.0] * words
    for number, score in zip(numbers, scores, strict=True):
        totals[number] += score
    return [math.exp(total) for total in totals]
