"""The command `export`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.options import AdapterName, AsJson
from manyheads.errors import RequestError

if TYPE_CHECKING:
    from manyheads.export.verify import ScoreComparison


@app.command()
def export(
    model: Annotated[
        Path, typer.Argument(help="A model folder; with --from, a folder of that format.", metavar="FOLDER")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="ctranslate2, onnx, huggingface, or manyheads with --adapter.", metavar="FORMAT"
        ),
    ] = None,
    source_format: Annotated[
        str | None,
        typer.Option("--from", help="huggingface: import a Marian model.", metavar="FORMAT"),
    ] = None,
    adapter: AdapterName = None,
    as_json: AsJson = False,
) -> None:
    """Convert a model to another format, or import one; check that both give the same scores.

    With --adapter, write a model folder whose weights are those of a model and one of its adapters.

    \b
    Example:
      manyheads export run/model --to ctranslate2 --out run/ct2
      manyheads export run/model --adapter captions --to manyheads --out captions
    """
    if adapter is not None or to == "manyheads":
        export_merged(model, adapter, to, source_format, out, as_json)
        return
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


def export_merged(
    model: Path, adapter: str | None, to: str | None, source_format: str | None, out: Path, as_json: bool
) -> None:
    """Write a model with an adapter as a model folder, which all other formats are made from."""
    if adapter is None or to != "manyheads" or source_format is not None:
        raise RequestError("--adapter and --to manyheads go together; convert the result in a second step")
    if out.exists():
        raise RequestError(f"{out}: exists already; choose another folder")
    from manyheads.checkpoint.merging import save_merged

    save_merged(model, adapter, out)
    print(json.dumps({"folder": str(out)}, ensure_ascii=False) if as_json else f"{out}: written")


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
