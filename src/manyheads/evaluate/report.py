"""The evaluation of a translator on a test set: scores, perplexity, significance, worst sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyheads.confidence_policy import DEFAULT_MIN_CONFIDENCE
from manyheads.errors import DataError
from manyheads.evaluate.bleu import (
    Score,
    bleu_and_length_ratio,
    bleu_metric,
    bleu_tokenizer,
    chrf,
    paper_bleu,
    sentence_chrf,
)
from manyheads.evaluate.perplexity import reference_perplexity
from manyheads.evaluate.significance import PairedComparison, paired_bootstrap
from manyheads.progress import ReportProgress
from manyheads.translation import Translation
from manyheads.translator import Translator

DEFAULT_BOOTSTRAP_SAMPLES = 1000


@dataclass(frozen=True)
class WorstSentence:
    """A sentence with a low chrF."""

    line_number: int  # from 1
    source: str
    reference: str
    translation: str
    chrf: float


@dataclass(frozen=True)
class Evaluation:
    """The results of `evaluate`."""

    translations: list[str]
    scores: list[Score]
    perplexity: float | None  # per subword of the first reference; None if infinite
    num_too_long: int  # references beyond the model's positions, which its perplexity leaves out
    length_ratio: float  # of the translations to the references, in BLEU's tokens
    worst_sentences: list[WorstSentence]
    comparisons: list[PairedComparison]
    engine: str
    confidences: list[float | None]  # of each translation, if the model is calibrated

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        rows = [f"{len(self.translations):,} sentences, by {self.engine}", *map(str, self.scores)]
        skipped = f", {self.num_too_long} too long left out" if self.num_too_long else ""
        perplexity = "infinite" if self.perplexity is None else f"{self.perplexity:.2f}"
        rows.append(f"perplexity {perplexity} per subword of the reference, unsmoothed{skipped}")
        rows.append(f"length ratio to the reference {self.length_ratio:.3f}")
        rows += [*self._describe_confidence(), *map(str, self.comparisons)]
        for sentence in self.worst_sentences:
            rows.append(f"\nline {sentence.line_number}, chrF {sentence.chrf:.1f}")
            texts = sentence.source, sentence.translation, f"{sentence.reference}  (reference)"
            rows += [f"  {text}" for text in texts]
        return "\n".join(rows)

    def _describe_confidence(self) -> list[str]:
        known = [value for value in self.confidences if value is not None]
        if not known:
            return []
        num_below = sum(value < DEFAULT_MIN_CONFIDENCE for value in known)
        counted = f"{num_below:,} of {len(self.translations):,} below {DEFAULT_MIN_CONFIDENCE}"
        return [f"mean confidence {sum(known) / len(known):.2f}; {counted}"]


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    baseline: Translator | None = None,
    tokenize: str | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    num_worst: int = 5,
    report_progress: ReportProgress = lambda stage, done, total: None,
    **decoding: Any,
) -> Evaluation:
    """Translate the sources, each as one sentence, and score the translations."""
    if not sources:
        raise DataError("no sentences to evaluate")
    language = translator.target_language
    tokenizer = tokenize or bleu_tokenizer(language)
    bleu_metric(tokenizer)  # raises before any work is done
    results = translate_texts(translator, sources, report_progress, "translating", decoding)
    translations = [result.text for result in results]
    bleu_score, length_ratio = bleu_and_length_ratio(translations, references, tokenizer, bootstrap_samples)
    scores = [
        bleu_score,
        chrf(translations, references, bootstrap_samples),
        paper_bleu(translations, references, language),
    ]
    comparisons: list[PairedComparison] = []
    if baseline is not None:
        stage = "translating with the baseline"
        others = [
            result.text for result in translate_texts(baseline, sources, report_progress, stage, decoding)
        ]
        samples = bootstrap_samples or DEFAULT_BOOTSTRAP_SAMPLES
        comparisons = paired_bootstrap(translations, others, references, tokenizer, samples)
    perplexity, num_too_long = reference_perplexity(translator, sources, references[0])
    return Evaluation(
        translations,
        scores,
        perplexity,
        num_too_long,
        length_ratio,
        find_worst_sentences(translations, sources, references, num_worst),
        comparisons,
        translator.engine.name,
        [result.confidence for result in results],
    )


def translate_texts(
    translator: Translator,
    sources: Sequence[str],
    report_progress: ReportProgress,
    stage: str,
    decoding: dict[str, Any],
) -> list[Translation]:
    def report(_: str, done: int, total: int | None) -> None:
        report_progress(stage, done, total)

    options = {"split": False, "scores": "total", "corrections": False, **decoding}
    return translator.translate(sources, report_progress=report, **options)


def find_worst_sentences(
    hypotheses: Sequence[str], sources: Sequence[str], references: Sequence[Sequence[str]], count: int
) -> list[WorstSentence]:
    """Return the sentences with the lowest chrF, the worst first."""
    scores = [sentence_chrf(*texts) for texts in zip(hypotheses, *references, strict=True)]
    rows = zip(sources, references[0], hypotheses, scores, strict=True)
    sentences = [WorstSentence(number, *row) for number, row in enumerate(rows, 1)]
    return sorted(sentences, key=lambda sentence: sentence.chrf)[:count]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of hypotheses that equal the reference."""
    matches = sum(
        hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return matches / max(1, len(references))
