"""What a bulk job does: a description in plain JSON that a worker turns into a function of rows.

A new task is a function `open_...` that takes a translator and a job and returns a function from a
list of rows to columns of the same length, and an entry in OPENERS.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from manyheads.bulk.backtranslation import BacktranslationOptions, format_pair
from manyheads.confidence_policy import ConfidenceCounts, ConfidencePolicy
from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.translation import Translation
    from manyheads.translator import Translator

JSON_ENCODER = json.JSONEncoder(ensure_ascii=False)  # json.dumps would create one for each line

Row = str | list[str]  # a text, or a source and its translation
Columns = dict[str, list[Any]]  # by name, one value per row
RowFunction = Callable[[Sequence[Any]], "RowResults"]
Task = Literal["translate", "nbest", "score", "backtranslate"]
Output = Literal["lines", "columns", "json"]  # one line of text per row; typed columns; a JSON object per row
# Types of the columns in Parquet, for shards that have no rows to infer them from.
COLUMN_TYPES = {
    "translation": "string",
    "confidence": "float64",
    "json": "string",
    "log_probability": "float64",
    "log_probability_per_token": "float64",
}


@dataclass(frozen=True)
class BulkJob:
    """What a worker needs to know: a model, an engine, and what to do with rows."""

    task: Task
    models: list[str]  # folders; several are an ensemble
    engine: str = "torch"
    device: str | None = None
    threads: int | None = None  # of a worker on a CPU; None: as many as there are cores
    output: Output = "lines"
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of Translator.translate
    confidence_policy: dict[str, Any] | None = None  # fields of ConfidencePolicy, if one is requested
    adapter: str | None = None  # of the model
    backtranslation: dict[str, Any] | None = None  # fields of BacktranslationOptions, for that task

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def create_translate_job(
    models: Sequence[Path],
    engine: str | None,
    device: str | None,
    options: dict[str, Any],
    policy: ConfidencePolicy | None,
    as_json: bool,
    is_typed: bool,
    adapter: str | None = None,
) -> BulkJob:
    """Return a job that translates: into JSON objects, columns of their own types, or lines."""
    from manyheads.loading import prepare_engine

    engine = engine or prepare_engine(models[0], models[1:], device, adapter)[1]
    output: Output = "json" if as_json else "columns" if is_typed else "lines"
    described = None if policy is None else asdict(policy)
    folders = [*map(str, models)]
    return BulkJob("translate", folders, engine, device, None, output, options, described, adapter)


@dataclass(frozen=True)
class RowResults:
    """What a worker makes of rows."""

    columns: Columns
    counts: ConfidenceCounts = field(default_factory=ConfidenceCounts)


def open_job(job: BulkJob) -> RowFunction:
    """Load the models of a job, and return its function."""
    from manyheads.loading import load

    translator = load(
        *job.models, device=job.device, engine=job.engine, threads=job.threads, adapter=job.adapter
    )
    if job.task != "translate":  # which wants the model's own translations
        translator.memory = None
    return OPENERS[job.task](translator, job)


def choose_scores(translator: "Translator", as_json: bool) -> Literal["none", "total", "tokens"]:
    """Return which scores the output needs: all, those of the confidence, or none."""
    if as_json:
        return "tokens"
    return "total" if translator.is_calibrated else "none"


def open_translate(translator: "Translator", job: BulkJob) -> RowFunction:
    as_json = job.output == "json"
    options = {
        "alignment": as_json and translator.engine.capabilities.alignment,
        "scores": choose_scores(translator, as_json),
        **job.options,
    }

    if job.confidence_policy is not None:
        check_calibration(translator)
    policy = ConfidencePolicy(**job.confidence_policy or {})

    def translate(texts: Sequence[str]) -> RowResults:
        counts, lines, confidences = ConfidenceCounts(), list[str](), list[float | None]()
        for translations in translator.stream_batches(texts, **options):
            counts.add(translations, policy)
            lines += format_translations(translations, as_json, policy)
            if job.output == "columns":
                confidences += [translation.confidence for translation in translations]
        columns: Columns = {"json" if as_json else "translation": lines}
        if job.output == "columns":
            columns["confidence"] = confidences
        return RowResults(columns, counts)

    return translate


def open_nbest(translator: "Translator", job: BulkJob) -> RowFunction:
    """Return what writes the n-best list of each text: log p per token, confidence and text of each."""

    def translate(texts: Sequence[str]) -> RowResults:
        batches = translator.stream_batches(texts, **{"scores": "total", **job.options})
        return RowResults({"nbest": [format_nbest(entry) for batch in batches for entry in batch]})

    return translate


def check_calibration(translator: "Translator") -> None:
    """Refuse a threshold where translations have no confidence."""
    if not translator.is_calibrated:
        raise RequestError(
            "--min-confidence, --below and --flag need a calibrated model, and not an ensemble: "
            "run manyheads calibrate"
        )


def open_score(translator: "Translator", job: BulkJob) -> RowFunction:
    def score(pairs: Sequence[Sequence[str]]) -> RowResults:
        scored = translator.score([source for source, _ in pairs], [target for _, target in pairs])
        if job.output == "json":
            return RowResults({"json": [format_json(translation) for translation in scored]})
        if job.output == "lines":
            return RowResults({"score": [format_score(translation) for translation in scored]})
        columns: Columns = {
            "log_probability": [translation.log_probability for translation in scored],
            "log_probability_per_token": [compute_token_average(translation) for translation in scored],
        }
        return RowResults(columns)

    return score


def open_backtranslate(translator: "Translator", job: BulkJob) -> RowFunction:
    """Return a function from lines to synthetic pairs; None stands for a line without one."""
    options = BacktranslationOptions(**job.backtranslation or {})
    if options.min_confidence is not None:
        check_calibration(translator)
    policy = ConfidencePolicy(options.min_confidence or 0.0)

    def backtranslate(texts: Sequence[str]) -> RowResults:
        pairs, counts = list[str | None](), ConfidenceCounts()
        for translations in translator.stream_batches(texts, scores="total", **job.options):
            new = [format_pair(translation, options, policy) for translation in translations]
            pairs += new
            counts.num_lines += len(new)
            counts.num_below += new.count(None)
        return RowResults({"pair": pairs}, counts)

    return backtranslate


OPENERS: dict[str, Callable[["Translator", BulkJob], RowFunction]] = {
    "translate": open_translate,
    "nbest": open_nbest,
    "score": open_score,
    "backtranslate": open_backtranslate,
}


# ---- lines of output, which commands without workers print too


def format_translations(
    translations: "Sequence[Translation]", as_json: bool, policy: ConfidencePolicy
) -> list[str]:
    """Return a line for each translation, with the text that the policy chooses."""
    if as_json:
        return [format_json(policy.apply(translation)) for translation in translations]
    if policy.below == "keep":
        return [translation.text for translation in translations]
    return [policy.choose_text(translation) for translation in translations]


def format_json(translation: "Translation") -> str:
    return JSON_ENCODER.encode(translation.to_dict())


def format_nbest(translation: "Translation") -> str:
    """Return the n-best list of a translation as JSON, the best first."""
    return JSON_ENCODER.encode(
        [
            (
                round(compute_token_average(version), 4),
                None if version.confidence is None else round(version.confidence, 4),
                version.text,
            )
            for version in (translation, *translation.alternatives)
        ]
    )


def format_score(translation: "Translation") -> str:
    """Return the log-probability, its average over the tokens, and the translation, separated by tabs."""
    average = compute_token_average(translation)
    return f"{translation.log_probability:.4f}\t{average:.4f}\t{translation.text}"


def compute_token_average(translation: "Translation") -> float:
    """Return the log-probability per token; the end token counts."""
    return translation.log_probability / (len(translation.tokens) + 1)
