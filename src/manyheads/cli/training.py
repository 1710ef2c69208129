"""The commands `train` and `average`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.options import AsJson, Changes, Device
from manyheads.config import Config
from manyheads.errors import EXIT_PREEMPTED


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
    device: Device = None,
) -> None:
    """Train a model on prepared data, or resume a run.

    SIGTERM or Ctrl-C finishes the step, saves a checkpoint and exits with 75. A second signal exits at once.

    \b
    Example:
      manyheads train run.toml train.steps=2000
    """
    overridden, folder = Config.load(config).override(changes or []), out or config.with_suffix("")
    if gpus:
        from manyheads.train.launcher import launch

        options = [
            *(["--change-config"] if change_config else []),
            *(["--device", device] if device else []),
        ]
        sys.exit(launch(gpus, [str(config), *(changes or []), "--out", str(folder), *options]))

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
