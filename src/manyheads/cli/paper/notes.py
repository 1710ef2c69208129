"""The command for the notes' questions."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.look import report_write_errors
from manyheads.cli.paper.app import AsJson, Out, paper
from manyheads.errors import RequestError

LANGUAGES = ("ko", "en", "both")


@paper.command()
def notes(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="A model folder from English, whose heads are looked at; without it a small one is trained.",
            metavar="MODEL",
        ),
    ] = None,
    language: Annotated[
        str, typer.Option(help="Of the report: ko, en or both.", metavar="ko|en|both")
    ] = "both",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Answer the questions of the study notes by running code, in Korean and English; some minutes on a CPU.

    Why Q, K and V are apart, why scores are scaled, what heads, positions, residuals, normalization, warm-up
    and label smoothing do, which words a head relates: Markdown, one HTML page with figures, and all numbers.

    Example: manyheads paper notes --language ko --out paper
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
