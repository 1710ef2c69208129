"""Scores, each with its signature: never a bare number."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from manyheads.config import SearchConfig
from manyheads.text.subwords import SubwordPair
from manyheads.translate import Model, translate_greedily

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
    model: Model,
    subwords: SubwordPair,
    sources: Sequence[str],
    references: Sequence[str],
    language: str,
    device: torch.device,
) -> tuple[Score, list[str]]:
    """BLEU of what greedy search gives, and the translations."""
    extra = SearchConfig().extra_length
    translations = translate_greedily(model, subwords, sources, extra, device)
    return bleu(translations, references, language), translations


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that are the reference, to the letter."""
    same = sum(one == other for one, other in zip(hypotheses, references, strict=True))
    return same / max(1, len(references))
