"""Tasks of random words with a label for each word, solved by the encoder alone.

It is obvious what such a task requires, and a small model learns it in seconds. So it shows what a part of
the model is for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from manyheads.config import EOS_ID, NUM_SPECIAL_TOKENS
from manyheads.packed import Packed
from manyheads.paper.notes.learning import LabeledBatch

EVAL_SENTENCES = 400  # that accuracy is measured on
EVAL_SEED = 1_000_003  # different from all training seeds


@dataclass(frozen=True)
class SequenceTask:
    """Random sentences of `num_words` different words, and a function that labels each word."""

    label: Callable[[list[int]], list[int]]
    num_words: int = 12
    vocab_size: int = NUM_SPECIAL_TOKENS + 12  # of words and labels
    min_length: int = 4
    max_length: int = 12

    def make_sampler(self, seed: int, num_sentences: int) -> Callable[[], LabeledBatch]:
        """Return a function that samples batches, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return lambda: self.sample_batch(generator, num_sentences)

    def sample_batch(self, generator: torch.Generator, num_sentences: int) -> LabeledBatch:
        lengths = torch.randint(
            self.min_length, self.max_length + 1, (num_sentences,), generator=generator
        ).tolist()
        tokens = torch.randint(self.num_words, (sum(lengths),), generator=generator) + NUM_SPECIAL_TOKENS
        sequences = [sequence.tolist() for sequence in tokens.split(lengths)]
        return LabeledBatch(
            Packed.of(sequences),
            torch.tensor([word for sequence in sequences for word in self.label(sequence)]),
        )

    def make_eval_batch(self) -> LabeledBatch:
        return self.make_sampler(EVAL_SEED, EVAL_SENTENCES)()


def label_same_word(tokens: list[int]) -> list[int]:
    return tokens


def label_previous_word(tokens: list[int]) -> list[int]:
    """Label each word with the previous word, and the first with the end token."""
    return [EOS_ID, *tokens[:-1]]


def make_neighbor_labels(num_words: int) -> Callable[[list[int]], list[int]]:
    """Label each word with the pair of its neighbors; beyond the ends is the first word of all."""

    def label(tokens: list[int]) -> list[int]:
        numbers = [0, *(word - NUM_SPECIAL_TOKENS for word in tokens), 0]
        pairs = zip(numbers, numbers[2:], strict=False)
        return [NUM_SPECIAL_TOKENS + before * num_words + after for before, after in pairs]

    return label


COPY_TASK = SequenceTask(label_same_word)
PREVIOUS_WORD_TASK = SequenceTask(label_previous_word)
NUM_NEIGHBOR_WORDS = 5  # 25 pairs
NEIGHBOR_PAIR_TASK = SequenceTask(
    make_neighbor_labels(NUM_NEIGHBOR_WORDS),
    num_words=NUM_NEIGHBOR_WORDS,
    vocab_size=NUM_SPECIAL_TOKENS + NUM_NEIGHBOR_WORDS**2,
)
