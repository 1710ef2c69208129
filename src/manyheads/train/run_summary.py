"""The summary of a run: its checkpoints, latest metrics and training curves."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.errors import CheckpointError, RequestError
from manyheads.plot_style import SERIES_COLORS, import_pyplot
from manyheads.train.log import LOG_FILE, read_log
from manyheads.train.metrics import format_metrics
from manyheads.train.timing import format_startup, format_time, summarize_time

SPARKLINE_LEVELS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 60
IMAGE_FORMATS = (".svg", ".png", ".pdf")
CURVES = ("loss", "perplexity", "bleu")
EVENT_COLORS = {"train": SERIES_COLORS[0], "valid": SERIES_COLORS[1]}  # in every panel


def is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LOG_FILE, "checkpoints", "config.toml"))


def summarize_run(run: Path) -> dict[str, Any]:
    """Return what `inspect RUN --json` prints."""
    entries = read_log(run / LOG_FILE)
    return {
        "run": str(run),
        "checkpoints": {
            folder.name: checkpoint_status(folder) for folder in checkpoint.list_checkpoints(run)
        },
        "model": checkpoint_status(run / "model") if (run / "model").exists() else "not yet",
        "latest": {event: latest_entry(entries, event) for event in ("train", "valid", "end")},
        "time": summarize_time(entries),
        "log_entries": len(entries),
    }


def checkpoint_status(folder: Path) -> str:
    try:
        return f"intact, step {checkpoint.read_info(folder).step:,}"
    except CheckpointError as error:
        return str(error)


def latest_entry(entries: list[dict[str, Any]], event: str) -> dict[str, Any] | None:
    return next((entry for entry in reversed(entries) if entry["event"] == event), None)


def format_summary(run: Path) -> str:
    """Return what `inspect RUN` prints."""
    summary = summarize_run(run)
    entries = read_log(run / LOG_FILE)
    rows = [f"{run}: {summary['log_entries']:,} log entries; model: {summary['model']}"]
    rows += [f"  {name}: {status}" for name, status in summary["checkpoints"].items()]
    for event, name in (("train", "training"), ("valid", "validation")):
        if last := summary["latest"][event]:
            losses = [entry.get("loss") for entry in entries if entry["event"] == event]
            rows.append(f"{name}, step {last['step']:,}: {format_metrics(last)}")
            rows.append(f"  loss {sparkline(losses)}")
    if summary["time"]["seconds"]:
        rows.append(f"time: {format_time(summary['time'])}")
    rows += [f"  from step {start['step']:,}: {format_startup(start)}" for start in summary["time"]["starts"]]
    return "\n".join(rows)


def sparkline(values: Sequence[float | None]) -> str:
    """Draw a curve in one line; a column is the mean of some values. None stands for NaN, as in the log."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    width = max(1, math.ceil(len(finite) / SPARKLINE_WIDTH))
    columns = [finite[start : start + width] for start in range(0, len(finite), width)]
    means = [sum(column) / len(column) for column in columns]
    low, high = min(means), max(means)
    levels = [round((mean - low) / ((high - low) or 1) * (len(SPARKLINE_LEVELS) - 1)) for mean in means]
    return f"{''.join(SPARKLINE_LEVELS[level] for level in levels)}  {means[0]:.3f} to {means[-1]:.3f}"


def plot_curves(run: Path, image: Path) -> None:
    """Plot loss, perplexity and, if the log has it, BLEU against steps, as .svg, .png or .pdf."""
    if image.suffix not in IMAGE_FORMATS:
        raise RequestError(
            f"{image}: unknown image format {image.suffix!r}; use one of {', '.join(IMAGE_FORMATS)}"
        )
    pyplot = import_pyplot()
    entries = [entry for entry in read_log(run / LOG_FILE) if entry["event"] in ("train", "valid")]
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text
    keys = [key for key in CURVES if any(entry.get(key) is not None for entry in entries)] or ["loss"]
    figure, axes = pyplot.subplots(
        1, len(keys), figsize=(4 * len(keys), 3.5), constrained_layout=True, squeeze=False
    )
    for axis, key in zip(axes[0], keys, strict=True):
        for event in ("train", "valid"):
            points = [
                (entry["step"], entry[key])
                for entry in entries
                if entry["event"] == event and entry.get(key) is not None
            ]
            if points:
                label = "train, with label smoothing" if (event, key) == ("train", "loss") else event
                marker = "." if event == "valid" else None
                axis.plot(*zip(*points, strict=True), label=label, marker=marker, color=EVENT_COLORS[event])
        axis.set(title=key, xlabel="step", yscale="log" if key == "perplexity" else "linear")
        axis.grid()
        if axis.has_data():
            axis.legend()
    figure.savefig(image)
    pyplot.close(figure)
