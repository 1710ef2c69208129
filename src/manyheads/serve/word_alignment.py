"""The words of a translation: the probability of each, and the source words that it is aligned with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyheads.look.words import get_word_ids, tokens_to_words
from manyheads.translation import Translation


@dataclass(frozen=True)
class WordAlignment:
    source: list[str]
    target: list[str]
    probabilities: list[float | None]  # of all tokens of a target word, given the words before it
    sources: list[list[int]]  # for each target word the indices of its source words

    @classmethod
    def from_translation(cls, translation: Translation) -> "WordAlignment":
        target = tokens_to_words(translation.tokens)
        source_ids, target_ids = get_word_ids(translation.source_tokens), get_word_ids(translation.tokens)
        sources: list[set[int]] = [set() for _ in target]
        for source_token, target_token in translation.alignment or []:
            sources[target_ids[target_token]].add(source_ids[source_token])
        probabilities = word_probabilities(len(target), target_ids, translation.token_scores)
        return cls(
            tokens_to_words(translation.source_tokens), target, probabilities, list(map(sorted, sources))
        )

    def to_json(self) -> dict[str, Any]:
        words = zip(self.target, self.probabilities, self.sources, strict=True)
        return {
            "sourceWords": self.source,
            "words": [
                {"text": text, "probability": probability, "sources": sources}
                for text, probability, sources in words
            ],
        }


def word_probabilities(
    num_words: int, word_ids: Sequence[int], scores: Sequence[float]
) -> list[float | None]:
    """Multiply the probabilities of the tokens of each word; None where the engine returned no scores."""
    if len(scores) != len(word_ids):
        return [None] * num_words
    totals = [0.0] * num_words
    for word, score in zip(word_ids, scores, strict=True):
        totals[word] += score
    return [math.exp(total) for total in totals]
