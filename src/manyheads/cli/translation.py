"""The commands `translate`, `score` and `evaluate`."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.cli.bulk import Gpus, Out, Ray, RayCommand, Workers, needs_workers, run_bulk_job
from manyheads.cli.confidence import (
    Below,
    Flag,
    MinConfidence,
    create_policy,
    print_confidence_summary,
)
from manyheads.cli.options import AsJson, Device, Engine, Model
from manyheads.cli.text_io import (
    LineCounter,
    configure_output,
    read_glossary,
    read_lines,
    read_parallel_lines,
    report_write_errors,
)
from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.bulk.shards import Shard
    from manyheads.confidence_policy import ConfidenceCounts, ConfidencePolicy
    from manyheads.progress import Progress, ReportProgress
    from manyheads.translation import Translation
    from manyheads.translator import Translator

INTERACTIVE_READ_AHEAD = 16  # lines, on a terminal: the first appear soon

Ensemble = Annotated[
    list[Path] | None,
    typer.Option(help="Another model to average the predictions with; can be repeated.", metavar="MODEL"),
]
SourceShards = Annotated[
    Path,
    typer.Argument(
        help="Text, one line each; or a folder of such files; or Parquet with both sides.", metavar="SOURCE"
    ),
]
TargetShards = Annotated[
    Path | None, typer.Argument(help="Its translation, line by line.", metavar="[TARGET]")
]
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty ((5 + L)/6)^alpha.")]
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Text, one line each; Parquet; or a folder of such files. By default stdin.", metavar="FILE"
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
MaxExtraLength = Annotated[
    int | None, typer.Option(help="Maximum number of tokens by which the output may exceed the input.")
]
MinLength = Annotated[int | None, typer.Option(help="Minimum number of output tokens.")]
Temperature = Annotated[float | None, typer.Option(help="Sample at this temperature instead of searching.")]
TopK = Annotated[int | None, typer.Option(help="Sample from this many most probable tokens.")]
TopP = Annotated[
    float | None,
    typer.Option(help="Sample from the most probable tokens that together have this probability."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of sampling.")]
NoRepeatNgram = Annotated[int | None, typer.Option(help="Never repeat an n-gram of this length.")]
Prefix = Annotated[str, typer.Option(help="Text that each sentence's translation must begin with.")]
Glossary = Annotated[
    Path | None, typer.Option(help="Required translations of terms: source, tab, target on each line.")
]
ForbiddenWords = Annotated[
    list[str] | None, typer.Option(help="A word that must not be in the output; can be repeated.")
]
SplitSentences = Annotated[
    bool, typer.Option(help="Split lines into sentences; otherwise each line is one sentence.")
]
JsonLines = Annotated[
    bool,
    typer.Option("--json", help="Print a JSON object per line: scores, tokens, confidence, notes, ..."),
]


TestSource = Annotated[
    Path,
    typer.Argument(
        help="Text, one line each; or, without REFERENCE, a data folder with a test set, or the name of the "
        "files without their languages.",
        metavar="SOURCE",
    ),
]
References = Annotated[
    list[Path] | None, typer.Argument(help="Reference translations, line by line.", metavar="[REFERENCE...]")
]
Stress = Annotated[
    bool,
    typer.Option(
        "--stress",
        help="Test capitals, typos, short and long lines, copied tokens, failures and confidence.",
    ),
]
Baseline = Annotated[
    Path | None, typer.Option(help="Another model to compare with, by paired bootstrap.", metavar="MODEL")
]
BleuTokenizer = Annotated[
    str | None, typer.Option(help="sacreBLEU's tokenizer, such as 13a, char or ko-mecab.")
]
BootstrapSamples = Annotated[
    int, typer.Option(help="Bootstrap samples for confidence intervals; 0 is none.", min=0)
]
Worst = Annotated[int | None, typer.Option(help="Number of worst sentences to show; by default 5.", min=0)]
TranslationsOut = Annotated[
    Path | None, typer.Option("--out", help="Write the translations to this file.", metavar="FILE")
]
StressSentences = Annotated[int | None, typer.Option(help="With --stress: sample this many lines.", min=1)]
StressCopies = Annotated[
    int | None,
    typer.Option(help="With --stress: sentences with a token to copy; by default as many as lines.", min=0),
]
StressSeed = Annotated[int | None, typer.Option(help="With --stress: of samples and typos.", min=0)]
Picture = Annotated[Path | None, typer.Option(help="With --stress: plot the results as .svg, .png or .pdf.")]


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
    ensemble: Ensemble = None,
    engine: Engine = "torch",
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
) -> None:
    """Translate text line by line, from files or stdin to stdout: n lines in, n lines out.

    \b
    Example:
      manyheads translate run/model test.en > test.ko
      manyheads translate run/model shards/ --gpus all --out translated
      manyheads translate run/model test.en --min-confidence 0.7 --below source
    """
    policy = create_policy(min_confidence, below, flag)
    if (nbest or 1) > 1 and not as_json:
        raise RequestError(f"--nbest is {nbest}, but a line of output is one translation: add --json")
    options = {
        "prefix": prefix, "glossary": read_glossary(glossary) if glossary else {}, "forbid": forbid or [],
        "split": split,
        **drop_unset(
            beam=beam, alpha=alpha, nbest=nbest, max_extra_length=max_extra_length, min_length=min_length,
            temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, no_repeat_ngram=no_repeat_ngram,
        ),
    }  # fmt: skip
    models = [model, *(ensemble or [])]
    if needs_workers(files or [], gpus, workers, ray, out, column):
        from manyheads.bulk.jobs import create_translate_job
        from manyheads.bulk.shards import list_shards

        shards = list_shards(files or [])
        is_typed = out is not None and shards[0].format == "parquet"
        job = create_translate_job(models, engine, device, options, policy, as_json, is_typed)
        run_bulk_job(job, shards, [column], out, gpus=gpus, workers=workers, ray=ray)
        return
    translate_here(models, files or [], engine, device, options, as_json, policy)


def translate_here(
    models: Sequence[Path],
    files: list[Path],
    engine: str,
    device: str | None,
    options: dict[str, Any],
    as_json: bool,
    policy: "ConfidencePolicy | None",
) -> None:
    """Translate in this process."""
    from manyheads.bulk.interpreter_settings import stream_settings
    from manyheads.bulk.jobs import check_calibration
    from manyheads.confidence_policy import ConfidencePolicy
    from manyheads.loading import load
    from manyheads.progress import create_progress

    translator = load(*models, device=device, engine=engine)
    if policy is not None:
        check_calibration(translator)
    is_interactive = not files and sys.stdin.isatty()
    configure_output()
    with stream_settings(), create_progress(sys.stderr, "lines") as progress:
        batches = translator.stream_batches(
            read_lines(files),
            INTERACTIVE_READ_AHEAD if is_interactive or sys.stdout.isatty() else None,
            alignment=as_json and translator.engine.capabilities.alignment,
            scores="tokens" if as_json else "total",
            report_progress=None if is_interactive or not sys.stderr.isatty() else add_total(progress, files),
            **options,
        )
        counts = print_translations(batches, as_json, policy or ConfidencePolicy())
    print_confidence_summary(counts, policy, as_json)


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
    engine: Engine = "torch",
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

    models = [model, *(ensemble or [])]
    columns = [source_column, target_column]
    if needs_workers([source], gpus, workers, ray, out, *columns) or target is None:
        shards = list_score_shards(source, target)
        is_typed = out is not None and shards[0].format == "parquet"
        output: Output = "json" if as_json else "columns" if is_typed else "lines"
        job = BulkJob("score", [*map(str, models)], engine, device, output=output)
        run_bulk_job(job, shards, columns, out, gpus=gpus, workers=workers, ray=ray)
        return
    from manyheads.loading import load

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


@app.command()
def evaluate(
    model: Model,
    source: TestSource,
    references: References = None,
    stress: Stress = False,
    baseline: Baseline = None,
    beam: Beam = None,
    alpha: Alpha = None,
    tokenize: BleuTokenizer = None,
    bootstrap_samples: BootstrapSamples = 1000,
    worst: Worst = None,
    out: TranslationsOut = None,
    sentences: StressSentences = None,
    copies: StressCopies = None,
    seed: StressSeed = None,
    picture: Picture = None,
    ensemble: Ensemble = None,
    engine: Engine = "torch",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model: BLEU and chrF with signatures and confidence intervals, perplexity, worst sentences.

    Korean and Japanese are scored by characters, and the signature says so. Each line is one sentence.

    \b
    Example:
      manyheads evaluate run/model test.en test.ko
      manyheads evaluate run/model test.en test.ko --stress --picture stress.svg
    """
    from manyheads.loading import load

    check_stress_options(
        stress, {"--baseline": baseline, "--worst": worst, "--out": out},
        {"--sentences": sentences, "--copies": copies, "--seed": seed, "--picture": picture},
    )  # fmt: skip
    if picture:
        from manyheads.look.stress_figure import check_picture

        check_picture(picture)
    sources, texts = read_test_set(model, source, references or [])
    translator = load(model, *(ensemble or []), device=device, engine=engine)
    configure_output()
    options = {
        "tokenize": tokenize,
        "bootstrap_samples": bootstrap_samples,
        **drop_unset(beam=beam, alpha=alpha),
    }
    if stress:
        stress_options = drop_unset(sentences=sentences, copies=copies, seed=seed)
        print_stress_tests(translator, sources, texts, picture, as_json, options | stress_options)
        return
    other = load(baseline, device=device, engine=engine) if baseline else None
    print_evaluation(translator, sources, texts, out, as_json, options | drop_unset(num_worst=worst), other)


def print_evaluation(
    translator: "Translator",
    sources: list[str],
    references: list[list[str]],
    out: Path | None,
    as_json: bool,
    options: dict[str, Any],
    baseline: "Translator | None",
) -> None:
    """Evaluate, print the scores and write the translations."""
    from manyheads.evaluate import report
    from manyheads.progress import create_progress

    with create_progress(sys.stderr) as progress:
        evaluation = report.evaluate(
            translator, sources, references, baseline=baseline, report_progress=progress.update, **options
        )
    if out:
        out.write_text("".join(f"{line}\n" for line in evaluation.translations), encoding="utf-8")
    print(json.dumps(evaluation.to_dict(), ensure_ascii=False, indent=1) if as_json else evaluation.to_text())


def check_stress_options(is_stress: bool, plain: dict[str, Any], stress: dict[str, Any]) -> None:
    """Refuse options of the other kind of evaluation."""
    given = [name for name, value in (plain if is_stress else stress).items() if value is not None]
    if given and is_stress:
        raise RequestError(f"{given[0]} is not for --stress: evaluate without it as well")
    if given:
        raise RequestError(f"{given[0]} is for the stress tests: add --stress")


def read_test_set(model: Path, source: Path, references: list[Path]) -> tuple[list[str], list[list[str]]]:
    """Read the lines of a test set: of files, of a data folder, or of files named by their prefix."""
    if references:
        return read_parallel_lines(source, references)
    if source.is_dir():
        from manyheads.data.store import Store

        store = Store.open(source)
        split = "test" if "test" in store.splits else "valid"
        sources, targets = store.read_text(split)
        return sources, [targets]
    from manyheads.bulk.model_files import read_languages

    files = [source.with_name(f"{source.name}.{language}") for language in read_languages(model)]
    if not all(path.exists() for path in files):
        raise RequestError(
            f"{source}: needs its translation: give REFERENCE, a data folder, or the name without the "
            f"languages where {files[0].name} and {files[1].name} exist"
        )
    return read_parallel_lines(files[0], files[1:])


def print_stress_tests(
    translator: "Translator",
    sources: list[str],
    references: list[list[str]],
    picture: Path | None,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Run the stress tests, print their results and plot them."""
    from manyheads.evaluate.stress import run_stress_tests
    from manyheads.progress import create_progress

    with create_progress(sys.stderr) as progress:
        result = run_stress_tests(translator, sources, references, report_progress=progress.update, **options)
    if picture:
        from manyheads.look.stress_figure import save_stress_figure

        with report_write_errors("--picture", picture):
            save_stress_figure(result, picture)
    print(json.dumps(result.to_dict(), ensure_ascii=False, indent=1) if as_json else result.to_text())


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


def drop_unset(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the model folder has the others."""
    return {key: value for key, value in options.items() if value is not None}
