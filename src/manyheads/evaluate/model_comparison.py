"""What a change of a model, such as int8 weights, costs: scores of both, and how many lines stay the same."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyheads.errors import DataError
from manyheads.evaluate.bleu import bleu_tokenizer
from manyheads.evaluate.report import DEFAULT_BOOTSTRAP_SAMPLES, translate_texts
from manyheads.evaluate.significance import PairedComparison, paired_bootstrap
from manyheads.progress import ReportProgress
from manyheads.translator import Translator


@dataclass(frozen=True)
class ModelComparison:
    """A changed model and its original on a test set."""

    scores: list[PairedComparison]  # BLEU and chrF; the original is the baseline
    num_lines: int
    num_same: int  # lines that both translate identically
    engine: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        share = self.num_same / self.num_lines
        same = f"{self.num_same:,} of {self.num_lines:,} lines ({share:.1%}) are the same, by {self.engine}"
        return "\n".join([*(describe_change(score) for score in self.scores), same])


def describe_change(score: PairedComparison) -> str:
    change = score.system - score.baseline
    return f"{score.metric} {score.baseline:.2f} -> {score.system:.2f} ({change:+.2f}; {score.signature})"


def compare_models(
    changed: Translator,
    original: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    report_progress: ReportProgress = lambda stage, done, total: None,
    **decoding: Any,
) -> ModelComparison:
    """Translate a test set with a changed model and with its original, and compare the results."""
    if not sources:
        raise DataError("no sentences to compare the models on")
    before, after = (
        [result.text for result in translate_texts(translator, sources, report_progress, stage, decoding)]
        for translator, stage in (
            (original, "translating with the original"),
            (changed, "translating with the changed model"),
        )
    )
    tokenizer = bleu_tokenizer(changed.target_language)
    scores = paired_bootstrap(after, before, references, tokenizer, bootstrap_samples)
    num_same = sum(old == new for old, new in zip(before, after, strict=True))
    return ModelComparison(scores, len(sources), num_same, changed.engine.name)
