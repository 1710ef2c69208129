"""The commands `correct` and `learn`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AsJson, Changes, Device, Model, Space
from manyheads.cli.text_io import report_write_errors
from manyheads.errors import DataError, RequestError
from manyheads.memory.database import DEFAULT_SPACE, check_space, get_user_name

if TYPE_CHECKING:
    from manyheads.memory.database import Correction, CorrectionDatabase
    from manyheads.memory.translation_memory import TranslationMemory

PairFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Corrections: TSV with source and target, or CSV, XLSX, JSONL, TMX, PO or XLIFF; or two plain "
        "files.",
        metavar="FILE",
    ),
]


@app.command()
def correct(
    model: Model,
    files: PairFiles = None,
    source: Annotated[str | None, typer.Option(help="A text to correct the translation of.")] = None,
    target: Annotated[str | None, typer.Option(help="Its right translation.")] = None,
    who: Annotated[
        str | None, typer.Option(help="Who corrects; by default your user name.", metavar="NAME")
    ] = None,
    space: Space = DEFAULT_SPACE,
    list_all: Annotated[bool, typer.Option("--list", help="List the corrections in force.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back the corrections of the last call, or of --number.")
    ] = False,
    number: Annotated[
        int | None, typer.Option(help="The call to take back; --list shows the numbers.", min=1)
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the corrections in force as TSV.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Correct translations: from then on the model's translations of these texts are yours.

    Corrections are one file in the model folder, memory/corrections.sqlite. Copy it to back it up.

    \b
    Example:
      manyheads correct run/model corrections.tsv
      manyheads correct run/model --source "I go home." --target "나는 집에 간다."
      manyheads correct run/model --undo
    """
    memory = open_model_memory(model)
    check_space(space)
    if number is not None and not undo:
        raise RequestError("--number is for --undo")
    pairs = read_corrections(memory, files or [], source, target)
    if sum((bool(pairs), list_all, undo, export is not None)) != 1:
        raise RequestError("give a FILE, or --source with --target, or one of --list, --undo and --export")
    database = memory.database
    if pairs:
        added = memory.add(pairs, who or get_user_name(), space)
        report = {"added": len(pairs), "number": added, "space": space, "file": str(database.path)}
        text = f"{len(pairs):,} corrections added as number {added} ({database.path})"
        print(json.dumps(report, ensure_ascii=False) if as_json else text)
    elif undo:
        print_undone(memory.undo(number, space), number, space, as_json)
    elif export is not None:
        with report_write_errors("--export", export):
            num_written = export_corrections(database, space, export)
        print(json.dumps({"exported": num_written}) if as_json else f"{export}: {num_written:,} corrections")
    else:
        print_corrections(database.list_corrections(space), as_json)


def open_model_memory(model: Path) -> "TranslationMemory":
    from manyheads.bulk.model_files import read_languages
    from manyheads.memory.translation_memory import TranslationMemory

    return TranslationMemory.open(model, read_languages(model))


def read_corrections(
    memory: "TranslationMemory", files: list[Path], source: str | None, target: str | None
) -> list[tuple[str, str]]:
    """Return the pairs that are given, in files or as options. A line that is no pair is an error."""
    if (source is None) != (target is None):
        raise RequestError("a correction needs both --source and --target")
    if source is not None and target is not None:
        if files:
            raise RequestError("give a FILE, or --source with --target")
        return [(source, target)]
    if not files:
        return []
    from manyheads.config import CorpusConfig, InputConfig
    from manyheads.text.corpus import SentencePair, read_pairs

    corpus = CorpusConfig(source=memory.languages[0], target=memory.languages[1])
    pairs = []
    for pair in read_pairs(InputConfig(files=tuple(map(str, files))), corpus):
        if not isinstance(pair, SentencePair):
            raise DataError(
                f"{pair.file}: line {pair.line} is no correction ({pair.reason}): nothing was added"
            )
        pairs.append((pair.source, pair.target))
    if not pairs:
        raise DataError(f"{files[0]}: holds no corrections")
    return pairs


def print_undone(undone: "list[Correction]", number: int | None, space: str, as_json: bool) -> None:
    if not undone:
        which = "" if number is None else f" number {number}"
        raise RequestError(f"nothing to undo: the space {space} has no corrections{which} in force")
    if as_json:
        print(json.dumps({"undone": len(undone), "number": undone[0].number, "space": space}))
    else:
        print(f"{len(undone):,} corrections of number {undone[0].number} undone")


def print_corrections(corrections: "list[Correction]", as_json: bool) -> None:
    if as_json:
        keys = ("number", "source", "target", "who", "when")
        rows = [{key: getattr(correction, key) for key in keys} for correction in corrections]
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    for correction in corrections:
        cells = str(correction.number), correction.when, correction.who, *escape_pair(correction)
        sys.stdout.write("\t".join(cells) + "\n")


def export_corrections(database: "CorrectionDatabase", space: str, path: Path) -> int:
    """Write the corrections in force, of several of a source the newest. Return their number."""
    from manyheads.atomic_io import write_text_atomically

    newest = {correction.source: correction for correction in database.list_corrections(space)}
    lines = ["\t".join(escape_pair(correction)) + "\n" for correction in newest.values()]
    write_text_atomically(path, "".join(lines))
    return len(newest)


def escape_pair(correction: "Correction") -> tuple[str, str]:
    """Return both sides as cells of a TSV file: white space of any type is a space."""
    return " ".join(correction.source.split()), " ".join(correction.target.split())


@app.command()
def learn(
    model: Model,
    changes: Changes = None,
    space: Space = DEFAULT_SPACE,
    adapter: Annotated[
        str | None,
        typer.Option(
            help="Name of the adapter; by default corrections, or corrections-SPACE.", metavar="NAME"
        ),
    ] = None,
    general: Annotated[
        list[Path] | None,
        typer.Option(
            help="General text that must not be forgotten: a data folder, or files; by default the data that "
            "the model was trained on.",
            metavar="DATA|FILE",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Maximum seconds of training.", min=1)] = 45.0,
    sentences: Annotated[int, typer.Option(help="Held-out sentences of general text.", min=10)] = 500,
    max_loss: Annotated[
        float, typer.Option(help="BLEU that general text may lose; else the adapter is refused.", min=0)
    ] = 0.2,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Learn from the corrections: an adapter that avoids the same errors in other sentences.

    Corrections alone change the translations of these texts and similar ones. The adapter is refused if BLEU
    on held-out general text falls by more than 0.2; then nothing changes, and the exit code is 3.

    \b
    Example:
      manyheads learn run/model
      manyheads translate run/model text.en --adapter corrections
    """
    from manyheads.progress import create_progress
    from manyheads.train.learn import LearningOptions
    from manyheads.train.learn import learn as run_learning

    options = LearningOptions(
        check_space(space), adapter, general or [], seconds, sentences, max_loss, changes or []
    )
    with create_progress(sys.stderr) as progress:
        report = run_learning(model, options, device=device, report_progress=progress.update)
    print(json.dumps(report.to_dict(), ensure_ascii=False) if as_json else report.format())
