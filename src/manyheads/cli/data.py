"""The commands `get` and `prepare`."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.options import AsJson, drop_unset
from manyheads.config import InputConfig, Recipe
from manyheads.errors import EXIT_INTERRUPTED, ConfigError, RequestError

DataFolder = Annotated[Path, typer.Argument(help="Data folder to write.", metavar="DATA")]
RecipeChanges = Annotated[
    list[str] | None,
    typer.Argument(
        help="Keys of the recipe, such as subwords.vocab_size=8000 or clean.max_length_ratio=none.",
        metavar="SECTION.KEY=VALUE",
    ),
]
TrainFiles = Annotated[
    list[str] | None,
    typer.Option(
        help="Training text: two plain files, source and target, or one file of both; can be repeated.",
        metavar="FILE",
    ),
]
ValidFiles = Annotated[
    list[str] | None, typer.Option(help="Validation text, used to choose the best model.", metavar="FILE")
]
TestFiles = Annotated[
    list[str] | None, typer.Option(help="Test text, used to evaluate the final model.", metavar="FILE")
]
LanguagePair = Annotated[
    str | None, typer.Option(help="Languages, such as en-ko; by default from names such as train.en.")
]
Fields = Annotated[
    str | None,
    typer.Option(help="Source and target of a table or JSONL: columns such as 2,4 or names such as en,ko."),
]
RecipeFile = Annotated[
    Path | None,
    typer.Option(help="TOML file with all settings, and a weight per input; options override it."),
]
OnInvalid = Annotated[
    str | None,
    typer.Option(
        help="Invalid text: stop, or skip and list it in dropped.tsv. By default invalid lines are "
        "skipped; broken files and files of different line counts stop.",
        metavar="stop|skip",
    ),
]
Judged = Annotated[
    Path | None,
    typer.Option(
        help="What `manyheads judge` wrote of this text: bad pairs are dropped, held-out pairs are good.",
        metavar="FILE",
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(help="Share of the judged pairs to keep; by default those that score 0.5 or more."),
]
ReplaceData = Annotated[bool, typer.Option("--force", help="Replace an existing data folder.")]
ShowRecipe = Annotated[
    bool, typer.Option("--show-recipe", help="Print all settings with their meaning, and exit.")
]


@app.command()
def get(
    name: Annotated[
        str | None, typer.Argument(help="Name of a corpus; --list shows them.", metavar="NAME")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Source and target language, such as en-de.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default NAME.PAIR.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps the downloads; by default OUT/downloads.")
    ] = None,
    catalog: Annotated[Path | None, typer.Option(help="TOML file with other URLs or corpora.")] = None,
    register: Annotated[
        str, typer.Option(help="Korean of playground: plain or polite; by default plain.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Download again what is complete.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Print the known corpora and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download a known corpus as aligned plain text, such as train.en and train.de, with its license.

    An interrupted download is resumed. No other command accesses the network.

    \b
    Example:
      manyheads get multi30k --pair en-de --out data
    """
    from manyheads.progress import create_progress
    from manyheads.text.datasets.catalog import load_catalog
    from manyheads.text.datasets.get import get_corpus

    corpora = load_catalog(catalog)
    if show_list:
        print(corpora.to_json() if as_json else corpora.to_text())
        return
    if name is None:
        raise RequestError("get needs the NAME of a corpus; manyheads get --list shows them")
    with create_progress(sys.stderr, unit="bytes") as progress:
        fetched = get_corpus(
            name, pair, out, catalog=corpora, cache=cache, register=register, force=force, progress=progress
        )
    print(fetched.to_json() if as_json else fetched.to_text())


@app.command()
def prepare(
    folder: DataFolder,
    changes: RecipeChanges = None,
    train: TrainFiles = None,
    valid: ValidFiles = None,
    test: TestFiles = None,
    pair: LanguagePair = None,
    fields: Fields = None,
    recipe: RecipeFile = None,
    on_invalid: OnInvalid = None,
    judged: Judged = None,
    keep: Keep = None,
    force: ReplaceData = False,
    show_recipe: ShowRecipe = False,
    as_json: AsJson = False,
) -> None:
    """Clean parallel text, train subwords and write a data folder; report what was dropped and why.

    Reads plain text, TSV, CSV, XLSX, JSONL, TMX, PO and XLIFF, also compressed as .gz, .xz or .zst. Without
    --valid, some pairs are held out for validation and test.

    \b
    Example:
      manyheads prepare data --train=train.{en,ko} --valid=valid.{en,ko} subwords.vocab_size=16000
    """
    check_stray_files(changes or [])
    files = {"train": train or [], "valid": valid or [], "test": test or []}
    overridden = build_recipe(recipe, files, fields, pair, on_invalid, changes or [])
    judging = drop_unset(judged=str(judged) if judged else None, keep=keep)
    overridden = replace(overridden, clean=replace(overridden.clean, **judging))
    if show_recipe:
        print(overridden.to_toml(), end="")
        return

    from manyheads.data import prepare as preparation
    from manyheads.data.report import count_dropped, format_report
    from manyheads.data.store import DROPPED
    from manyheads.progress import create_progress

    try:
        with create_progress(sys.stderr) as progress:
            store = preparation.prepare(overridden, folder, force=force, report_progress=progress.update)
    except KeyboardInterrupt:
        exit_with_error("interrupted; nothing was written", EXIT_INTERRUPTED)
    if as_json:
        print(json.dumps(store.manifest, ensure_ascii=False, indent=1))
    else:
        print(format_report(store.manifest))
        dropped = f" Dropped pairs are listed in {folder / DROPPED}" if count_dropped(store.manifest) else ""
        print(f"\n{folder}: complete.{dropped}")


def build_recipe(
    path: Path | None,
    files: dict[str, list[str]],
    fields: str | None,
    pair: str | None,
    on_invalid: str | None,
    changes: list[str],
) -> Recipe:
    """Load a recipe, or the default one, and override it by the options of the command line."""
    from manyheads.text.languages import split_language_pair

    base = Recipe.load(path) if path else Recipe()
    inputs: dict[str, Any] = {split: parse_inputs(names, fields) for split, names in files.items() if names}
    languages = dict(zip(("source", "target"), split_language_pair(pair), strict=True)) if pair else {}
    policy = {"on_invalid": on_invalid} if on_invalid else {}
    corpus: Any = {**languages, **policy}
    return replace(base, corpus=replace(base.corpus, **corpus), **inputs).override(changes)


def parse_inputs(files: list[str], fields: str | None) -> tuple[InputConfig, ...]:
    """Pair up plain files; a file of another format holds both sides."""
    from manyheads.text.corpus import detect_format

    inputs: list[InputConfig] = []
    unpaired: list[str] = []
    for file in files:
        single = InputConfig(files=(file,))
        file_format = detect_format(single)
        if file_format in ("tsv", "csv", "xlsx", "jsonl") and fields:
            inputs.append(replace(single, fields=tuple(fields.split(","))))
        elif file_format != "plain":
            inputs.append(single)
        elif unpaired:
            inputs.append(InputConfig(files=(unpaired.pop(), file)))
        else:
            unpaired.append(file)
    if unpaired:
        raise ConfigError(
            f"{unpaired[0]} has no counterpart: plain text comes in two files, source and target, each with "
            f"its own --train (or --valid, --test); a recipe can state the format of a file"
        )
    return tuple(inputs)


def check_stray_files(changes: list[str]) -> None:
    """Refuse files where settings are expected: `--train a.en a.ko` passes a.ko as a setting."""
    for change in changes:
        if "=" not in change and os.path.exists(change):
            raise ConfigError(
                f"{change} has no option: give each file its own, --train=a.en --train=a.ko, "
                f"or --train=a.{{en,ko}} in a shell that expands braces"
            )
