"""A loaded model under the name that clients use."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from manyheads.translator import Translator


@dataclass(frozen=True, eq=False)
class ServedModel:
    name: str  # en-ko, and en-ko-2 for the second model of the same pair
    translator: Translator

    @property
    def source(self) -> str:
        return self.translator.source_language

    @property
    def target(self) -> str:
        return self.translator.target_language

    @property
    def can_align(self) -> bool:
        """Whether its engine returns alignments."""
        return self.translator.engine.capabilities.alignment

    def count_tokens(self, text: str) -> int:
        return len(self.translator.subwords.source.encode(text))

    def count_target_tokens(self, text: str) -> int:
        return len(self.translator.subwords.target.encode(text))

    def split_sentences(self, text: str) -> list[str]:
        """Split a text into the sentences that are translated separately."""
        with suppress_warnings():
            return self.translator.split_sentences(text)


def name_models(translators: Sequence[Translator]) -> list[ServedModel]:
    """Name models by their language pairs, and number those of the same pair."""
    counts: Counter[str] = Counter()
    models = []
    for translator in translators:
        pair = f"{translator.source_language}-{translator.target_language}"
        counts[pair] += 1
        models.append(ServedModel(pair if counts[pair] == 1 else f"{pair}-{counts[pair]}", translator))
    return models


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Ignore warnings, which would quote texts in the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
