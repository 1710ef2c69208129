"""The verb for looking inside: look."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.atomic_io import DISK_FULL_ERRNOS
from manyheads.cli.app import app
from manyheads.cli.translation import show_warnings
from manyheads.errors import RequestError


@app.command()
def look(
    model: Annotated[
        Path, typer.Argument(help="A model folder; with --through-training a run.", metavar="MODEL")
    ],
    sentence: Annotated[str | None, typer.Argument(help="What it is shown.", metavar="SENTENCE")] = None,
    target: Annotated[
        str | None, typer.Option(help="Its translation; without it the model's own.", metavar="TEXT")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; without it attention.html.", metavar="FILE")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also figures for print: SVG, PDF and PNG.", metavar="DIR")
    ] = None,
    through_training: Annotated[
        bool, typer.Option("--through-training", help="The sentence over the checkpoints of a run.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; without it cuda where there is one.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Report as JSON: words, measures of every head, heads found.")
    ] = False,
) -> None:
    """Write a page that shows what every attention head looks at; it is one file and works offline.

    With --figures alone only figures are made.
    Example: manyheads look run/model "I go home." -o page.html
    """
    from manyheads.look.html import write_page

    show_warnings()
    for name, text in (("the sentence", sentence), ("--target", target)):
        check_utf8(name, text)
    if through_training:
        if figures:
            raise RequestError(
                "--figures are of a model: give one of the run's checkpoints instead of --through-training"
            )
        data = compute_attention_over_training(model, sentence, target, device)
        with report_write_errors("-o", out or Path("attention.html")) as place:
            written = [write_page(data, place)]
    else:
        attention, data = compute_attention(model, sentence, target, device)
        written = []
        if out or not figures:
            with report_write_errors("-o", out or Path("attention.html")) as place:
                written.append(write_page(data, place))
        if figures:
            from manyheads.look.figures import write_figures

            with report_write_errors("--figures", figures) as folder:
                written += write_figures(attention, folder)
    if as_json:
        print(json.dumps(summarize_page(data, written), ensure_ascii=False, indent=1))
        return
    print(data["text"]["target"])
    for line in format_figure_heads(data):
        print(line)
    for path in written:
        print(f"{path}: open it in a browser" if path.suffix == ".html" else path)


def check_utf8(name: str, text: str | None) -> None:
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(f"{name} is not UTF-8: write it in a terminal whose encoding is UTF-8") from None


@contextmanager
def report_write_errors(option: str, place: Path) -> Iterator[Path]:
    """What cannot be written there is told with the option that says where."""
    try:
        yield place
    except OSError as fault:
        if fault.errno in DISK_FULL_ERRNOS:
            raise
        raise RequestError(
            f"{place}: cannot be written ({fault.strerror or fault}): give another place with {option}"
        ) from None


def compute_attention(
    model: Path, sentence: str | None, target: str | None, device: str | None
) -> tuple[Any, Any]:
    from manyheads.loading import load
    from manyheads.look.attention_data import build_attention_data

    if not (sentence or "").strip():
        raise RequestError('no sentence to look at: manyheads look MODEL "sentence"')
    assert sentence is not None
    translator = load(model, device=device)
    sentence = first_sentence(sentence, translator) if target is None else sentence
    said = translator.translate(sentence, split=False).text if target is None else target
    attention = translator.attention(sentence, said)
    return attention, build_attention_data(attention, source=sentence, target=said, name=model.resolve().name)


def first_sentence(text: str, translator: Any) -> str:
    """A text is translated sentence by sentence, and so it is looked at."""
    sentences = translator.split_sentences(text) or [text]
    if len(sentences) > 1:
        left = f"{len(sentences)} sentences, of which the first is shown"
        print(f"manyheads: {left}; each has maps of its own", file=sys.stderr)
    return str(sentences[0])


def compute_attention_over_training(
    run: Path, sentence: str | None, target: str | None, device: str | None
) -> Any:
    from manyheads.look.training_walk import compare_checkpoints
    from manyheads.progress import create_progress

    with create_progress(sys.stderr) as progress:
        return compare_checkpoints(run, sentence, target, device=device, report_progress=progress.update)


def format_figure_heads(data: dict[str, Any]) -> list[str]:
    """The heads of the encoder most like those of the paper's figures, a line each."""
    from manyheads.look.figure_heads import FIGURE_PATTERNS

    words, heads = data["words"]["source"], data["snapshots"][-1]["figure_heads"].get("encoder", {})
    lines = []
    for pattern, figure in FIGURE_PATTERNS.items():
        for entry in heads.get(pattern, [])[:1]:
            word = "" if pattern == "structural" else f", best seen at {words[entry['row']]!r}"
            head = f"layer {entry['layer'] + 1}, head {entry['head'] + 1}"
            lines.append(f"like Figure {figure} ({pattern}): encoder {head}{word}")
    return lines


def summarize_page(data: dict[str, Any], written: list[Path]) -> dict[str, Any]:
    """What the page holds, but the maps."""
    snapshots = [
        {key: value for key, value in snapshot.items() if key not in ("maps", "candidates")}
        for snapshot in data["snapshots"]
    ]
    kept = ("languages", "text", "tokens", "words", "layers", "heads")
    names = {"measure_names": data["measures"]}
    return {
        "files": list(map(str, written)),
        **{key: data[key] for key in kept},
        **names,
        "snapshots": snapshots,
    }
