"""Tasks without a language: sentences of random words, and what is to be said at each of their words.

Everyone can see what such a task needs, and a small model learns it in seconds: so it shows what a part of
the model is for. The encoder answers alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.packed import Packed
from manyheads.paper.notes.learning import LabeledBatch

EVAL_SENTENCES = 400  # sentences that accuracy is measured on
EVAL_SEED = 1_000_003  # which training never draws from


@dataclass(frozen=True)
class SequenceTask:
    """Sentences of `shortest` to `longest` words out of `words`; `answer` tells the right word at each."""

    label: Callable[[list[int]], list[int]]
    num_words: int = 12
    vocab_size: int = NUM_SPECIAL_TOKENS + 12  # of the answers too
    min_length: int = 4
    max_length: int = 12

    def make_sampler(self, seed: int, sentences: int) -> Callable[[], LabeledBatch]:
        """New ones without end, the same for the same seed."""
        chance = torch.Generator().manual_seed(seed)
        return lambda: self.sample_batch(chance, sentences)

    def sample_batch(self, chance: torch.Generator, sentences: int) -> LabeledBatch:
        lengths = torch.randint(self.min_length, self.max_length + 1, (sentences,), generator=chance).tolist()
        drawn = torch.randint(self.num_words, (sum(lengths),), generator=chance) + NUM_SPECIAL_TOKENS
        said = [one.tolist() for one in drawn.split(lengths)]
        return LabeledBatch(Packed.of(said), torch.tensor([word for one in said for word in self.label(one)]))

    def make_eval_batch(self) -> LabeledBatch:
        return self.make_sampler(EVAL_SEED, EVAL_SENTENCES)()


def label_same_word(said: list[int]) -> list[int]:
    return said


def label_previous_word(said: list[int]) -> list[int]:
    """The first word has none before it."""
    return [EOS_ID, *said[:-1]]


def make_neighbor_labels(words: int) -> Callable[[list[int]], list[int]]:
    """One answer for each pair of words, before and after; at an edge stands the first word of all."""

    def answer(said: list[int]) -> list[int]:
        numbers = [0, *(word - NUM_SPECIAL_TOKENS for word in said), 0]
        pairs = zip(numbers, numbers[2:], strict=False)
        return [NUM_SPECIAL_TOKENS + before * words + after for before, after in pairs]

    return answer


COPY_TASK = SequenceTask(label_same_word)
PREVIOUS_WORD_TASK = SequenceTask(label_previous_word)
NUM_NEIGHBOR_WORDS = 5  # words of the task below: 25 pairs
NEIGHBOR_PAIR_TASK = SequenceTask(
    make_neighbor_labels(NUM_NEIGHBOR_WORDS),
    num_words=NUM_NEIGHBOR_WORDS,
    vocab_size=NUM_SPECIAL_TOKENS + NUM_NEIGHBOR_WORDS**2,
)
