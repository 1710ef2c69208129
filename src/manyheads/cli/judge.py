"""The command `judge`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.data import Fields, LanguagePair, OnInvalid, build_recipe
from manyheads.cli.options import AsJson
from manyheads.config import Recipe
from manyheads.errors import EXIT_PREEMPTED, RequestError

JudgedText = Annotated[
    list[str],
    typer.Argument(
        help="Text as for prepare --train: two plain files, or files of both sides; or a data folder, whose "
        "training files are judged.",
        metavar="DATA|FILES",
    ),
]
JudgeOut = Annotated[Path, typer.Option(help="Folder to write: pairs.tsv, report.md and report.json.")]
SamplePairs = Annotated[int, typer.Option(help="Pairs to learn from.", min=200)]
Workers = Annotated[int, typer.Option(help="Processes; 0 is one per core.", min=0)]
JudgeSeed = Annotated[
    int, typer.Option(help="Of the sample and the wrong pairs that are learned from.", min=0)
]
ReplaceJudged = Annotated[bool, typer.Option("--force", help="Replace an existing folder.")]
JudgePicture = Annotated[
    Path | None, typer.Option("--picture", help="Plot the scores as .svg, .png or .pdf.", metavar="FILE")
]


@app.command()
def judge(
    text: JudgedText,
    out: JudgeOut = Path("judged"),
    pair: LanguagePair = None,
    fields: Fields = None,
    on_invalid: OnInvalid = None,
    sample: SamplePairs = 100_000,
    workers: Workers = 0,
    seed: JudgeSeed = 0,
    picture: JudgePicture = None,
    force: ReplaceJudged = False,
    as_json: AsJson = False,
) -> None:
    """Score every pair of a corpus from 0 to 1, and say what is wrong with it.

    Finds misaligned pairs, missing or added text, untranslated copies, other languages, garbled text and
    near-duplicates, by models learned from the corpus itself. SIGTERM or Ctrl-C stops with exit code 75, and
    the same command goes on.

    \b
    Example:
      manyheads judge train.en train.ko --out judged
      manyheads prepare data --train=train.{en,ko} --judged judged --keep 0.9
    """
    recipe = find_recipe(text, fields, pair, on_invalid)
    if picture:
        from manyheads.look.stress_figure import check_picture

        check_picture(picture)

    from manyheads.data.recipe import complete_recipe
    from manyheads.judge.run import JudgeOptions, judge_corpus
    from manyheads.progress import create_progress
    from manyheads.train.preemption import interrupt_on_sigterm

    options = JudgeOptions(sample=sample, workers=workers, seed=seed)
    try:
        with interrupt_on_sigterm(), create_progress(sys.stderr) as progress:
            report = judge_corpus(
                complete_recipe(recipe), out, options, force=force, report_progress=progress.update
            )
    except KeyboardInterrupt:
        exit_with_error(f"{out}: stopped; the same command goes on", EXIT_PREEMPTED)
    if picture:
        from manyheads.look.judge_figure import save_judge_figure

        save_judge_figure(report.histogram, picture)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=1))
    else:
        print(f"{report.to_text()}\n\n{out}: complete. {out / 'report.md'} lists the worst pairs")


def find_recipe(text: list[str], fields: str | None, pair: str | None, on_invalid: str | None) -> Recipe:
    """Return the recipe of a data folder, or of files."""
    folders = [name for name in text if Path(name).is_dir()]
    if not folders:
        return build_recipe(None, {"train": text}, fields, pair, on_invalid, [])
    if len(text) > 1 or fields or pair:
        raise RequestError(f"{folders[0]}: a data folder is judged alone, with its own files and languages")
    from manyheads.data.store import Store

    recipe = Recipe.from_mapping(Store.open(folders[0]).manifest["recipe"])
    changes = [f"corpus.on_invalid={on_invalid}"] if on_invalid else []
    return recipe.override(changes)
