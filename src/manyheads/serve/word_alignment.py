"""The words of a translation: how sure the model is of each, and which source words it came from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.look.attention_data import get_word_ids, tokens_to_words
from manyheads.translator import Translation


@dataclass(frozen=True)
class WordAlignment:
    """What the tokens of a translation make up."""

    source: list[str]
    target: list[str]
    probabilities: list[float | None]  # that all tokens of a word come, given what stands before
    sources: list[list[int]]  # numbers of the source words that a word looked at most

    @classmethod
    def from_translation(cls, found: Translation) -> "WordAlignment":
        target = tokens_to_words(found.tokens)
        numbers = [get_word_ids(found.source_tokens), get_word_ids(found.tokens)]
        sources: list[set[int]] = [set() for _ in target]
        for source_token, token in found.alignment or []:
            sources[numbers[1][token]].add(numbers[0][source_token])
        chances = word_probabilities(len(target), numbers[1], found.token_scores)
        return cls(tokens_to_words(found.source_tokens), target, chances, [sorted(one) for one in sources])

    def to_json(self) -> dict[str, Any]:
        words = zip(self.target, self.probabilities, self.sources, strict=True)
        return {
            "sourceWords": self.source,
            "words": [
                {"text": text, "chance": chance, "sources": sources} for text, chance, sources in words
            ],
        }


def word_probabilities(words: int, numbers: Sequence[int], scores: Sequence[float]) -> list[float | None]:
    """None where the engine gave no scores."""
    if len(scores) != len(numbers):
        return [None] * words
    totals = [0.0] * words
    for number, score in zip(numbers, scores, strict=True):
        totals[number] += score
    return [math.exp(total) for total in totals]
