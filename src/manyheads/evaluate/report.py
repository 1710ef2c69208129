"""Scores, each with its signature: never a bare number."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyheads.errors import DataError, RequestError
from manyheads.progress import ReportProgress
from manyheads.translator import Translator

TOKENIZERS = {"ko": "char", "ja": "char", "zh": "zh"}  # whose words spaces do not part as elsewhere
CONFIDENCE_LEVEL = 0.95
COMPOUND_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """A number, and how it was computed."""

    name: str
    value: float
    signature: str
    margin_of_error: float | None = None  # half of the interval that holds 95 % of the bootstrap's samples

    def __str__(self) -> str:
        spread = "" if self.margin_of_error is None else f" ± {self.margin_of_error:.2f}"
        return f"{self.name} {self.value:.2f}{spread} ({self.signature})"


@dataclass(frozen=True)
class SystemComparison:
    """Two systems, and how likely chance alone would part them so far: paired bootstrap."""

    metric: str
    system: float
    baseline: float
    p_value: float
    signature: str

    def __str__(self) -> str:
        verdict = "is hardly chance" if self.p_value < 1 - CONFIDENCE_LEVEL else "may be chance"
        return (
            f"{self.metric} {self.system:.2f} against {self.baseline:.2f}: the difference {verdict}, "
            f"p = {self.p_value:.3f} ({self.signature})"
        )


@dataclass(frozen=True)
class WorstSentence:
    """A sentence that went badly."""

    line_number: int  # from 1
    source: str
    reference: str
    translation: str
    chrf: float


@dataclass(frozen=True)
class Evaluation:
    """What is known of a model's translations of a text."""

    translations: list[str]
    scores: list[Score]
    perplexity: float | None  # a subword, of the first reference; None: infinite
    num_too_long: int  # references that the model's positions do not reach, which it leaves out
    length_ratio: float  # of the translations to the references, in BLEU's words
    worst_sentences: list[WorstSentence]
    comparisons: list[SystemComparison]
    engine: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        rows = [f"{len(self.translations):,} sentences, by {self.engine}", *map(str, self.scores)]
        without = f", {self.num_too_long} too long left out" if self.num_too_long else ""
        told = "infinite" if self.perplexity is None else f"{self.perplexity:.2f}"
        rows.append(f"perplexity {told} a subword of the reference, unsmoothed{without}")
        rows.append(f"length {self.length_ratio:.3f} times the reference's")
        rows += map(str, self.comparisons)
        for one in self.worst_sentences:
            rows.append(f"\nline {one.line_number}, chrF {one.chrf:.1f}")
            rows += [f"  {text}" for text in (one.source, one.translation, f"{one.reference}  (reference)")]
        return "\n".join(rows)


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    baseline: Translator | None = None,
    tokenize: str | None = None,
    bootstrap_samples: int = 1000,
    num_worst: int = 5,
    report_progress: ReportProgress = lambda stage, done, total: None,
    **decoding: Any,
) -> Evaluation:
    """Translates the sources, each as one sentence, and scores what comes of it."""
    if not sources:
        raise DataError("no sentences to evaluate")
    language = translator.target_language
    bleu_metric(tokenize or bleu_tokenizer(language))  # before any work is done
    found = translate_texts(translator, sources, report_progress, "translating", decoding)
    bleu_score, ratio = bleu_and_length_ratio(
        found, references, tokenize or bleu_tokenizer(language), bootstrap_samples
    )
    scores = [bleu_score, chrf(found, references, bootstrap_samples), paper_bleu(found, references, language)]
    compared: list[SystemComparison] = []
    if baseline is not None:
        others = translate_texts(baseline, sources, report_progress, "translating with the other", decoding)
        compared = paired_bootstrap(
            found, others, references, tokenize or bleu_tokenizer(language), bootstrap_samples or 1000
        )
    return Evaluation(
        found,
        scores,
        *reference_perplexity(translator, sources, references[0]),
        ratio,
        find_worst_sentences(found, sources, references, num_worst),
        compared,
        translator.engine.name,
    )


def translate_texts(
    translator: Translator, sources: Sequence[str], tell: ReportProgress, stage: str, search: dict[str, Any]
) -> list[str]:
    def watch(done: int, total: int) -> None:
        tell(stage, done, total)

    return [
        one.text for one in translator.translate(sources, split=False, scores="none", tell=watch, **search)
    ]


# ---- sacreBLEU


def bleu_tokenizer(language: str) -> str:
    """Korean and Japanese by characters, Chinese by sacreBLEU's own rules, the others by 13a."""
    return TOKENIZERS.get(language.partition("-")[0].lower(), "13a")


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """sacreBLEU of a corpus with one reference."""
    return bleu_and_length_ratio(hypotheses, [references], bleu_tokenizer(language), 0)[0]


def bleu_and_length_ratio(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str, samples: int
) -> tuple[Score, float]:
    """BLEU, and the ratio of lengths."""
    score, found = bootstrap_score("BLEU", lambda: bleu_metric(tokenizer), hypotheses, references, samples)
    return score, found.sys_len / max(1, found.ref_len)


def bootstrap_score(
    name: str,
    make: Callable[[], Any],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int,
) -> tuple[Score, Any]:
    """A corpus's score with its spread, or without where a sample of the bootstrap has none at all."""
    metric = make()
    try:
        found = metric.corpus_score(list(hypotheses), as_lists(references), n_bootstrap=max(1, samples))
    except TypeError:  # sacreBLEU mixes its 0.0 with numpy's numbers
        metric = make()
        found = metric.corpus_score(list(hypotheses), as_lists(references), n_bootstrap=1)
    spread = getattr(found, "_ci", -1.0)
    return Score(
        name, float(found.score), str(metric.get_signature()), float(spread) if spread > 0 else None
    ), found


def bleu_metric(tokenizer: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenizer)
    except (KeyError, ValueError, RuntimeError, ImportError, SystemExit) as fault:
        first = next(iter(str(fault).strip().splitlines()), "it does not say why")
        raise RequestError(f"sacreBLEU has no tokenizer {tokenizer!r} here ({first})") from None


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int) -> Score:
    from sacrebleu.metrics.chrf import CHRF

    return bootstrap_score("chrF", CHRF, hypotheses, references, samples)[0]


def as_lists(references: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(one) for one in references]


def paired_bootstrap(
    system: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: str,
    samples: int,
) -> list[SystemComparison]:
    """Two systems' BLEU and chrF by paired bootstrap."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.significance import PairedTest

    metrics = {"BLEU": bleu_metric(tokenizer), "chrF2": CHRF()}
    systems: Any = [("theirs", list(baseline)), ("ours", list(system))]  # the first is the baseline
    test: Any = PairedTest(systems, metrics, as_lists(references), "bs", n_samples=samples)
    signatures, found = test()
    return [
        SystemComparison(
            name,
            float(found[name][1].score),
            float(found[name][0].score),
            float(found[name][1].p_value)
            if list(system) != list(baseline)
            else 1.0,  # it sees no chance there
            str(signatures[name]),
        )
        for name in metrics
    ]


# ---- the paper's protocol


def paper_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str) -> Score:
    """BLEU as the paper's table has it: Moses tokens, compounds split at hyphens on both sides, no smoothing.

    It reads about a point higher than sacreBLEU's, and cannot be compared with it.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language.partition("-")[0])

    def prepared(text: str) -> str:
        return split_compounds(moses.tokenize(text, return_str=True, escape=True))

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    found = metric.corpus_score(
        [prepared(text) for text in hypotheses], [[prepared(text) for text in one] for one in references]
    )
    name = "tokenized compound-split BLEU (the paper's protocol)"
    return Score(name, float(found.score), f"{metric.get_signature()}|moses|compounds:split")


def split_compounds(tokens: str) -> str:
    """A hyphen inside a word becomes a token of its own."""
    return COMPOUND_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


# ---- the rest


def reference_perplexity(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> tuple[float | None, int]:
    """Of the model, a subword, ends counted; and how many pairs are longer than it reaches."""
    reach = translator.engine.max_positions or math.inf
    words = translator.subwords
    pairs = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if max(len(words.source.encode(source)), len(words.target.encode(target))) < reach
    ]
    if not pairs:
        return None, len(sources)
    found = translator.score([source for source, _ in pairs], [target for _, target in pairs])
    tokens = sum(len(one.tokens) + 1 for one in found)
    mean = -sum(one.log_probability for one in found) / tokens
    return math.exp(mean) if mean < 700 else None, len(sources) - len(pairs)


def find_worst_sentences(
    hypotheses: Sequence[str], sources: Sequence[str], references: Sequence[Sequence[str]], count: int
) -> list[WorstSentence]:
    """Those with the lowest chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    found = [
        WorstSentence(number + 1, source, references[0][number], hypothesis, float(score))
        for number, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True))
        for score in [metric.sentence_score(hypothesis, [one[number] for one in references]).score]
    ]
    return sorted(found, key=lambda one: one.chrf)[:count]


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
