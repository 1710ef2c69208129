"""Pairs of general text that have the very error that corrections correct.

A model that always writes "Maler" for "teacher" may have learned it from its training text. If such pairs
were replayed while the model learns the corrections, they would teach the error again; and in the held-out
text they would count the right word as wrong. They are recognized by two words: one that the model wrote and
the correction does not have, and the word of the source that it stands for in general text most of the time.

One correction shows a word to be wrong in one sentence only: the word may have two meanings. So pairs are
left out of the replay after one correction. After three that agree, their targets are repaired, if most of
the corrections have the same right word, and learned too; and the held-out text, which measures all else, has
no sentence with this word of the source, right or wrong.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from manyheads.memory.similarity import split_words

MIN_SHARE = 0.5  # of the pairs with the source word that must have the target word
MIN_PAIRS = 3  # with the source word
MIN_CORRECTIONS = 3  # that agree, for an error to be certain

TextPair = tuple[str, str]


@dataclass(frozen=True)
class WrongWord:
    """A word that general text and the model have for a word of the source, but corrections do not."""

    source: str
    wrong: str
    right: str | None  # what most corrections have in its place, as it is written
    num_corrections: int

    @property
    def is_certain(self) -> bool:
        return self.num_corrections >= MIN_CORRECTIONS

    def is_in(self, pair: TextPair) -> bool:
        return self.source in list_words(pair[0]) and self.wrong in list_words(pair[1])

    def repair(self, pair: TextPair) -> TextPair | None:
        """Return the pair with the right word; None unless it is known and the wrong one occurs once."""
        if self.right is None or not self.is_certain:
            return None
        pattern = rf"(?<!\w){re.escape(self.wrong)}(?!\w)"
        target, count = re.subn(pattern, self.right, pair[1], flags=re.IGNORECASE)
        return (pair[0], target) if count == 1 else None

    def __str__(self) -> str:
        return f"{self.source}: {self.wrong} -> {self.right or '?'}"


def list_words(text: str) -> set[str]:
    return {word for word in split_words(text.lower()) if word[0].isalpha()}


def find_wrong_words(
    corrections: Sequence[TextPair], outputs: Sequence[str], general: Iterable[TextPair]
) -> list[WrongWord]:
    """Return the words that the corrections show to be wrong, and that general text is full of.

    outputs  what the model makes of the sources of the corrections
    """
    counts: Counter[TextPair] = Counter()  # corrections by a word of the source and a wrong word
    kept: set[TextPair] = set()
    for (source, target), output in zip(corrections, outputs, strict=True):
        words, wrong_words = list_words(source), list_words(output) - list_words(target)
        counts.update((word, wrong) for word in words for wrong in wrong_words)
        kept |= {(word, right) for word in words for right in list_words(target)}
    suspects: dict[str, set[str]] = defaultdict(set)
    for word, wrong in counts.keys() - kept:
        suspects[wrong].add(word)
    totals: Counter[str] = Counter()
    together: Counter[TextPair] = Counter()
    watched = {word for words in suspects.values() for word in words}
    for source, target in general:
        sources = list_words(source) & watched
        totals.update(sources)
        present = list_words(target) & suspects.keys() if sources else set()
        together.update((word, wrong) for wrong in present for word in sources & suspects[wrong])
    replacements = find_replacements(corrections, outputs)
    return [
        WrongWord(word, wrong, replacements.get(wrong), counts[word, wrong])
        for (word, wrong), count in sorted(together.items())
        if totals[word] >= MIN_PAIRS and count >= MIN_SHARE * totals[word]
    ]


def find_replacements(corrections: Sequence[TextPair], outputs: Sequence[str]) -> dict[str, str]:
    """Return the words that corrections mostly replace by the same other word."""
    replacements: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, target), output in zip(corrections, outputs, strict=True):
        before, after = split_words(output), split_words(target)
        for tag, start, end, new_start, new_end in SequenceMatcher(
            None, before, after, autojunk=False
        ).get_opcodes():
            if tag == "replace" and end - start == new_end - new_start:
                for old, new in zip(before[start:end], after[new_start:new_end], strict=True):
                    replacements[old.lower()][new] += 1
    mostly = {old: (*counts.most_common(1)[0], counts.total()) for old, counts in replacements.items()}
    return {old: new for old, (new, count, total) in mostly.items() if count > total / 2}
