"""`manyheads adapt`: the run, then its report."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.checkpoint.adapters import parse_adapter
from manyheads.config import Config
from manyheads.data.store import Store
from manyheads.loading import load
from manyheads.progress import ReportProgress
from manyheads.train.adapt import AdaptationOptions, create_config, install_adapter
from manyheads.train.adaptation_report import AdaptationReport, compare_on, find_forgetting, read_curve
from manyheads.train.final_model import ADAPTER_FILE
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.run import train
from manyheads.translator import Translator

MAX_SENTENCES = 2000  # of a test set


def adapt(
    model: Path,
    data: Path,
    out: Path,
    options: AdaptationOptions,
    *,
    changes: list[str] | None = None,
    device: str | None = None,
    max_sentences: int = MAX_SENTENCES,
    report_progress: ReportProgress = lambda stage, done, total: None,
) -> AdaptationReport | None:
    """Adapt a model to the text of a data folder, in a run folder, and write the report beside it.

    Returns None if the run was stopped by a signal; the same call resumes it.
    """
    info, start = checkpoint.read_info(model), time.monotonic()
    if options.adapter is not None:
        checkpoint.adapter_path(model, options.adapter)  # refuses a name that is none
    config = create_config(info, Store.open(data), options, changes)
    if train(config, out, device=device) == "stopped":
        return None
    before = load(model, device=device, engine="torch")
    after = load_adapted(before, out, config, device)
    seconds = sum_run_seconds(out) or time.monotonic() - start
    report = create_report(model, out, config, before, after, max_sentences, seconds, report_progress)
    if options.adapter is not None and config.adaptation.rank is not None:
        path = install_adapter(out, model, options.adapter)
        report = add_adapter(report, path, model)
    report.save()
    return report


def load_adapted(before: Translator, run: Path, config: Config, device: str | None) -> Translator:
    """Return the translator that a run has made: with its adapter as it is stored, or its model."""
    if config.adaptation.rank is None:
        return load(run / "model", device=device, engine="torch")
    engine: Any = before.engine
    adapter = parse_adapter(run / ADAPTER_FILE, "adapter")
    return before.with_engine(engine.with_adapter(adapter), None, adapter.name)


def sum_run_seconds(run: Path) -> float:
    ends = [entry for entry in read_log(run / LOG_FILE) if entry["event"] == "end"]
    return float(ends[-1]["run_seconds"] + ends[-1]["finish_seconds"]) if ends else 0.0


def create_report(
    model: Path,
    run: Path,
    config: Config,
    before: Translator,
    after: Translator,
    max_sentences: int,
    seconds: float,
    report_progress: ReportProgress,
) -> AdaptationReport:
    curve, general = read_curve(run), config.adaptation.general
    settings = {
        **asdict(config.adaptation),
        "learning_rate": config.train.learning_rate,
        "batch_tokens": config.data.batch_tokens,
        "validate_every": config.train.validate_every,
    }
    scores = [
        compare_on(Store.open(folder), before, after, max_sentences, report_progress)
        for folder in (config.data.folder, general)
        if folder is not None
    ]
    return AdaptationReport(
        model=str(model),
        run=str(run),
        adapter=None,
        adapter_share=None,
        settings={key: value for key, value in settings.items() if value not in (None, (), [])},
        new=scores[0],
        general=scores[1] if general is not None else None,
        curve=curve,
        best_step=checkpoint.read_info(run / "model").step,
        forgetting_step=find_forgetting(curve),
        seconds=seconds,
    )


def add_adapter(report: AdaptationReport, path: Path, model: Path) -> AdaptationReport:
    share = path.stat().st_size / (model / checkpoint.WEIGHTS).stat().st_size
    return replace(report, adapter=str(path), adapter_share=share)
