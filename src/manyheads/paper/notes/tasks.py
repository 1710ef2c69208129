"""Tasks without a language: sentences of random words, and what is to be said at each of their words.

Everyone can see what such a task needs, and a small model learns it in seconds: so it shows what a part of
the model is for. The encoder answers alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.packed import Packed
from manyheads.paper.notes.learning import Lesson

JUDGED = 400  # sentences that accuracy is measured on
JUDGED_SEED = 1_000_003  # which training never draws from


@dataclass(frozen=True)
class Task:
    """Sentences of `shortest` to `longest` words out of `words`; `answer` tells the right word at each."""

    answer: Callable[[list[int]], list[int]]
    words: int = 12
    vocabulary: int = NUM_SPECIAL_TOKENS + 12  # of the answers too
    shortest: int = 4
    longest: int = 12

    def lessons(self, seed: int, sentences: int) -> Callable[[], Lesson]:
        """New ones without end, the same for the same seed."""
        chance = torch.Generator().manual_seed(seed)
        return lambda: self.lesson(chance, sentences)

    def lesson(self, chance: torch.Generator, sentences: int) -> Lesson:
        lengths = torch.randint(self.shortest, self.longest + 1, (sentences,), generator=chance).tolist()
        drawn = torch.randint(self.words, (sum(lengths),), generator=chance) + NUM_SPECIAL_TOKENS
        said = [one.tolist() for one in drawn.split(lengths)]
        return Lesson(Packed.of(said), torch.tensor([word for one in said for word in self.answer(one)]))

    def judged(self) -> Lesson:
        return self.lessons(JUDGED_SEED, JUDGED)()


def word_itself(said: list[int]) -> list[int]:
    return said


def word_before(said: list[int]) -> list[int]:
    """The first word has none before it."""
    return [EOS_ID, *said[:-1]]


def both_neighbors(words: int) -> Callable[[list[int]], list[int]]:
    """One answer for each pair of words, before and after; at an edge stands the first word of all."""

    def answer(said: list[int]) -> list[int]:
        numbers = [0, *(word - NUM_SPECIAL_TOKENS for word in said), 0]
        pairs = zip(numbers, numbers[2:], strict=False)
        return [NUM_SPECIAL_TOKENS + before * words + after for before, after in pairs]

    return answer


SAY_AGAIN = Task(word_itself)
SAY_THE_ONE_BEFORE = Task(word_before)
NEIGHBOURS = 5  # words of the task below: 25 pairs
SAY_BOTH_NEIGHBOURS = Task(
    both_neighbors(NEIGHBOURS), words=NEIGHBOURS, vocabulary=NUM_SPECIAL_TOKENS + NEIGHBOURS**2
)
