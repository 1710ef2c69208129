"""The commands `train`, `average` and `calibrate`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.options import AsJson, Changes, Device, Engine, Model
from manyheads.config import Config
from manyheads.errors import EXIT_PREEMPTED, ConfigError


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.", metavar="RUN.TOML")],
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default RUN beside RUN.TOML.")
    ] = None,
    change_config: Annotated[
        bool, typer.Option("--change-config", help="Resume although the configuration has changed.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option(help="Train on this many GPUs of this machine, one process each.", min=1)
    ] = None,
    machines: Annotated[
        int | None, typer.Option(help="Number of machines, on each of which this command runs.", min=1)
    ] = None,
    machine: Annotated[
        int | None, typer.Option(help="Which of them this one is, counted from 0.", min=0)
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address of machine 0 in a private network, and a free port.", metavar="HOST:PORT"),
    ] = None,
    device: Device = None,
) -> None:
    """Train a model on prepared data, or resume a run.

    SIGTERM or Ctrl-C finishes the step, saves a checkpoint and exits with 75. A second signal exits at once.

    \b
    Example:
      manyheads train run.toml train.steps=2000
      manyheads train run.toml --gpus 8 --machines 2 --machine 0 --address 10.0.0.1:29500
    """
    overridden, folder = Config.load(config).override(changes or []), out or config.with_suffix("")
    from manyheads.train.launcher import launch, stop_with_launcher
    from manyheads.train.machines import Machines

    stop_with_launcher()
    parts = Machines.parse(machines, machine, address)
    if parts and not gpus:
        raise ConfigError("--machines needs --gpus, the number of ranks of each machine")
    if gpus:
        options = [
            *(["--change-config"] if change_config else []),
            *(["--device", device] if device else []),
        ]
        sys.exit(launch(gpus, [str(config), *(changes or []), "--out", str(folder), *options], parts))

    from manyheads.train.run import train as run_training
    from manyheads.train.timing import command_start

    reason = run_training(
        overridden, folder, change_config=change_config, device=device, start=command_start()
    )
    if reason == "stopped":
        exit_with_error(f"{folder}: stopped; the same command resumes it", EXIT_PREEMPTED)


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="The run's folder.", metavar="RUN")],
    last: Annotated[int, typer.Option(help="Number of last checkpoints to average.", min=1)] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default RUN/average.")] = None,
    as_json: AsJson = False,
) -> None:
    """Average the weights of a run's last checkpoints into one model (section 6.1).

    \b
    Example:
      manyheads average run --last 5
    """
    from manyheads.checkpoint import average_checkpoints

    folder = out or run / "average"
    names = average_checkpoints(run, last, folder)
    report = {"model": str(folder), "checkpoints": names}
    print(
        json.dumps(report, ensure_ascii=False) if as_json else f"{folder}: the average of {', '.join(names)}"
    )


@app.command()
def calibrate(
    model: Model,
    data: Annotated[
        Path, typer.Option(help="The data folder that the model was trained on.", metavar="DATA")
    ],
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate the confidence of a model on the validation set of its data; training does so at its end.

    The calibration becomes part of the model folder. Averaged and imported models have none until then.

    \b
    Example:
      manyheads calibrate run/average --data data
    """
    from manyheads.confidence.calibration import format_measures
    from manyheads.progress import create_progress
    from manyheads.train.calibrate import calibrate_model

    with create_progress(sys.stderr) as progress:
        measures = calibrate_model(model, data, device, progress.update)
    print(
        json.dumps({"model": str(model), **measures}) if as_json else f"{model}: {format_measures(measures)}"
    )


@app.command()
def shortlist(
    model: Model,
    data: Annotated[
        Path, typer.Option(help="The data folder that the model was trained on.", metavar="DATA")
    ],
    as_json: AsJson = False,
) -> None:
    """Learn which target pieces a source piece may become, so that a CPU computes the logits of these alone.

    The shortlist becomes part of the model folder, and is used wherever no scores of tokens are read. Give
    `translate --no-shortlist` or decoding.shortlist=false to do without it.

    \b
    Example:
      manyheads shortlist run/model --data data
    """
    from manyheads.progress import create_progress
    from manyheads.train.shortlist import add_shortlist

    with create_progress(sys.stderr) as progress:
        learned = add_shortlist(model, data, progress.update)
    report = {
        "model": str(model), "pairs": learned.num_pairs, "coverage": learned.coverage,
        "candidates": learned.mean_candidates, "uncovered": learned.uncovered,
    }  # fmt: skip
    print(json.dumps(report, ensure_ascii=False) if as_json else f"{model}: {learned}")


@app.command()
def card(
    model: Model,
    data: Annotated[
        Path | None, typer.Option(help="The data folder; by default the one that the model was trained on.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run's folder; by default the one that MODEL is in.")
    ] = None,
    license: Annotated[
        str | None, typer.Option(help="The license of the training data.", metavar="TEXT")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="About how long the stress tests may take.", min=0.1)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default model_card.md in MODEL.")
    ] = None,
    engine: Engine = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Write the card of a model: its data, recipe and scores, stress tests, and what it is not for.

    Training does it at the end, unless train.card is false.

    \b
    Example:
      manyheads card run/model --data data --license 'CC BY 2.0 FR'
    """
    from manyheads.checkpoint import read_info
    from manyheads.data.store import Store
    from manyheads.progress import create_progress
    from manyheads.train.distilled_card import find_run
    from manyheads.train.model_card import write_model_card

    store = Store.open(data or read_info(model).config.data.folder)
    own_run, distillation = find_run(model)
    with create_progress(sys.stderr) as progress:
        path = write_model_card(
            model, store, run or own_run, path=out, license=license, distillation=distillation,
            seconds=seconds, engine=engine, device=device, report_progress=progress.update,
        )  # fmt: skip
    print(json.dumps({"card": str(path)}, ensure_ascii=False) if as_json else path)
