"""Evidence weighed by what each word tells: a log-likelihood ratio of translation to unrelated text.

In translations the evidence for a word w has the mean a(w), in unrelated text b(w). With a common variance v
the ratio of both hypotheses is (a - b) / v * (e - (a + b) / 2): rare content words count, particles hardly.
"""

from dataclasses import dataclass

import numpy as np

from manyheads.confidence.ragged import Floats, Ints, Ragged

SHRINKAGE = 20.0  # occurrences that the mean of all words stands for
MAX_RATIO = 4.0  # of one word: a single word decides nothing


@dataclass(frozen=True, eq=False)
class WordEvidence:
    """Slope and middle of each word's ratio. [V]"""

    slopes: Floats
    middles: Floats

    @classmethod
    def train(
        cls, words: tuple[Ints, Ints], evidence: tuple[Floats, Floats], vocab_size: int
    ) -> "WordEvidence":
        """Learn from words and their evidence in translations, and in unrelated texts."""
        means = [
            average_by_word(ids, values, vocab_size) for ids, values in zip(words, evidence, strict=True)
        ]
        residuals = [values - mean[ids] for ids, values, mean in zip(words, evidence, means, strict=True)]
        variance = max(0.25, float(np.concatenate(residuals).var()))
        return cls(np.maximum(0, means[0] - means[1]) / variance, (means[0] + means[1]) / 2)

    def score(self, ids: Ints, evidence: Floats) -> Floats:
        """Return the log-likelihood ratio of each word."""
        return np.clip(self.slopes[ids] * (evidence - self.middles[ids]), -MAX_RATIO, MAX_RATIO)


def average_by_word(ids: Ints, values: Floats, vocab_size: int) -> Floats:
    counts = np.bincount(ids, minlength=vocab_size)
    sums = np.bincount(ids, values, minlength=vocab_size)
    return np.asarray((sums + SHRINKAGE * values.mean()) / (counts + SHRINKAGE))


def find_worst_part(words: Ragged, ratios: Floats) -> Floats:
    """Return the lowest sum of ratios of words in a row, at most 0: how surely a part is not translated."""
    total = np.concatenate(([0.0], np.cumsum(ratios)))
    worst = np.zeros(len(words.lengths))
    if not len(ratios):
        return worst
    # Sums restart with each sentence: a step that no earlier sum exceeds is added before it.
    step = (np.ptp(total) + 1) * words.owners
    peaks = np.maximum.accumulate(total[:-1] + step) - step  # the highest sum before each word
    np.minimum.at(worst, words.owners, total[1:] - peaks)
    return worst
