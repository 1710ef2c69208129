"""BLEU and chrF by sacreBLEU, and BLEU by the paper's protocol. Every score carries its signature."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.translator import Translator

TOKENIZERS = {"ko": "char", "ja": "char", "zh": "zh"}  # languages in which spaces do not separate words
COMPOUND_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """A number, and how it was computed."""

    name: str
    value: float
    signature: str
    margin_of_error: float | None = None  # half of the 95 % confidence interval, by bootstrap

    def __str__(self) -> str:
        margin = "" if self.margin_of_error is None else f" ± {self.margin_of_error:.2f}"
        return f"{self.name} {self.value:.2f}{margin} ({self.signature})"


def bleu_tokenizer(language: str) -> str:
    """Return the sacreBLEU tokenizer: characters for Korean and Japanese, `zh` for Chinese, else `13a`."""
    return TOKENIZERS.get(language.partition("-")[0].lower(), "13a")


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """Return the corpus BLEU against one reference a sentence."""
    return bleu_and_length_ratio(hypotheses, [references], bleu_tokenizer(language), 0)[0]


def bleu_and_length_ratio(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: str,
    bootstrap_samples: int,
    ignore_case: bool = False,
) -> tuple[Score, float]:
    """Return BLEU, and the length of the hypotheses divided by that of the references, in tokens."""
    score, result = bootstrap_score(
        "BLEU", lambda: bleu_metric(tokenizer, ignore_case), hypotheses, references, bootstrap_samples
    )
    return score, result.sys_len / max(1, result.ref_len)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    bootstrap_samples: int,
    ignore_case: bool = False,
) -> Score:
    from sacrebleu.metrics.chrf import CHRF

    return bootstrap_score(
        "chrF", lambda: CHRF(lowercase=ignore_case), hypotheses, references, bootstrap_samples
    )[0]


def sentence_chrf(hypothesis: str, *references: str) -> float:
    """Return chrF of one sentence, from 0 to 100."""
    return float(sentence_chrf_metric().sentence_score(hypothesis, references).score)


def sentence_bleu(hypothesis: str, reference: str, language: str) -> float:
    """Return BLEU of one sentence, from 0 to 100: smoothed, by the n-grams that a short sentence has."""
    metric = sentence_bleu_metric(bleu_tokenizer(language))
    return float(metric.sentence_score(hypothesis, [reference]).score)


@cache
def sentence_bleu_metric(tokenizer: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenizer, effective_order=True)


@cache
def sentence_chrf_metric() -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


def bootstrap_score(
    name: str,
    make_metric: Callable[[], Any],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    bootstrap_samples: int,
) -> tuple[Score, Any]:
    """Return a corpus score with its margin of error, and sacreBLEU's result.

    There is no margin where a bootstrap sample has no score.
    """
    metric = make_metric()
    try:
        result = metric.corpus_score(
            list(hypotheses), as_lists(references), n_bootstrap=max(1, bootstrap_samples)
        )
    except TypeError:  # sacreBLEU mixes its 0.0 with numpy's numbers
        metric = make_metric()
        result = metric.corpus_score(list(hypotheses), as_lists(references), n_bootstrap=1)
    margin = getattr(result, "_ci", -1.0)
    signature = str(metric.get_signature())
    return Score(name, float(result.score), signature, float(margin) if margin > 0 else None), result


def bleu_metric(tokenizer: str, ignore_case: bool = False) -> Any:
    """Return sacreBLEU's BLEU; raise RequestError if it does not have the tokenizer."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenizer, lowercase=ignore_case)
    except (KeyError, ValueError, RuntimeError, ImportError, SystemExit) as error:
        cause = next(iter(str(error).strip().splitlines()), "no reason given")
        raise RequestError(f"sacreBLEU has no tokenizer {tokenizer!r} here ({cause})") from None


def as_lists(references: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(texts) for texts in references]


def greedy_bleu(
    translator: "Translator", sources: Sequence[str], references: Sequence[str]
) -> tuple[Score, list[str]]:
    """Translate by greedy search, each source as one sentence; return BLEU and the translations."""
    results = translator.translate(sources, beam=1, nbest=1, split=False, corrections=False)
    translations = [result.text for result in results]
    return bleu(translations, references, translator.target_language), translations


# ---- the paper's protocol


def paper_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> Score:
    """Return BLEU as in the paper's tables: Moses tokens, compounds split at hyphens, no smoothing.

    It is about a point higher than sacreBLEU's, and not comparable with it.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language.partition("-")[0])

    def tokenize(text: str) -> str:
        return split_compounds(moses.tokenize(text, return_str=True, escape=True))

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    result = metric.corpus_score(
        [tokenize(text) for text in hypotheses], [[tokenize(text) for text in texts] for texts in references]
    )
    name = "tokenized compound-split BLEU (the paper's protocol)"
    return Score(name, float(result.score), f"{metric.get_signature()}|moses|compounds:split")


def split_compounds(tokens: str) -> str:
    """Make a hyphen inside a word a token of its own."""
    return COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)
