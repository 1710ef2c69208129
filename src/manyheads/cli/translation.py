"""The commands `translate` and `score`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.cli.bulk import (
    Gpus,
    Out,
    Ray,
    RayCommand,
    Workers,
    count_gpus_for,
    needs_workers,
    run_bulk_job,
)
from manyheads.cli.confidence import (
    Below,
    Flag,
    MinConfidence,
    UseConfidence,
    create_policy,
    print_confidence_summary,
    select_score_detail,
)
from manyheads.cli.documents import check_document_call, is_document, translate_documents
from manyheads.cli.options import (
    AdapterName,
    Alpha,
    Beam,
    Device,
    Engine,
    Ensemble,
    MaxExtraLength,
    MinLength,
    Model,
    NoRepeatNgram,
    Space,
    UseCorrections,
    drop_unset,
)
from manyheads.cli.text_io import (
    LineCounter,
    configure_output,
    read_lines,
    read_parallel_lines,
)
from manyheads.errors import RequestError
from manyheads.memory.database import DEFAULT_SPACE

if TYPE_CHECKING:
    from manyheads.bulk.jobs import BulkJob
    from manyheads.bulk.shards import Shard
    from manyheads.confidence_policy import ConfidenceCounts, ConfidencePolicy
    from manyheads.progress import Progress, ReportProgress
    from manyheads.translation import Translation
    from manyheads.translator import Translator

INTERACTIVE_READ_AHEAD = 16  # lines, on a terminal: the first appear soon

SourceShards = Annotated[
    Path,
    typer.Argument(
        help="Text, one line each; or a folder of such files; or Parquet with both sides.", metavar="SOURCE"
    ),
]
TargetShards = Annotated[
    Path | None, typer.Argument(help="Its translation, line by line.", metavar="[TARGET]")
]
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Text, one line each; Parquet; a folder of such files; or documents (.docx, .odt, .html, .md, "
        ".po, .srt). By default stdin.",
        metavar="FILE",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        help="The column of Parquet files to translate, such as text or translation.en; by default the "
        "first of text, the source language and translation.LANGUAGE.",
        metavar="NAME",
    ),
]
NumBest = Annotated[int | None, typer.Option(help="Translations per line; needs --json.")]
Temperature = Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")]
TopK = Annotated[int | None, typer.Option(help="Sample from this many most probable tokens.")]
TopP = Annotated[
    float | None,
    typer.Option(help="Sample from the most probable tokens that together have this probability."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of sampling.")]
Prefix = Annotated[str, typer.Option(help="Text that each sentence's translation must begin with.")]
Glossary = Annotated[
    Path | None,
    typer.Option(help="Required translations of terms: lines with source, tab and target, or a CSV or TBX."),
]
ForbiddenWords = Annotated[
    list[str] | None, typer.Option(help="A word that must not be in the output; can be repeated.")
]
SplitSentences = Annotated[
    bool, typer.Option(help="Split lines into sentences; otherwise each line is one sentence.")
]
UseShortlist = Annotated[
    bool | None,
    typer.Option(
        "--shortlist/--no-shortlist",
        help="On a CPU, consider only the likely target pieces, if the model has a shortlist (the default), "
        "or all of them.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print a JSON object per line: scores, tokens, confidence, notes, ..."),
]


@app.command(cls=RayCommand)
def translate(
    model: Model,
    files: Files = None,
    beam: Beam = None,
    alpha: Alpha = None,
    nbest: NumBest = None,
    max_extra_length: MaxExtraLength = None,
    min_length: MinLength = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    no_repeat_ngram: NoRepeatNgram = None,
    prefix: Prefix = "",
    glossary: Glossary = None,
    forbid: ForbiddenWords = None,
    split: SplitSentences = True,
    shortlist: UseShortlist = None,
    ensemble: Ensemble = None,
    adapter: AdapterName = None,
    corrections: UseCorrections = True,
    space: Space = DEFAULT_SPACE,
    engine: Engine = None,
    device: Device = None,
    gpus: Gpus = None,
    workers: Workers = None,
    ray: Ray = None,
    column: Column = None,
    out: Out = None,
    as_json: JsonLines = False,
    min_confidence: MinConfidence = None,
    below: Below = None,
    flag: Flag = False,
    confidence: UseConfidence = True,
) -> None:
    """Translate text line by line, from files or stdin to stdout: n lines in, n lines out.

    \b
    Example:
      manyheads translate run/model test.en > test.ko
      manyheads translate run/model report.docx > report.ko.docx
    """
    policy, nbest = create_policy(min_confidence, below, flag), check_nbest(nbest, as_json)
    options = {
        "prefix": prefix, "glossary": read_glossary(glossary, model), "forbid": forbid or [], "split": split,
        "corrections": corrections and space, **select_score_detail(confidence, as_json, policy),
        **drop_unset(
            beam=beam, alpha=alpha, nbest=nbest, max_extra_length=max_extra_length, min_length=min_length,
            temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, no_repeat_ngram=no_repeat_ngram,
            shortlist=shortlist),
    }  # fmt: skip
    models, engine = [model, *(ensemble or [])], engine or find_required_engine(temperature)
    spread, paths = {"gpus": gpus, "workers": workers, "ray": ray, "column": column}, files or []
    if any(map(is_document, paths)):
        check_document_call(paths, out, json=as_json, nbest=nbest, **spread)
        translate_documents(models, paths, out, engine, device, options, policy, adapter)
    elif needs_workers(paths, out, *spread.values()) or count_gpus_for(paths, engine, device) > 1:
        translate_shards(models, paths, out, engine, device, options, as_json, policy, adapter, spread)
    else:
        translate_here(models, paths, engine, device, options, as_json, policy, adapter)


def translate_shards(
    models: Sequence[Path],
    files: list[Path],
    out: Path | None,
    engine: str | None,
    device: str | None,
    options: dict[str, Any],
    as_json: bool,
    policy: "ConfidencePolicy | None",
    adapter: str | None,
    spread: dict[str, Any],
) -> None:
    """Translate with workers."""
    shards, job = describe_job(models, files, out, engine, device, options, as_json, policy, adapter)
    gpus, workers, ray = spread["gpus"], spread["workers"], spread["ray"]
    run_bulk_job(job, shards, [spread["column"]], out, gpus=gpus, workers=workers, ray=ray)


def describe_job(
    models: Sequence[Path],
    files: list[Path],
    out: Path | None,
    engine: str | None,
    device: str | None,
    options: dict[str, Any],
    as_json: bool,
    policy: "ConfidencePolicy | None",
    adapter: str | None,
) -> "tuple[list[Shard], BulkJob]":
    """Return the parts of the input, and what several workers are to do with them."""
    from manyheads.bulk.jobs import create_translate_job
    from manyheads.bulk.shards import list_shards

    shards = list_shards(files)
    is_typed = out is not None and shards[0].format == "parquet"
    job = create_translate_job(models, engine, device, options, policy, as_json, is_typed, adapter)
    return shards, job


def read_glossary(path: Path | None, model: Path) -> dict[str, str]:
    """Read a glossary for the languages of a model, if there is one."""
    if path is None:
        return {}
    from manyheads.loading import read_languages
    from manyheads.text.term_files import read_terms

    return read_terms(path, *read_languages(model))


def find_required_engine(temperature: float | None) -> str | None:
    """Return torch for options that CTranslate2 does not have; None: any engine that suits the model."""
    return None if temperature is None else "torch"


def check_nbest(nbest: int | None, as_json: bool) -> int | None:
    if (nbest or 1) > 1 and not as_json:
        raise RequestError(f"--nbest is {nbest}, but a line of output is one translation: add --json")
    return nbest


def translate_here(
    models: Sequence[Path],
    files: list[Path],
    engine: str | None,
    device: str | None,
    options: dict[str, Any],
    as_json: bool,
    policy: "ConfidencePolicy | None",
    adapter: str | None = None,
) -> None:
    """Translate in this process, beside a GPU with the engine in another one."""
    from manyheads.bulk.interpreter_settings import stream_settings
    from manyheads.bulk.jobs import check_calibration, choose_scores
    from manyheads.confidence_policy import ConfidencePolicy
    from manyheads.progress import create_progress

    is_interactive = not files and sys.stdin.isatty()
    is_simple = not as_json and not options["glossary"]
    configure_output()
    with (
        open_translator(models, files, engine, device, adapter, is_simple) as translator,
        stream_settings(),
        create_progress(sys.stderr, "lines") as progress,
    ):
        if policy is not None:
            check_calibration(translator)
        batches = translator.stream_batches(
            read_lines(files),
            INTERACTIVE_READ_AHEAD if is_interactive or sys.stdout.isatty() else None,
            alignment=as_json and translator.engine.capabilities.alignment,
            report_progress=None if is_interactive or not sys.stderr.isatty() else add_total(progress, files),
            **{"scores": choose_scores(translator, as_json), **options},
        )
        counts = print_translations(batches, as_json, policy or ConfidencePolicy())
    print_confidence_summary(counts, policy, as_json)


@contextmanager
def open_translator(
    models: Sequence[Path],
    files: list[Path],
    engine: str | None,
    device: str | None,
    adapter: str | None,
    is_simple: bool,
) -> "Iterator[Translator]":
    """Yield the translator of the models.

    For large files on a GPU the engine gets a process of its own: it would wait for Python's lock, which the
    work on texts holds. It runs no adapters or ensembles, and what JSON and glossaries need would be much to
    send: only simple calls have it.
    """
    from manyheads.loading import load, load_for_engine
    from manyheads.named_models.resolution import resolve_model

    if len(models) > 1 or adapter or not (is_simple and count_gpus_for(files, engine, device)):
        yield load(*models, device=device, engine=engine, adapter=adapter)
        return
    from manyheads.bulk.process_engine import start_engine_process

    folder = resolve_model(models[0])
    with start_engine_process(folder, engine or "torch", device) as own_engine:
        yield load_for_engine(folder, own_engine)


def add_total(progress: "Progress", files: list[Path]) -> "ReportProgress":
    """Return what reports the lines that are translated, and of how many in the files, once that is known."""
    counter = LineCounter(files)
    return lambda stage, done, _: progress.update(stage, done, counter.total)


@app.command(cls=RayCommand)
def score(
    model: Model,
    source: SourceShards,
    target: TargetShards = None,
    ensemble: Ensemble = None,
    engine: Engine = None,
    device: Device = None,
    gpus: Gpus = None,
    workers: Workers = None,
    ray: Ray = None,
    source_column: Annotated[
        str | None,
        typer.Option("--source-column", help="The column of Parquet files with the sources.", metavar="NAME"),
    ] = None,
    target_column: Annotated[
        str | None,
        typer.Option(
            "--target-column", help="The column of Parquet files with the translations.", metavar="NAME"
        ),
    ] = None,
    out: Out = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per line, with the scores of tokens.")
    ] = False,
) -> None:
    """Print the log-probability that a model gives to translations, line by line, by forced decoding.

    Each line of output has the log-probability, the log-probability per token (the end token counts), and the
    translation.

    \b
    Example:
      manyheads score run/model test.en test.ko
    """
    from manyheads.bulk.jobs import BulkJob, Output, format_json, format_score
    from manyheads.loading import load, prepare_engine

    models = [model, *(ensemble or [])]
    columns = [source_column, target_column]
    if needs_workers([source], gpus, workers, ray, out, *columns) or target is None:
        shards = list_score_shards(source, target)
        is_typed = out is not None and shards[0].format == "parquet"
        output: Output = "json" if as_json else "columns" if is_typed else "lines"
        engine = engine or prepare_engine(model, ensemble or [], device)[1]
        job = BulkJob("score", [*map(str, models)], engine, device, output=output)
        run_bulk_job(job, shards, columns, out, gpus=gpus, workers=workers, ray=ray)
        return
    sources, (targets,) = read_parallel_lines(source, [target])
    configure_output()
    translator = load(*models, device=device, engine=engine)
    for translation in translator.score(sources, targets):
        print(format_json(translation) if as_json else format_score(translation))


def list_score_shards(source: Path, target: Path | None) -> "list[Shard]":
    """Return shards that have both sides: Parquet files, or two parallel files of text each."""
    from manyheads.bulk.shards import list_shards, pair_shards

    sources = list_shards([source])
    if target is not None:
        return pair_shards(sources, list_shards([target]))
    if any(shard.format == "text" for shard in sources):
        raise RequestError(f"{source}: is text, which needs the translations too: give TARGET")
    return sources


def print_translations(
    batches: "Iterable[list[Translation]]", as_json: bool, policy: "ConfidencePolicy"
) -> "ConfidenceCounts":
    """Print translations, a line each. What is ready is written before more is waited for."""
    from manyheads.bulk.jobs import format_translations
    from manyheads.confidence_policy import ConfidenceCounts

    counts = ConfidenceCounts()
    for translations in batches:
        counts.add(translations, policy)
        lines = format_translations(translations, as_json, policy)
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()
    return counts
