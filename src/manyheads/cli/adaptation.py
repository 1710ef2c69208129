"""The command `adapt`."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.data import build_recipe
from manyheads.cli.options import AsJson, Changes, Device, Model
from manyheads.errors import EXIT_PREEMPTED, RequestError

if TYPE_CHECKING:
    from manyheads.progress import Progress

NewData = Annotated[
    list[Path],
    typer.Option(
        "--data",
        help="The text to adapt to: a data folder prepared with subwords.reuse_from=MODEL; or files, which "
        "are prepared here: two plain ones, source and target, or one of both.",
        metavar="DATA|FILE",
    ),
]
General = Annotated[
    Path | None,
    typer.Option(
        help="A data folder of general text with the subwords of the model, such as the one that it was "
        "trained on: replayed in each batch, and evaluated.",
        metavar="DATA",
    ),
]
Replay = Annotated[
    float | None, typer.Option(help="Share of general text in each batch; by default 0.5 with --general.")
]
NewAdapter = Annotated[
    str | None,
    typer.Option(
        "--adapter", help="Train a low-rank adapter of this name, and not the weights.", metavar="NAME"
    ),
]
Rank = Annotated[
    int | None, typer.Option(help="Rank of the adapter; by default at most 32, and 5 % of the model.", min=1)
]
Freeze = Annotated[
    list[str] | None,
    typer.Option(help="A part that stays as it is: embeddings, encoder or decoder; can be repeated."),
]
Sentences = Annotated[int, typer.Option(help="Sentences of each test set for the report.", min=1)]


@app.command()
def adapt(
    model: Model,
    changes: Changes = None,
    data: NewData = [],  # noqa: B006  typer reads it
    general: General = None,
    replay: Replay = None,
    adapter: NewAdapter = None,
    rank: Rank = None,
    freeze: Freeze = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default the name of DATA or FILE with -adapted.")
    ] = None,
    sentences: Sentences = 2000,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Adapt a model to your text without ruining it; report the scores before and after.

    The result is RUN/model, or with --adapter MODEL/adapters/NAME.safetensors, which leaves the model as it
    is. With --general, general text is replayed in each batch; without it, weights are pulled toward their
    old values. The run ends when the validation loss stops improving; the same command resumes it.

    \\b
    Example:
      manyheads adapt run/model --data talks.en --data talks.ko --general data --out talks
      manyheads adapt run/model --data captions-data --general data --adapter captions
    """
    from manyheads.progress import create_progress
    from manyheads.train.adapt import AdaptationOptions
    from manyheads.train.adaptation_run import adapt as run_adaptation

    if not data:
        raise RequestError("adapt needs --data: a data folder, or files of pairs")
    first = name_folder(data[0])
    run = name_folder(out or first.with_name(f"{first.name.split('.')[0]}-adapted"))
    options = AdaptationOptions(general, replay, adapter, rank, tuple(freeze or ()))
    with create_progress(sys.stderr) as progress:
        folder = open_or_prepare(data, model, run, progress)
        report = run_adaptation(
            model, folder, run, options, changes=changes, device=device, max_sentences=sentences,
            report_progress=progress.update,
        )  # fmt: skip
    if report is None:
        exit_with_error(f"{run}: stopped; the same command resumes it", EXIT_PREEMPTED)
        return
    print(json.dumps(report.to_dict(), ensure_ascii=False) if as_json else report.to_markdown(), end="\n")


def name_folder(path: Path) -> Path:
    """Return a path that ends in a name, beside which others can be: that of `.` or `..` is looked up."""
    return path.resolve() if path.name in ("", "..") else path


def open_or_prepare(data: list[Path], model: Path, run: Path, progress: "Progress") -> Path:
    """Return the data folder. Files are prepared into RUN-data with the subwords of the model, once."""
    if len(data) == 1 and data[0].is_dir():
        return data[0]
    from manyheads.bulk.model_files import read_languages
    from manyheads.data.prepare import prepare
    from manyheads.data.recipe import complete_recipe
    from manyheads.data.store import Store

    files = {"train": [str(path) for path in data], "valid": [], "test": []}
    recipe = build_recipe(None, files, None, "-".join(read_languages(model)), None, [])
    recipe = replace(recipe, subwords=replace(recipe.subwords, reuse_from=str(model)))
    folder = run.with_name(f"{run.name}-data")
    if folder.exists():
        recorded, wanted = Store.open(folder).manifest["recipe"], asdict(complete_recipe(recipe))
        if recorded == json.loads(json.dumps(wanted)):
            return folder
    prepare(recipe, folder, report_progress=progress.update)
    return folder
