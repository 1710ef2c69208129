"""How similar two sentences are, and which of many sentences are similar to a given one.

The similarity of two sentences of m and n words is 1 - d / max(m, n), where d is the Levenshtein distance
over words: how many must be inserted, deleted or replaced. A punctuation mark is a word, and so is a Chinese
character or one of kana, as there are no spaces between words.

A sentence of n words that is at least t similar to one of m words shares at least t max(m, n) words with it.
So it has one of the m - ceil(t m) + 1 rarest words of that sentence (prefix filtering), and only sentences
that have one are looked at. The others are never missed.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|\S"
)
MAX_WORDS = 200  # longer texts are not compared
MAX_COMPARED = 50  # sentences, those that share the most words
MAX_CELLS = 300_000  # of the tables of distances that are computed for a text


def split_words(text: str) -> list[str]:
    return WORD.findall(text)


def compute_similarity(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the similarity of two sentences as words, from 0 to 1."""
    longer = max(len(a), len(b))
    return 1.0 if not longer else 1 - compute_distance(a, b) / longer


def compute_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the Levenshtein distance."""
    previous = list(range(len(b) + 1))
    for row, left in enumerate(a, 1):
        current = [row]
        for column, right in enumerate(b, 1):
            current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (left != right)))
        previous = current
    return previous[-1]


class SimilarSentences:
    """Finds the sentences that are similar to another one."""

    def __init__(self, sentences: Sequence[str], threshold: float) -> None:
        self.threshold = threshold
        self.sentences = [split_words(text) for text in sentences]
        self.counts = [Counter(words) for words in self.sentences]
        self.indices: dict[str, list[int]] = defaultdict(list)  # of the sentences with a word
        for index, words in enumerate(self.counts):
            if len(self.sentences[index]) <= MAX_WORDS:
                for word in words:
                    self.indices[word].append(index)

    def find_best(self, text: str) -> tuple[int, float] | None:
        """Return the index of the most similar sentence, the last of several, and its similarity."""
        words = split_words(text)
        if not words or len(words) > MAX_WORDS:
            return None
        counts = Counter(words)
        candidates = []
        for index in self._find_candidates(words):
            longer = max(len(words), len(self.sentences[index]))
            bound = (counts & self.counts[index]).total() / longer
            if bound >= self.threshold:
                candidates.append((bound, index))
        best: tuple[float, int] | None = None
        num_cells = 0
        for bound, index in sorted(candidates, reverse=True)[:MAX_COMPARED]:
            num_cells += len(words) * len(self.sentences[index])
            if best is not None and (bound < best[0] or num_cells > MAX_CELLS):
                break
            entry = compute_similarity(words, self.sentences[index]), index
            best = entry if best is None else max(best, entry)
        return (best[1], best[0]) if best is not None and best[0] >= self.threshold else None

    def _find_candidates(self, words: Sequence[str]) -> set[int]:
        """Return the sentences with one of the rarest words, among which are all that are similar."""
        rarest = sorted(words, key=lambda word: len(self.indices.get(word, ())))
        num_words = len(words) - math.ceil(self.threshold * len(words)) + 1
        return {index for word in set(rarest[:num_words]) for index in self.indices.get(word, ())}
