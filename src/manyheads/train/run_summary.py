"""The state of a run, for people: where it stands, its latest numbers, and its curves."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.errors import CheckpointError, RequestError
from manyheads.train.log import LOG_FILE, format_metrics, read_log

SPARKLINE_LEVELS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 60
IMAGE_FORMATS = (".svg", ".png", ".pdf")
CURVES = ("loss", "perplexity", "bleu")


def is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LOG_FILE, "checkpoints", "config.toml"))


def summarize_run(run: Path) -> dict[str, Any]:
    """What `inspect RUN --json` gives."""
    lines = read_log(run / LOG_FILE)
    return {
        "run": str(run),
        "checkpoints": {
            folder.name: checkpoint_status(folder) for folder in checkpoint.list_checkpoints(run)
        },
        "model": checkpoint_status(run / "model") if (run / "model").exists() else "not yet",
        "latest": {kind: latest_entry(lines, kind) for kind in ("train", "valid", "end")},
        "lines": len(lines),
    }


def checkpoint_status(folder: Path) -> str:
    try:
        return f"sound, step {checkpoint.read_info(folder).step:,}"
    except CheckpointError as fault:
        return str(fault)


def latest_entry(lines: list[dict[str, Any]], kind: str) -> dict[str, Any] | None:
    return next((line for line in reversed(lines) if line["kind"] == kind), None)


def format_summary(run: Path) -> str:
    found = summarize_run(run)
    lines = read_log(run / LOG_FILE)
    rows = [f"{run}: {found['lines']:,} lines of log; model: {found['model']}"]
    rows += [f"  {name}: {state}" for name, state in found["checkpoints"].items()]
    for kind, name in (("train", "training"), ("valid", "validation")):
        if last := found["latest"][kind]:
            rows.append(f"{name}, step {last['step']:,}: {format_metrics(last)}")
            rows.append(f"  loss {sparkline([line['loss'] for line in lines if line['kind'] == kind])}")
    return "\n".join(rows)


def sparkline(values: Sequence[float | None]) -> str:
    """A curve of one line: each column the mean of its share of the values; the log has None for NaN."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    step = max(1, math.ceil(len(finite) / SPARKLINE_WIDTH))
    means = [sum(part) / len(part) for part in (finite[i : i + step] for i in range(0, len(finite), step))]
    low, high = min(means), max(means)
    height = [round((value - low) / ((high - low) or 1) * (len(SPARKLINE_LEVELS) - 1)) for value in means]
    return f"{''.join(SPARKLINE_LEVELS[one] for one in height)}  {means[0]:.3f} to {means[-1]:.3f}"


def plot_curves(run: Path, image: Path) -> None:
    """Loss, perplexity and, where there is any, BLEU against steps; as .svg, .png or .pdf."""
    if image.suffix not in IMAGE_FORMATS:
        raise RequestError(f"{image}: curves are drawn as {', '.join(IMAGE_FORMATS)}")
    try:
        import matplotlib
    except ImportError:
        raise RequestError("curves are drawn by matplotlib: pip install 'manyheads[figures]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = read_log(run / LOG_FILE)
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text
    drawn = [line for line in lines if line["kind"] in ("train", "valid")]
    known = [key for key in CURVES if any(line.get(key) is not None for line in drawn)] or ["loss"]
    figure, axes = pyplot.subplots(
        1, len(known), figsize=(4 * len(known), 3.5), constrained_layout=True, squeeze=False
    )
    for axis, key in zip(axes[0], known, strict=True):
        for kind in ("train", "valid"):
            own = [line for line in drawn if line["kind"] == kind and line.get(key) is not None]
            points = [(line["step"], line[key]) for line in own]
            if points:
                label = "train, as minimized" if (kind, key) == ("train", "loss") else kind
                axis.plot(*zip(*points, strict=True), label=label, marker="." if kind == "valid" else None)
        axis.set(title=key, xlabel="step", yscale="log" if key == "perplexity" else "linear")
        if axis.has_data():
            axis.legend()
    figure.savefig(image)
    pyplot.close(figure)
