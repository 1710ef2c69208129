"""Verbs for training: demo, train, average, inspect, doctor."""

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.config import Config
from manyheads.errors import EXIT_PREEMPTED, ConfigError, RequestError
from manyheads.presets import PRESETS, get_preset


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("manyheads-demo"),
    pair: Annotated[str, typer.Option(help="en-ko or en-de.")] = "en-ko",
    seconds: Annotated[float, typer.Option(help="Training ends after so long at the latest.", min=1)] = 170,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Show the whole way on this machine's CPU in about three minutes: prepare, train, translate, score.

    The corpus is built in, and the sentences that are translated at the end were never trained on.
    Example: manyheads demo --pair en-de
    """
    from manyheads.demo import SHOWN_SENTENCES
    from manyheads.demo import run_demo as show
    from manyheads.progress import create_progress

    found = show(out, pair, seconds, lambda: create_progress(sys.stderr))
    if found is None:
        exit_with_error(f"{out}: stopped as asked; the same command goes on", EXIT_PREEMPTED)
        return
    if as_json:
        rows = [dict(zip(("source", "reference", "translation"), row, strict=True)) for row in found.rows]
        told = {
            "model": str(found.model), "page": str(found.page), "exact": found.exact_match,
            "bleu": asdict(found.bleu), "rows": rows,
        }  # fmt: skip
        print(json.dumps(told, ensure_ascii=False, indent=1))
        return
    print("source, translation and reference; = where the two are the same to the letter, ! where not")
    for source, reference, translation in found.rows[:SHOWN_SENTENCES]:
        print(f"{'=' if translation == reference else '!'} {source}\n  {translation}\n  {reference}")
    print(f"\n{len(found.rows)} held-out sentences: {found.exact_match:.1%} exact, {found.bleu}")
    language = pair.partition("-")[2]
    print(f"model: {found.model}\nnext, after `. .venv/bin/activate` where make installed it:")
    print(f"  echo {shlex.quote(found.rows[0][0])} | manyheads translate {found.model}")
    print(f"  manyheads evaluate {found.model} {out}/test.en {out}/test.{language}")
    print(f"  manyheads inspect {out}/run")
    print(f"  manyheads inspect {out}/data --sentence 'I go home.'")
    print(f"  manyheads look {found.model} {shlex.quote(found.rows[1][0])} -o page.html")
    print(f"  manyheads serve {found.model} --run {out}/run      and open http://127.0.0.1:5000")
    print(f"what every head looks at: open {found.page.resolve().as_uri()} in a browser")


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="The run's TOML file.", metavar="RUN.TOML")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="Keys to change, such as train.steps=2000.", metavar="SECTION.KEY=VALUE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; without it RUN beside RUN.TOML.")
    ] = None,
    change_config: Annotated[
        bool, typer.Option("--change-config", help="Go on though the configuration is another one now.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option(help="So many GPUs of this machine, by torchrun.", min=1)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; without it cuda where there is one.")
    ] = None,
) -> None:
    """Train a model on prepared data; begun again, it goes on where it was.

    SIGTERM or Ctrl-C ends the step, saves and exits with 75; asked twice, it leaves at once.
    Example: manyheads train run.toml train.steps=2000
    """
    whole, folder = Config.load(config).override(changes or []), out or config.with_suffix("")
    if gpus:
        from manyheads.train.launcher import launch

        chosen = ["--device", device] if device else []
        rest = [*(["--change-config"] if change_config else []), *chosen]
        sys.exit(launch(gpus, [str(config), *(changes or []), "--out", str(folder), *rest]))

    from manyheads.train.run import train as train_run

    reason = train_run(whole, folder, change_config=change_config, device=device)
    if reason == "stopped":
        exit_with_error(f"{folder}: stopped as asked; the same command goes on", EXIT_PREEMPTED)


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="The run's folder.", metavar="RUN")],
    last: Annotated[int, typer.Option(help="So many of its last checkpoints.", min=1)] = 5,
    out: Annotated[Path | None, typer.Option(help="The folder to write; without it RUN/average.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Average the weights of a run's last checkpoints into one model (6.1).

    Example: manyheads average run --last 5
    """
    from manyheads.checkpoint import average_checkpoints

    made = out or run / "average"
    names = average_checkpoints(run, last, made)
    told = {"model": str(made), "checkpoints": names}
    print(json.dumps(told, ensure_ascii=False) if as_json else f"{made}: the mean of {', '.join(names)}")


@app.command(epilog=f"Presets: {', '.join(PRESETS)}.")
def inspect(
    what: Annotated[
        str,
        typer.Argument(
            help="A preset, a TOML file, or a folder: data, a run, a model.",
            metavar="PRESET|FILE|DATA|RUN|MODEL",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="Keys to change (none unsets).", metavar="SECTION.KEY=VALUE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON rather than TOML or text.")] = False,
    sentence: Annotated[
        list[str] | None, typer.Option(help="Of a data folder: show how this is split; may repeat.")
    ] = None,
    examples: Annotated[int, typer.Option(help="Of a data folder: so many pairs.", min=0)] = 3,
    curves: Annotated[
        Path | None, typer.Option(help="Of a run: draw its curves here, .svg, .png or .pdf.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Of a data folder: read it all, check every sum.")
    ] = False,
) -> None:
    """Show a configuration whole, with what each key means and the model's size; or a data folder.

    Of a configuration, the output is a TOML file to start from. Of a data folder: languages, sizes, what was
    dropped, examples, and how a sentence is split. Of a run: where it stands, and its curves.
    Example: manyheads inspect base model.layers=12 > run.toml
    """
    if os.path.isdir(what):
        if changes:
            raise ConfigError(f"{changes[0]}: {what} is a folder, whose settings can only be looked at")
        inspect_folder(what, sentence or [], examples, verify, curves, as_json)
        return
    if sentence or verify or curves:
        raise ConfigError(f"--sentence, --verify and --curves are of a folder, and {what} is none")
    is_file = what.endswith(".toml") or (what not in PRESETS and os.path.exists(what))
    config = (Config.load(what) if is_file else get_preset(what)).override(changes or [])

    from manyheads.model import count_parameters

    sizes = count_parameters(config.model)
    if as_json:
        print(json.dumps({**asdict(config), "parameters": sizes}, ensure_ascii=False, indent=1))
        return
    shares = ", ".join(
        f"{part.replace('_', ' ')} {size:,}" for part, size in sizes.items() if part != "total"
    )
    print(f"# {sizes['total']:,} parameters: {shares}\n\n{config.to_toml()}", end="")


def inspect_folder(
    folder: str, sentences: list[str], examples: int, verify: bool, curves: Path | None, as_json: bool
) -> None:
    from manyheads import checkpoint
    from manyheads.train import run_summary as state

    run = Path(folder)
    if (run / checkpoint.MANIFEST).exists():
        inspect_model(run, as_json)
        return
    if not state.is_run(run):
        if curves:
            raise RequestError(f"--curves are of a run, and {folder} is none")
        inspect_data(folder, sentences, examples, verify, as_json)
        return
    if curves:
        state.plot_curves(run, curves)
        print(f"{curves}: drawn", file=sys.stderr)
    print(
        json.dumps(state.summarize_run(run), ensure_ascii=False, indent=1)
        if as_json
        else state.format_summary(run)
    )


def inspect_model(folder: Path, as_json: bool) -> None:
    """A model folder: what it translates, how long it learned, its size and configuration."""
    from manyheads import checkpoint
    from manyheads.model import count_parameters

    told = checkpoint.read_info(folder)
    size = count_parameters(told.config.model)["total"]
    if as_json:
        facts = {"languages": told.languages, "step": told.step, "parameters": size}
        print(json.dumps({**facts, "config": asdict(told.config)}, ensure_ascii=False, indent=1))
        return
    pair = f"{told.languages['source']} to {told.languages['target']}"
    print(f"# {folder}: {pair}, {told.step:,} steps, {size:,} parameters\n\n{told.config.to_toml()}", end="")


def inspect_data(folder: str, sentences: list[str], examples: int, verify: bool, as_json: bool) -> None:
    from manyheads.data import report
    from manyheads.data.store import Store

    store = Store.open(folder)
    if verify:
        from manyheads.progress import create_progress, make_counter

        with create_progress(sys.stderr) as progress:
            store.verify(make_counter(progress.update, "checking sums", store.total_bytes))
        print(f"{folder}: every byte is as it was written", file=sys.stderr)
    told = report.summarize(store, examples, sentences)
    print(json.dumps(told, ensure_ascii=False, indent=1) if as_json else report.format_summary(told))


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False) -> None:
    """Report versions, devices, the kernels in use, free disk, and what would go wrong.

    Example: manyheads doctor --json
    """
    from manyheads.train.doctor import report

    told = report()
    print(
        json.dumps(told, indent=1) if as_json else "\n".join(f"{key}: {value}" for key, value in told.items())
    )
