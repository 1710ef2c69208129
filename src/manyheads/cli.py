"""The command line: one thin command a verb. What a verb needs is imported when it runs."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from manyheads import __version__
from manyheads.config import Config
from manyheads.errors import ManyheadsError, RequestError
from manyheads.presets import PRESETS, preset

app = typer.Typer(
    name="manyheads",
    help="Attention Is All You Need, as software: exact, readable, every head open to the eye.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Our own errors are one line and an exit code; anything else is a bug and shows where."""
    try:
        app()
    except ManyheadsError as fault:
        print(f"manyheads: {fault}", file=sys.stderr)
        sys.exit(fault.exit_code)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"manyheads {__version__}")
        raise typer.Exit


@app.callback()
def every_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print it and leave.")
    ] = False,
) -> None:
    pass


@app.command(epilog=f"Presets: {', '.join(PRESETS)}.")
def inspect(
    what: Annotated[str, typer.Argument(help="A preset's name, or a TOML file.", metavar="PRESET|FILE")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="Keys to change (none unsets).", metavar="SECTION.KEY=VALUE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON rather than TOML.")] = False,
) -> None:
    """Show a configuration whole, checked, with what each key means and the model's size.

    The output is a TOML file to start from. Example: manyheads inspect base model.layers=12 > run.toml
    """
    is_file = what.endswith(".toml") or (what not in PRESETS and os.path.exists(what))
    config = (Config.load(what) if is_file else preset(what)).override(changes or [])

    from manyheads.model.transformer import count_parameters

    sizes = count_parameters(config.model)
    if as_json:
        print(json.dumps({**asdict(config), "parameters": sizes}, ensure_ascii=False, indent=1))
        return
    shares = ", ".join(
        f"{part.replace('_', ' ')} {size:,}" for part, size in sizes.items() if part != "total"
    )
    print(f"# {sizes['total']:,} parameters: {shares}\n\n{config.to_toml()}", end="")


@app.command()
def get(
    name: Annotated[str | None, typer.Argument(help="A corpus; --list shows them.", metavar="NAME")] = None,
    pair: Annotated[str | None, typer.Option(help="Source and target language, such as en-de.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder; without it NAME.PAIR here.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Keeps downloads; without it OUT/downloads.")] = None,
    table: Annotated[Path | None, typer.Option(help="A TOML file with other addresses or corpora.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Fetch anew what is complete.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Show the known corpora and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Bring a known corpus here as aligned plain text, train.en beside train.de, with its licence.

    It goes on where it was interrupted. No other verb fetches anything.
    Example: manyheads get multi30k --pair en-de --out data
    """
    from manyheads.text.get import get as get_corpus
    from manyheads.text.known import load_table
    from manyheads.text.progress import watched

    known = load_table(table)
    if show_list:
        print(known.to_json() if as_json else known.to_text())
        return
    if name is None:
        raise RequestError("get needs the NAME of a corpus; manyheads get --list shows them")
    with watched(sys.stderr) as progress:
        got = get_corpus(name, pair, out, table=known, cache=cache, again=again, progress=progress)
    print(got.to_json() if as_json else got.to_text())
