"""The commands `inspect` and `doctor`."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AsJson
from manyheads.config import Config
from manyheads.errors import ConfigError, RequestError
from manyheads.presets import PRESETS, get_preset


@app.command(epilog=f"Presets: {', '.join(PRESETS)}.")
def inspect(
    target: Annotated[
        str,
        typer.Argument(
            help="A preset, a TOML file, or a folder: data, run or model.",
            metavar="PRESET|FILE|DATA|RUN|MODEL",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Keys of a configuration to change; none unsets a key.", metavar="SECTION.KEY=VALUE"
        ),
    ] = None,
    as_json: AsJson = False,
    sentence: Annotated[
        list[str] | None,
        typer.Option(help="Data folder: show the subwords of this sentence; can be repeated."),
    ] = None,
    examples: Annotated[int, typer.Option(help="Data folder: number of pairs to show.", min=0)] = 3,
    curves: Annotated[
        Path | None, typer.Option(help="Run: plot its curves to this file, .svg, .png or .pdf.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Data folder: check the checksum of every file.")
    ] = False,
) -> None:
    """Show a configuration with the meaning of its keys and the model's size; or a data folder, run or model.

    A configuration is printed as a TOML file to start from. A data folder shows its languages, sizes, dropped
    pairs, examples and subwords. A run shows its progress, checkpoints and curves.

    \b
    Example:
      manyheads inspect base model.layers=12 > run.toml
    """
    if os.path.isdir(target):
        if changes:
            raise ConfigError(f"{changes[0]}: {target} is a folder, whose settings cannot be changed")
        inspect_folder(Path(target), sentence or [], examples, verify, curves, as_json)
        return
    if sentence or verify or curves:
        raise ConfigError(f"--sentence, --verify and --curves need a folder, but {target} is a configuration")
    is_file = target.endswith(".toml") or (target not in PRESETS and os.path.exists(target))
    config = (Config.load(target) if is_file else get_preset(target)).override(changes or [])

    from manyheads.model import count_parameters

    sizes = count_parameters(config.model)
    if as_json:
        print(json.dumps({**asdict(config), "parameters": sizes}, ensure_ascii=False, indent=1))
        return
    parts = ", ".join(f"{part.replace('_', ' ')} {size:,}" for part, size in sizes.items() if part != "total")
    print(f"# {sizes['total']:,} parameters: {parts}\n\n{config.to_toml()}", end="")


def inspect_folder(
    folder: Path, sentences: list[str], examples: int, verify: bool, curves: Path | None, as_json: bool
) -> None:
    from manyheads.checkpoint import MANIFEST
    from manyheads.train.run_summary import is_run

    is_model = (folder / MANIFEST).exists()
    is_training_run = not is_model and is_run(folder)
    if curves and not is_training_run:
        raise RequestError(f"--curves needs a run folder, but {folder} is not one")
    if (sentences or verify) and (is_model or is_training_run):
        folder_type = "a model" if is_model else "a run"
        raise RequestError(f"--sentence and --verify need a data folder, but {folder} is {folder_type}")
    if is_model:
        inspect_model(folder, as_json)
    elif is_training_run:
        inspect_run(folder, curves, as_json)
    else:
        inspect_data(folder, sentences, examples, verify, as_json)


def inspect_run(run: Path, curves: Path | None, as_json: bool) -> None:
    """Print the progress and the checkpoints of a run."""
    from manyheads.train.run_summary import format_summary, plot_curves, summarize_run

    if curves:
        plot_curves(run, curves)
        print(f"{curves}: written", file=sys.stderr)
    print(json.dumps(summarize_run(run), ensure_ascii=False, indent=1) if as_json else format_summary(run))


def inspect_model(folder: Path, as_json: bool) -> None:
    """Print the languages, steps, size, calibration and configuration of a model."""
    from manyheads.checkpoint import read_info
    from manyheads.confidence.calibration import format_measures
    from manyheads.loading import read_calibration
    from manyheads.model import count_parameters

    info = read_info(folder)
    calibration = read_calibration(info.folder)
    size = count_parameters(info.config.model)["total"]
    if as_json:
        report = {
            "languages": info.languages, "step": info.step, "parameters": size,
            "quantization": info.quantization,
            "calibration": None if calibration is None else calibration.measures,
            "config": asdict(info.config),
        }  # fmt: skip
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    pair = f"{info.languages['source']} to {info.languages['target']}"
    confidence = "not calibrated: its translations have no confidence (manyheads calibrate)"
    if calibration is not None:
        confidence = format_measures(calibration.measures)
    weights = f" as {info.quantization}" if info.quantization else ""
    print(f"# {folder}: {pair}, {info.step:,} steps, {size:,} parameters{weights}\n# {confidence}\n")
    print(info.config.to_toml(), end="")


def inspect_data(folder: Path, sentences: list[str], examples: int, verify: bool, as_json: bool) -> None:
    """Print the contents of a data folder."""
    from manyheads.data.report import format_summary, summarize
    from manyheads.data.store import Store

    store = Store.open(folder)
    if verify:
        from manyheads.progress import create_progress, make_counter

        with create_progress(sys.stderr) as progress:
            store.verify(make_counter(progress.update, "verifying checksums", store.total_bytes))
        print(f"{folder}: all checksums match", file=sys.stderr)
    summary = summarize(store, examples, sentences)
    print(json.dumps(summary, ensure_ascii=False, indent=1) if as_json else format_summary(summary))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Report versions, devices, kernels, free disk space and likely problems.

    \b
    Example:
      manyheads doctor --json
    """
    from manyheads.train import doctor

    report = doctor.report()
    print(json.dumps(report, indent=1) if as_json else format_doctor_report(report))


def format_doctor_report(report: dict[str, Any]) -> str:
    """Format a report as lines; a list has a line for each item."""
    lines = []
    for key, value in report.items():
        lines += (
            [f"{key}:", *(f"  {item}" for item in value)] if isinstance(value, list) else [f"{key}: {value}"]
        )
    return "\n".join(lines)
