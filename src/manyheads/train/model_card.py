"""The model card: what a model was trained on and how, how good it is, and what it is not for.

It is a Markdown file in the model folder, but not in its manifest: it is written when the model is complete
and can be loaded, and people may edit it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from manyheads import checkpoint
from manyheads.atomic_io import report_disk_full, write_text_atomically
from manyheads.config import Config
from manyheads.data.store import Store
from manyheads.errors import DataError
from manyheads.evaluate.perplexity import perplexity
from manyheads.evaluate.stress import choose_sample_size, run_stress_tests
from manyheads.evaluate.stress_results import StressReport, format_markdown_table, format_score
from manyheads.evaluate.weaknesses import list_weaknesses
from manyheads.loading import load
from manyheads.presets import PRESETS
from manyheads.progress import ReportProgress
from manyheads.text.datasets.fetched import read_manifest as read_fetched
from manyheads.train.distilled_card import DistillReport, format_distillation, format_student_scores
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.timing import summarize_time
from manyheads.translator import Translator

MIN_SECONDS, MAX_SECONDS = 2.0, 60.0  # of the stress tests
SHARE_OF_RUN = 0.02  # of the time of training that they may take
BOOTSTRAP_SAMPLES = 200
LICENSE_PLACEHOLDER = "not stated: name the license of each corpus here before you share the model"
# What differs between any two runs.
IGNORED_KEYS = {
    "data.folder",
    "train.seed",
    "train.card",
    "model.vocab_size",
    "model.source_vocab_size",
    "model.target_vocab_size",
}


def write_model_card(
    model: Path,
    store: Store,
    run: Path | None = None,
    *,
    path: Path | None = None,
    license: str | None = None,
    distillation: DistillReport | None = None,
    seconds: float | None = None,
    engine: str | None = None,
    device: str | None = None,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> Path:
    """Measure a model and write its card, by default into its folder; return the path.

    `distillation` is the report of a student's distillation. The stress tests take about `seconds`, by
    default a fiftieth of the run's time, within limits.
    """
    info = checkpoint.read_info(model)
    checkpoint.check_subwords(model, store.subwords)
    entries = read_log(run / LOG_FILE) if run else []
    if seconds is None:
        share = SHARE_OF_RUN * summarize_time(entries)["seconds"]
        seconds = min(MAX_SECONDS, max(MIN_SECONDS, share))
    translator = load(model, device=device, engine=engine)
    report = measure(translator, store, seconds, report_progress)
    text = format_card(info, store, entries, report, license, distillation)
    path = path or model / checkpoint.MODEL_CARD
    with report_disk_full(path, len(text.encode())):
        write_text_atomically(path, text)
    return path


def measure(
    translator: Translator, store: Store, seconds: float, report_progress: ReportProgress
) -> StressReport | None:
    """Run the stress tests on as many held-out lines as the time allows; None if there are none."""
    split = find_split(store)
    if split is None:
        return None
    sources, references = store.read_text(split)
    return run_stress_tests(
        translator,
        sources,
        [references],
        sentences=choose_sample_size(translator, sources, seconds),
        bootstrap_samples=BOOTSTRAP_SAMPLES,
        report_progress=report_progress,
    )


def find_split(store: Store) -> str | None:
    """Return the split that the model is measured on."""
    return next((split for split in ("test", "valid") if split in store.splits), None)


# ---- the text


def format_card(
    info: checkpoint.CheckpointInfo,
    store: Store,
    entries: Sequence[Mapping[str, Any]],
    report: StressReport | None,
    license: str | None,
    distillation: DistillReport | None = None,
) -> str:
    """Return the card as Markdown."""
    source, target = info.languages["source"], info.languages["target"]
    versions = ", ".join(f"{name} {version}" for name, version in checkpoint.get_versions().items())
    student_scores = format_student_scores(distillation, info.config.decoding.beam) if distillation else ()
    sections = {
        "Scores": [*student_scores, *format_scores(store, entries, report)],
        "What it is not for": format_limits(info, store, report),
        "Stress tests": [report.to_markdown() if report else "Not measured: there are no held-out pairs."],
        **({"Distillation": format_distillation(distillation)} if distillation else {}),
        "Training data": format_data(store),
        "Recipe": format_recipe(info.config),
        "Training": format_training(info, entries, distillation["command"] if distillation else None),
        "License": [format_license(store, license)],
    }
    title = f"# Translation from {source} to {target}\n\nWritten by `manyheads card` ({versions})."
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items()]
    return "\n\n".join([title, *parts]) + "\n"


def format_scores(
    store: Store, entries: Sequence[Mapping[str, Any]], report: StressReport | None
) -> Iterator[str]:
    if report:
        row, split = report.clean, find_split(store)
        pairs = store.manifest["splits"][split]["pairs"]
        yield f"- {split}, {row.lines:,} of {pairs:,} lines, by {report.engine} with the model's decoding:"
        for score in (row.bleu, row.chrf):
            yield f"  - {score.name} {format_score(score)} (`{score.signature}`)"
    ends = [entry for entry in entries if entry["event"] == "end" and entry.get("loss") is not None]
    if ends:
        yield f"- valid: perplexity {perplexity(ends[-1]['loss']):.3f} per subword, without label smoothing"
    bleus = [entry for entry in entries if entry["event"] == "valid" and entry.get("bleu") is not None]
    if bleus:
        last = bleus[-1]
        yield (
            f"- valid, a sample by greedy search at step {last['step']:,}: BLEU {last['bleu']:.2f} "
            f"(`{last['signature']}`)"
        )


def format_limits(
    info: checkpoint.CheckpointInfo, store: Store, report: StressReport | None
) -> Iterator[str]:
    for weakness in list_weaknesses(report) if report else []:
        yield f"- {weakness}"
    names = ", ".join(entry["name"] for entry in store.manifest["splits"]["train"]["inputs"])
    yield (
        f"- Not for text of another kind than its training data ({names}): all scores here are those of "
        f"held-out text like it. Measure your own: `manyheads evaluate MODEL SOURCE REFERENCE --stress`."
    )
    lengths = store.load_split("train").source.lengths
    limit = int(np.percentile(lengths, 99)) if len(lengths) else 0
    yield f"- Not for sentences of more than {limit} subwords: 99 % of the training sources have no more."
    yield f"- Not for other languages, nor from {store.target_language} to {store.source_language}."


def format_data(store: Store) -> Iterator[str]:
    split = store.manifest["splits"]["train"]
    tokens = " and ".join(f"{split[side]['tokens']:,}" for side in ("source", "target"))
    yield f"{split['pairs']:,} pairs, {store.source_language} to {store.target_language}: {tokens} subwords."
    yield ""
    rows = [
        [
            entry["name"],
            f"{entry['weight']:g}",
            f"{entry['read']:,}",
            f"{entry['kept']:,}",
            describe_reasons({**entry["invalid"], **entry["dropped"]}),
        ]
        for entry in split["inputs"]
    ]
    yield format_markdown_table(["input", "weight", "read", "kept", "left out"], rows)


def describe_reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items()) or "-"


def format_recipe(config: Config) -> Iterator[str]:
    """List the keys that differ from the nearest preset."""
    values = flatten(config)
    differences = {
        name: [key for key, value in flatten(preset).items() if values.get(key) != value]
        + [key for key in values if key not in flatten(preset)]
        for name, preset in PRESETS.items()
    }
    name = min(differences, key=lambda name: len(differences[name]))
    preset = flatten(PRESETS[name])
    if not differences[name]:
        yield f"The preset `{name}`."
        return
    yield f"The preset `{name}` with these differences; `manyheads inspect MODEL` prints all keys."
    yield ""
    rows = [
        [f"`{key}`", show_value(values.get(key)), show_value(preset.get(key))] for key in differences[name]
    ]
    yield format_markdown_table(["key", "value", f"in `{name}`"], rows)


def flatten(config: Config) -> dict[str, Any]:
    return {
        f"{table}.{key}": value
        for table, keys in asdict(config).items()
        for key, value in keys.items()
        if f"{table}.{key}" not in IGNORED_KEYS
    }


def show_value(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def format_training(
    info: checkpoint.CheckpointInfo, entries: Sequence[Mapping[str, Any]], command: str | None = None
) -> Iterator[str]:
    stated = command or "manyheads train config.toml"
    yield f"- command: `{stated}`; `config.toml` in the folder of the run has all keys"
    yield f"- seed {info.config.train.seed}, model of step {info.step:,} of {info.config.train.steps:,}"
    ends = [entry for entry in entries if entry["event"] == "end"]
    if ends:
        yield f"- weights: {ends[-1]['model']}"
    time = summarize_time(entries)
    if time["seconds"]:
        yield f"- {time['seconds']:,.0f} s of training, in {len(time['starts']) or 1} part(s)"
    machines = [
        f"{entry['device']}" + (f", {entry['ranks']} processes" if entry["ranks"] > 1 else "")
        for entry in time["starts"]
        if "device" in entry
    ]
    if machines:
        yield f"- hardware: {'; '.join(dict.fromkeys(machines))}"


def format_license(store: Store, license: str | None) -> str:
    """Return the license that the user states, or those of the recipe and of `manyheads get` by input."""
    if license:
        return f"Training data: {license}"
    inputs = store.manifest["splits"]["train"]["inputs"]
    recipe = store.manifest.get("recipe", {}).get("train", [])
    stated = [*recipe, *([{}] * (len(inputs) - len(recipe)))]
    lines = [
        f"- {entry['name']}: {describe_license(entry, own)}"
        for entry, own in zip(inputs, stated, strict=True)
    ]
    return "\n".join(["Training data:", "", *lines])


def describe_license(entry: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    """Return the license and the attribution of an input: as its recipe states, or as `get` recorded."""
    license = stated.get("license") or find_license(entry["files"]) or LICENSE_PLACEHOLDER
    attribution = stated.get("attribution")
    return f"{license}. Attribution: {attribution}" if attribution else license


def find_license(files: Sequence[str | os.PathLike[str]]) -> str | None:
    """Return the license that `manyheads get` recorded beside a file."""
    try:
        fetched = read_fetched(Path(files[0]).parent)
    except (OSError, DataError, IndexError):
        return None
    return f"{fetched.license} ({fetched.license_url})"
