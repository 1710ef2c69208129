"""Scores, each with its signature: never a bare number."""

from collections.abc import Sequence
from dataclasses import dataclass

from manyheads.translate import Translator

TOKENISERS = {
    "ko": "char",
    "ja": "char",
    "zh": "zh",
}  # for languages that spaces do not divide into words alike


@dataclass(frozen=True)
class Score:
    """A number, and how it was computed."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """sacreBLEU of a corpus. Korean and Japanese are scored by characters, and the signature says so."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=TOKENISERS.get(language.partition("-")[0].lower(), "13a"))
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score("BLEU", found.score, str(metric.get_signature()))


def greedy_bleu(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> tuple[Score, list[str]]:
    """BLEU of what greedy search gives, each source as one sentence; and the translations."""
    found = translator.translate(sources, beam=1, nbest=1, split=False)
    translations = [one.text for one in found]
    return bleu(translations, references, translator.target_language), translations


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that are the reference, to the letter."""
    same = sum(one == other for one, other in zip(hypotheses, references, strict=True))
    return same / max(1, len(references))
