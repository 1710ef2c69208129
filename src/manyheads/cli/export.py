"""The command `export`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AsJson
from manyheads.errors import RequestError
from manyheads.named_models.resolution import resolve_model

if TYPE_CHECKING:
    from manyheads.export.verify import ScoreComparison


@app.command()
def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="A model folder or the name of a model; with --from, a folder of that format.",
            metavar="FOLDER",
            parser=resolve_model,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    to: Annotated[
        str | None, typer.Option("--to", help="ctranslate2, onnx or huggingface.", metavar="FORMAT")
    ] = None,
    source_format: Annotated[
        str | None,
        typer.Option("--from", help="huggingface: import a Marian model.", metavar="FORMAT"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a model to another format, or import one; check that both give the same scores.

    \b
    Example:
      manyheads export run/model --to ctranslate2 --out run/ct2
    """
    if (to is None) == (source_format is None):
        raise RequestError("export needs either --to ctranslate2, onnx or huggingface, or --from huggingface")
    if out.exists():
        raise RequestError(f"{out}: exists already; choose another folder")
    comparisons = select_exporter(to, source_format)(model, out)
    if as_json:
        checks = [vars(comparison) for comparison in comparisons]
        print(json.dumps({"folder": str(out), "checks": checks}, ensure_ascii=False))
        return
    print("log-probabilities of random sentences by the original and by the converted model:")
    for comparison in comparisons:
        print(f"{comparison.our_score:12.4f} {comparison.their_score:12.4f}  {comparison.target[:70]}")
    print(f"{out}: written, the scores agree")


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
    name, known = (to, "ctranslate2, onnx, huggingface") if to else (source_format, "huggingface")
    raise RequestError(f"unknown format {name!r}; known: {known}")
