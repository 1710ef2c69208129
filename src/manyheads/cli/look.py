"""The command `look`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.cli.options import Device
from manyheads.cli.text_io import configure_output, report_write_errors
from manyheads.errors import RequestError
from manyheads.named_models.resolution import resolve_model

ModelOrRun = Annotated[
    Path,
    typer.Argument(
        help="A model folder or the name of a model; with --through-training a run.",
        metavar="MODEL",
        parser=resolve_model,
    ),
]
Sentence = Annotated[str | None, typer.Argument(help="The sentence to translate.", metavar="SENTENCE")]
Target = Annotated[
    str | None, typer.Option(help="Its translation; by default the model's own.", metavar="TEXT")
]
Page = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Page to write; by default attention.html or translator.html.", metavar="FILE"
    ),
]
FigureFolder = Annotated[
    Path | None, typer.Option(help="Write figures for print too: SVG, PDF and PNG.", metavar="DIR")
]
ThroughTraining = Annotated[
    bool, typer.Option("--through-training", help="Show the sentence at every checkpoint of a run.")
]
Walk = Annotated[
    bool,
    typer.Option("--walk", help="Write a walk through every layer, number by number, instead of attention."),
]
Live = Annotated[
    bool, typer.Option("--live", help="Write a translator: the model and an engine in one page.")
]
Compared = Annotated[
    Path | None,
    typer.Option(
        help="With --live: another model or checkpoint, to translate beside it.",
        metavar="MODEL",
    ),
]
AttentionAsJson = Annotated[
    bool,
    typer.Option("--json", help="Print a report as JSON: words, measures of every head, notable heads."),
]


@app.command()
def look(
    model: ModelOrRun,
    sentence: Sentence = None,
    target: Target = None,
    out: Page = None,
    figures: FigureFolder = None,
    through_training: ThroughTraining = False,
    walk: Walk = False,
    live: Live = False,
    compare: Compared = None,
    device: Device = None,
    as_json: AttentionAsJson = False,
) -> None:
    """Write a web page that shows the attention of every head. The page is one file and works offline.

    With --figures and without --out, only figures are written. With --live the page holds the model itself,
    with int8 weights: type a sentence, cut a head, choose a token, and the translation follows.

    \b
    Example:
      manyheads look run/model "I go home." -o page.html
      manyheads look run/model "I go home." --walk -o walk.html
      manyheads look run/model --live -o translator.html
    """
    from manyheads.look.html import write_page

    configure_output()
    if live or compare:
        check_live_options(live, target, figures, through_training, walk)
        write_translator(model, compare, sentence, out, as_json)
        return
    for name, text in (("the sentence", sentence), ("--target", target)):
        check_utf8(name, text)
    if walk:
        if through_training or figures or as_json:
            raise RequestError("--walk writes one page: leave out --through-training, --figures and --json")
        print_walk(model, sentence, target, out or Path("walk.html"), device)
        return
    if through_training:
        if figures:
            raise RequestError(
                "--figures are of a model: give one of the run's checkpoints instead of --through-training"
            )
        data = compute_attention_over_training(model, sentence, target, device)
        with report_write_errors("-o", out or Path("attention.html")) as path:
            written = [write_page(data, path)]
    else:
        attention, data = compute_attention(model, sentence, target, device)
        written = []
        if out or not figures:
            with report_write_errors("-o", out or Path("attention.html")) as path:
                written.append(write_page(data, path))
        if figures:
            from manyheads.look.figures import write_figures

            with report_write_errors("--figures", figures) as folder:
                written += write_figures(attention, folder)
    print_attention(data, written, as_json)


def print_attention(data: dict[str, Any], written: list[Path], as_json: bool) -> None:
    """Print the translation, its notable heads and the files, or a report."""
    if as_json:
        print(json.dumps(summarize_page(data, written), ensure_ascii=False, indent=1))
        return
    print(data["text"]["target"])
    for line in format_figure_heads(data):
        print(line)
    for path in written:
        print(f"{path}: open it in a browser" if path.suffix == ".html" else path)


def print_walk(model: Path, sentence: str | None, target: str | None, out: Path, device: str | None) -> None:
    """Write the page of a walk, and print the translation and the path."""
    from manyheads.loading import load
    from manyheads.look.forward_walk import walk_model
    from manyheads.look.html import write_walk_page

    if not (sentence or "").strip():
        raise RequestError('no sentence to walk: manyheads look MODEL "sentence" --walk')
    assert sentence is not None
    translator = load(model, device=device)
    sentence = first_sentence(sentence, translator) if target is None else sentence
    data = walk_model(translator, sentence, target)
    with report_write_errors("-o", out) as path:
        written = write_walk_page(data, path)
    print(data["encoder"][0]["target"])
    print(f"{written}: open it in a browser")


def check_live_options(
    live: bool, target: str | None, figures: Path | None, through_training: bool, walk: bool
) -> None:
    if not live:
        raise RequestError("--compare is of a translator in a page: give --live too")
    given = {
        "--target": target,
        "--figures": figures,
        "--through-training": through_training,
        "--walk": walk,
    }
    if others := [name for name, value in given.items() if value]:
        raise RequestError(f"--live and {others[0]} are of different pages: give one of them")


def write_translator(
    model: Path, compared: Path | None, sentence: str | None, out: Path | None, as_json: bool
) -> None:
    from manyheads.look.live_page import build_live_data, write_live_page

    check_utf8("the sentence", sentence)
    data = build_live_data(model, compared and resolve_model(compared), sentence)
    with report_write_errors("-o", out or Path("translator.html")) as path:
        written = write_live_page(data, path)
    size = written.stat().st_size
    if as_json:
        report = {"file": str(written), "bytes": size, "models": [own["name"] for own in data["models"]]}
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    print(f"{written}: {size / 1e6:.1f} MB; open it in a browser, it works offline")


def check_utf8(name: str, text: str | None) -> None:
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(f"{name} is not UTF-8: write it in a terminal whose encoding is UTF-8") from None


def compute_attention(
    model: Path, sentence: str | None, target: str | None, device: str | None
) -> tuple[Any, Any]:
    from manyheads.loading import load
    from manyheads.look.attention_data import build_attention_data

    if not (sentence or "").strip():
        raise RequestError('no sentence to look at: manyheads look MODEL "sentence"')
    assert sentence is not None
    translator = load(model, device=device, engine="torch")
    sentence = first_sentence(sentence, translator) if target is None else sentence
    translation = (
        translator.translate(sentence, split=False, corrections=False).text if target is None else target
    )
    attention = translator.attention(sentence, translation)
    data = build_attention_data(attention, source=sentence, target=translation, name=model.resolve().name)
    return attention, data


def first_sentence(text: str, translator: Any) -> str:
    """Return the first sentence of a text; the others have attention of their own."""
    sentences = translator.split_sentences(text) or [text]
    if len(sentences) > 1:
        print(f"manyheads: {len(sentences)} sentences; only the first is shown", file=sys.stderr)
    return str(sentences[0])


def compute_attention_over_training(
    run: Path, sentence: str | None, target: str | None, device: str | None
) -> Any:
    from manyheads.look.training_walk import compare_checkpoints
    from manyheads.progress import create_progress

    with create_progress(sys.stderr) as progress:
        return compare_checkpoints(run, sentence, target, device=device, report_progress=progress.update)


def format_figure_heads(data: dict[str, Any]) -> list[str]:
    """Describe the encoder heads that are most like those of the paper's figures, one line each."""
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
    """Return what the page holds, without the attention maps."""
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
