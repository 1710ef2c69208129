"""The command `evaluate`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.cli.options import (
    AdapterName,
    Alpha,
    AsJson,
    Beam,
    Device,
    Engine,
    Ensemble,
    Model,
    drop_unset,
)
from manyheads.cli.text_io import configure_output, read_parallel_lines, report_write_errors
from manyheads.errors import DataError, RequestError
from manyheads.named_models.resolution import resolve_model

if TYPE_CHECKING:
    from manyheads.translator import Translator

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
    Path | None,
    typer.Option(
        help="Another model to compare with, by paired bootstrap.", metavar="MODEL", parser=resolve_model
    ),
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
    adapter: AdapterName = None,
    engine: Engine = None,
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
    translator = load(model, *(ensemble or []), device=device, engine=engine, adapter=adapter)
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
    from manyheads.atomic_io import write_text_atomically
    from manyheads.evaluate import report
    from manyheads.progress import create_progress

    if out:  # before the work, not after it
        if out.is_dir():
            raise RequestError(f"{out}: cannot be written: give another path with --out")
        with report_write_errors("--out", out):
            out.parent.mkdir(parents=True, exist_ok=True)
    with create_progress(sys.stderr) as progress:
        evaluation = report.evaluate(
            translator, sources, references, baseline=baseline, report_progress=progress.update, **options
        )
    if out:
        with report_write_errors("--out", out):
            write_text_atomically(out, "".join(f"{line}\n" for line in evaluation.translations))
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
        store.verify_once()
        _, sources, targets = store.read_test_set()
        return sources, [targets]
    from manyheads.bulk.model_files import read_languages

    files = [source.with_name(f"{source.name}.{language}") for language in read_languages(model)]
    if not any(path.exists() for path in (source, *files)):
        raise DataError(f"{source}: No such file or directory")
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
