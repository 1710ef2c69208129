"""The command `export`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AsJson
from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.evaluate.model_comparison import ModelComparison
    from manyheads.export.int8 import QuantizedModel
    from manyheads.export.verify import ScoreComparison

FORMATS = "int8, ctranslate2, onnx or huggingface"


@app.command()
def export(
    model: Annotated[
        Path, typer.Argument(help="A model folder; with --from, a folder of that format.", metavar="FOLDER")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    to: Annotated[str | None, typer.Option("--to", help=f"{FORMATS}.", metavar="FORMAT")] = None,
    source_format: Annotated[
        str | None,
        typer.Option("--from", help="huggingface: import a Marian model.", metavar="FORMAT"),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="With --to int8: a test set, to measure what rounding costs.", metavar="SOURCE REFERENCE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a model to another format, or import one; check that both give the same scores.

    int8 is a model folder of a quarter of the size, which every command reads. Rounding changes its scores:
    with --test its BLEU and chrF are measured beside those of the original.

    \b
    Example:
      manyheads export run/model --to ctranslate2 --out run/ct2
      manyheads export run/model --to int8 --out run/int8 --test test.en test.ko
    """
    if (to is None) == (source_format is None):
        raise RequestError(f"export needs either --to {FORMATS}, or --from huggingface")
    if out.exists():
        raise RequestError(f"{out}: exists already; choose another folder")
    if to == "int8":
        export_int8(model, out, test, as_json)
        return
    if test is not None:
        raise RequestError("--test is for --to int8: the other formats give the same scores")
    comparisons = select_exporter(to, source_format)(model, out)
    if as_json:
        checks = [vars(comparison) for comparison in comparisons]
        print(json.dumps({"folder": str(out), "checks": checks}, ensure_ascii=False))
        return
    print("log-probabilities of random sentences by the original and by the converted model:")
    for comparison in comparisons:
        print(f"{comparison.our_score:12.4f} {comparison.their_score:12.4f}  {comparison.target[:70]}")
    print(f"{out}: written, the scores agree")


def export_int8(model: Path, out: Path, test: tuple[Path, Path] | None, as_json: bool) -> None:
    """Write an int8 model folder, and say what rounding costs, or how to measure it."""
    from manyheads.cli.text_io import read_parallel_lines
    from manyheads.export.int8 import quantize_model

    lines = read_parallel_lines(test[0], [test[1]]) if test else None
    quantized = quantize_model(model, out)
    comparison = measure_loss(model, out, *lines) if lines else None
    if as_json:
        loss = comparison.to_dict() if comparison else None
        print(json.dumps({**vars(quantized), "folder": str(out), "loss": loss}, ensure_ascii=False))
        return
    print(describe_quantized(quantized))
    if comparison:
        print(comparison.to_text())
    else:
        print(f"what it costs: manyheads evaluate {out} SOURCE REFERENCE --baseline {model}")


def describe_quantized(quantized: "QuantizedModel") -> str:
    megabytes = f"{quantized.num_bytes / 1e6:.1f} MB, was {quantized.original_bytes / 1e6:.1f} MB"
    error = f"{quantized.num_int8:,} weights are int8 (relative error {quantized.relative_error:.2%})"
    return f"{quantized.folder}: written, {megabytes}; {error}, {quantized.num_float:,} stay float32"


def measure_loss(
    model: Path, out: Path, sources: list[str], references: list[list[str]]
) -> "ModelComparison":
    """Translate a test set with the model and with its int8 folder."""
    from manyheads.evaluate.model_comparison import compare_models
    from manyheads.loading import load
    from manyheads.progress import create_progress

    with create_progress(sys.stderr) as progress:
        return compare_models(load(out), load(model), sources, references, report_progress=progress.update)


def select_exporter(
    to: str | None, source_format: str | None
) -> "Callable[[Path, Path], list[ScoreComparison]]":
    if source_format == "huggingface":
        from manyheads.export.from_huggingface import from_huggingface

        return from_huggingface
    if to == "huggingface":
        from manyheads.export.to_huggingface import to_huggingface

        return to_huggingface
    if to == "ctranslate2":
        from manyheads.export.ctranslate2 import to_ctranslate2

        return to_ctranslate2
    if to == "onnx":
        from manyheads.export.onnx import to_onnx

        return to_onnx
    name, known = (to, FORMATS) if to else (source_format, "huggingface")
    raise RequestError(f"unknown format {name!r}; known: {known}")
