"""The report of an adaptation: scores before and after, on new and on general text, and the curve."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.atomic_io import write_text_atomically
from manyheads.data.store import Store
from manyheads.evaluate.bleu import Score, bleu_and_length_ratio, bleu_tokenizer, chrf
from manyheads.evaluate.report import DEFAULT_BOOTSTRAP_SAMPLES, translate_texts
from manyheads.evaluate.significance import PairedComparison, paired_bootstrap
from manyheads.progress import ReportProgress
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.run_summary import sparkline
from manyheads.translator import Translator

REPORT_NAME = "adaptation"  # .md and .json in the run folder
FORGETTING_TOLERANCE = 0.01  # nats per token that the loss on general text may rise
CURVE_KEYS = ("step", "loss", "bleu", "general_loss", "general_bleu")


@dataclass(frozen=True)
class DomainScores:
    """The scores of the model before and after, on one test set."""

    data: str
    split: str
    num_sentences: int
    before: list[Score]
    after: list[Score]
    comparisons: list[PairedComparison]

    @property
    def gain(self) -> float:
        """The change of BLEU."""
        return self.after[0].value - self.before[0].value


@dataclass(frozen=True)
class AdaptationReport:
    """What an adaptation has changed."""

    model: str
    run: str
    adapter: str | None  # its file, if one was trained
    adapter_share: float | None  # of the bytes of the model's weights
    settings: dict[str, Any]
    new: DomainScores
    general: DomainScores | None
    curve: list[dict[str, float | None]]
    best_step: int
    forgetting_step: int | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self) -> Path:
        """Write adaptation.json and adaptation.md to the run folder; return the latter."""
        folder = Path(self.run)
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"
        write_text_atomically(folder / f"{REPORT_NAME}.json", text)
        path = folder / f"{REPORT_NAME}.md"
        write_text_atomically(path, self.to_markdown())
        return path

    def to_markdown(self) -> str:
        lines = ["# Adaptation", "", f"`{self.model}` adapted in `{self.run}`, {self.seconds:.0f} s.", ""]
        if self.adapter:
            lines += [f"Adapter: `{self.adapter}`, {self.adapter_share:.1%} of the model's bytes.", ""]
        settings = ", ".join(f"`{key}` {value}" for key, value in self.settings.items() if value is not None)
        lines += [f"Settings: {settings}.", "", *self._score_table(), ""]
        lines += [describe_forgetting(self.forgetting_step, self.best_step, self.general is not None), ""]
        return "\n".join([*lines, *self._curve_table()]) + "\n"

    def _score_table(self) -> list[str]:
        rows = ["| text | metric | before | after | change | p |", "|---|---|---:|---:|---:|---:|"]
        for name, scores in (("new", self.new), ("general", self.general)):
            if scores is None:
                continue
            text = f"{name}: {scores.split} of `{scores.data}`, {scores.num_sentences:,} sentences"
            for before, after, paired in zip(scores.before, scores.after, scores.comparisons, strict=True):
                change = f"{after.value - before.value:+.2f}"
                cells = text, before.name, format_value(before), format_value(after), change
                rows.append(f"| {' | '.join(cells)} | {paired.p_value:.3f} |")
        signatures = dict.fromkeys(score.signature for score in self.new.after)
        return [*rows, "", *(f"`{signature}`" for signature in signatures)]

    def _curve_table(self) -> list[str]:
        keys = [key for key in CURVE_KEYS if any(point.get(key) is not None for point in self.curve)]
        rows = [f"| {' | '.join(key.replace('_', ' ') for key in keys)} |", f"|{'---:|' * len(keys)}"]
        for point in self.curve:
            rows.append(f"| {' | '.join(format_cell(key, point.get(key)) for key in keys)} |")
        lines = [
            f"{key.replace('_', ' ')}: {sparkline([point.get(key) for point in self.curve])}"
            for key in keys
            if key != "step"
        ]
        return ["On the validation sets, BLEU by greedy search:", "", *rows, "", *(f"    {x}" for x in lines)]


def format_value(score: Score) -> str:
    margin = "" if score.margin_of_error is None else f" ± {score.margin_of_error:.2f}"
    return f"{score.value:.2f}{margin}"


def format_cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if key == "step" else f"{value:.3f}" if "loss" in key else f"{value:.2f}"


def describe_forgetting(step: int | None, best_step: int, is_measured: bool) -> str:
    if not is_measured:
        return (
            "What the model forgets was not measured: there is no general data (--general DATA, or the data "
            "folder that the model was trained on)."
        )
    if step is None:
        return (
            f"It does not forget: the loss on general text stays within {FORGETTING_TOLERANCE} of its value "
            f"before."
        )
    when = "before" if step <= best_step else "after"
    return (
        f"It starts to forget at step {step:,}: from there on the loss on general text is more than "
        f"{FORGETTING_TOLERANCE} above its value before. The model was taken from step {best_step:,}, so "
        f"forgetting starts {when} that."
    )


def read_curve(run: Path) -> list[dict[str, float | None]]:
    """Return the validations of a run, that of the initial weights first."""
    entries = [entry for entry in read_log(run / LOG_FILE) if entry["event"] == "valid"]
    return [{key: entry[key] for key in CURVE_KEYS if key in entry} for entry in entries]


def find_forgetting(curve: Sequence[dict[str, float | None]]) -> int | None:
    """Return the step from which on the loss on general text stays above its initial value."""
    measured = [point for point in curve if point.get("general_loss") is not None]
    points = [(point["step"], point["general_loss"]) for point in measured]
    if not points:
        return None
    limit = (points[0][1] or 0.0) + FORGETTING_TOLERANCE
    forgotten: int | None = None
    for step, loss in points[1:]:
        is_above = loss is not None and loss > limit
        forgotten = (int(step or 0) if forgotten is None else forgotten) if is_above else None
    return forgotten


def compare_on(
    store: Store,
    before: Translator,
    after: Translator,
    max_sentences: int,
    report_progress: ReportProgress = lambda stage, done, total: None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
) -> DomainScores:
    """Translate the test set of a data folder, or its validation set, with both models."""
    split, *texts = store.read_test_set()
    sources, references = (lines[:max_sentences] for lines in texts)
    tokenizer = bleu_tokenizer(store.target_language)
    outputs: list[list[str]] = []
    for stage, translator in (("translating before", before), ("translating after", after)):
        results = translate_texts(translator, sources, report_progress, stage, {})
        outputs.append([result.text for result in results])
    scores = [
        [
            bleu_and_length_ratio(translations, [references], tokenizer, bootstrap_samples)[0],
            chrf(translations, [references], bootstrap_samples),
        ]
        for translations in outputs
    ]
    comparisons = paired_bootstrap(outputs[1], outputs[0], [references], tokenizer, bootstrap_samples)
    return DomainScores(str(store.folder), split, len(sources), scores[0], scores[1], comparisons)
