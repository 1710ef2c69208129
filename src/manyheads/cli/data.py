"""Verbs for text: get it, prepare it."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.config import SPLITS, InputConfig, Recipe
from manyheads.errors import EXIT_INTERRUPTED, ConfigError, RequestError


@app.command()
def get(
    name: Annotated[str | None, typer.Argument(help="A corpus; --list shows them.", metavar="NAME")] = None,
    pair: Annotated[str | None, typer.Option(help="Source and target language, such as en-de.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder; without it NAME.PAIR here.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Keeps downloads; without it OUT/downloads.")] = None,
    catalog: Annotated[Path | None, typer.Option(help="A TOML file with other URLs or corpora.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Download again what is complete.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Show the known corpora and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Bring a known corpus here as aligned plain text, train.en beside train.de, with its license.

    It goes on where it was interrupted. No other verb fetches anything.
    Example: manyheads get multi30k --pair en-de --out data
    """
    from manyheads.progress import create_progress
    from manyheads.text.datasets.catalog import load_catalog
    from manyheads.text.datasets.get import get_corpus

    known = load_catalog(catalog)
    if show_list:
        print(known.to_json() if as_json else known.to_text())
        return
    if name is None:
        raise RequestError("get needs the NAME of a corpus; manyheads get --list shows them")
    with create_progress(sys.stderr, unit="bytes") as progress:
        got = get_corpus(name, pair, out, catalog=known, cache=cache, force=force, progress=progress)
    print(got.to_json() if as_json else got.to_text())


@app.command()
def prepare(
    folder: Annotated[Path, typer.Argument(help="The data folder to write.", metavar="DATA")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings of the recipe, such as subwords.vocab_size=8000 or clean.max_length_ratio=none.",
            metavar="SECTION.KEY=VALUE",
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            help="Training text: two plain files, source and target, or one of both; may repeat.",
            metavar="FILE",
        ),
    ] = None,
    valid: Annotated[
        list[str] | None, typer.Option(help="Text to choose the best model by.", metavar="FILE")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(help="Text to judge the model by at the end.", metavar="FILE")
    ] = None,
    pair: Annotated[
        str | None, typer.Option(help="Languages, such as en-ko; file names like train.en tell them too.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(help="Of a TSV or JSONL: source and target, as columns 2,4 or names en,ko."),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file of all this, a weight for each input too; --train and the like replace its."
        ),
    ] = None,
    on_invalid: Annotated[
        str | None,
        typer.Option(
            help="Bad text: stop, or skip and list it in dropped.tsv. By default bad lines are skipped; "
            "files of differing line counts and broken files stop.",
            metavar="stop|skip",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a data folder that is there.")] = False,
    show_recipe: Annotated[
        bool,
        typer.Option("--show-recipe", help="Print every setting with its meaning, and leave."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Turn parallel text into training data, and say what was dropped and why.

    Plain text, TSV, JSONL, TMX, PO and XLIFF, each also as .gz, .xz or .zst. Without --valid, some pairs are
    set apart for valid and test. Example: manyheads prepare data --train=train.{en,ko} --valid=valid.{en,ko}
    subwords.vocab_size=16000
    """
    from manyheads.text.languages import split_language_pair

    check_stray_files(changes or [])
    base = Recipe.load(recipe) if recipe else Recipe()
    texts = zip(SPLITS, (train, valid, test), strict=True)
    given: dict[str, Any] = {split: parse_inputs(files, fields) for split, files in texts if files}
    languages = dict(zip(("source", "target"), split_language_pair(pair), strict=True)) if pair else {}
    policy = {"on_invalid": on_invalid} if on_invalid else {}
    corpus: Any = {**languages, **policy}
    whole = replace(base, corpus=replace(base.corpus, **corpus), **given).override(changes or [])
    if show_recipe:
        print(whole.to_toml(), end="")
        return

    from manyheads.data import prepare as preparing
    from manyheads.data.report import format_report
    from manyheads.data.store import DROPPED
    from manyheads.progress import create_progress

    try:
        with create_progress(sys.stderr) as progress:
            store = preparing.prepare(whole, folder, force=force, report_progress=progress.update)
    except KeyboardInterrupt:
        exit_with_error("interrupted; nothing was written", EXIT_INTERRUPTED)
    if as_json:
        print(json.dumps(store.manifest, ensure_ascii=False, indent=1))
    else:
        print(format_report(store.manifest))
        print(f"\n{folder}: ready. What was left out is listed in {folder / DROPPED}")


def parse_inputs(files: list[str], fields: str | None) -> tuple[InputConfig, ...]:
    """Plain files stand in twos; a file that holds both sides stands alone."""
    from manyheads.text.corpus import detect_format

    inputs: list[InputConfig] = []
    waiting: list[str] = []
    for file in files:
        alone = InputConfig(files=(file,))
        if detect_format(alone) in ("tsv", "jsonl") and fields:
            inputs.append(replace(alone, fields=tuple(fields.split(","))))
        elif detect_format(alone) != "plain":
            inputs.append(alone)
        elif waiting:
            inputs.append(InputConfig(files=(waiting.pop(), file)))
        else:
            waiting.append(file)
    if waiting:
        raise ConfigError(
            f"{waiting[0]} has no counterpart: plain text comes in two files, source and target, each with "
            f"its own --train (or --valid, --test); what a name does not tell, a recipe does"
        )
    return tuple(inputs)


def check_stray_files(changes: list[str]) -> None:
    for change in changes:
        if "=" not in change and os.path.exists(change):
            raise ConfigError(
                f"{change} stands alone: each file has an option of its own, --train=a.en --train=a.ko, "
                f"which a shell also makes of --train=a.{{en,ko}}"
            )
