"""The command `paper notes`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.options import AsJson
from manyheads.cli.paper.app import Out, paper
from manyheads.cli.text_io import report_write_errors
from manyheads.errors import RequestError
from manyheads.named_models.resolution import resolve_model

LANGUAGES = ("ko", "en", "both")


@paper.command()
def notes(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="A model folder from English, whose heads are measured; by default a small one is trained.",
            metavar="MODEL",
            parser=resolve_model,
        ),
    ] = None,
    language: Annotated[
        str, typer.Option(help="Language of the report: ko, en or both.", metavar="ko|en|both")
    ] = "both",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Answer the questions of the study notes by experiments, in Korean and English.

    Why Q, K and V are separate, why scores are scaled, what heads, positions, residuals, normalization,
    warm-up and label smoothing do, which words a head relates. Writes Markdown, one HTML page with figures,
    and all numbers. Takes some minutes on a CPU.

    \b
    Example:
      manyheads paper notes --language ko --out paper
    """
    from manyheads.paper.notes.report import write_notes
    from manyheads.progress import create_progress

    if language not in LANGUAGES:
        raise RequestError(f"--language is {language!r}, but must be ko, en or both")
    folder = out or Path("paper")
    command = " ".join(["manyheads paper notes", *([shlex.quote(str(model))] if model else [])])
    with report_write_errors("--out", folder), create_progress(sys.stderr) as progress:
        written = write_notes(folder, model, language, command, progress.update)  # type: ignore[arg-type]
    if as_json:
        print(json.dumps(written.to_dict(), ensure_ascii=False, indent=1))
        return
    written.pages[-1 if language == "ko" else 0].summary.show()
    for path in written.files:
        print(f"{path}: open it in a browser" if path.suffix == ".html" else path)
