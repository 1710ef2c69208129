"""The command `demo`."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.options import AsJson
from manyheads.errors import EXIT_PREEMPTED

if TYPE_CHECKING:
    from manyheads.translation import Translation


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("manyheads-demo"),
    pair: Annotated[str, typer.Option(help="Languages: en-ko or en-de.")] = "en-ko",
    seconds: Annotated[float, typer.Option(help="Stop training after this time.", min=1)] = 170,
    as_json: AsJson = False,
) -> None:
    """Run every step on this machine's CPU in about three minutes: prepare, train, translate, evaluate.

    A model that is installed with the package translates a sentence first, if there is one. The corpus is
    built in. The sentences translated at the end are not in the training data.

    \b
    Example:
      manyheads demo --pair en-de
    """
    from manyheads.demo import SHOWN_SENTENCES, run_demo, translate_with_box
    from manyheads.progress import create_progress

    boxed = translate_with_box(out)
    if boxed and not as_json:
        print(f"{boxed.name}, which is installed with the package:\n  {boxed.source}\n  {boxed.text}")
        print(f"attention of every head: open {boxed.page.resolve().as_uri()} in a browser")
        print("\nNow a small model of your own, from nothing:", flush=True)
    result = run_demo(out, pair, seconds, lambda: create_progress(sys.stderr))
    if result is None:
        exit_with_error(f"{out}: stopped; the same command resumes it", EXIT_PREEMPTED)
        return
    if as_json:
        rows = [dict(zip(("source", "reference", "translation"), row, strict=True)) for row in result.rows]
        report = {
            "model": str(result.model), "page": str(result.page), "exact": result.exact_match,
            "bleu": asdict(result.bleu), "rows": rows, "words": result.num_words,
            "outside": describe_outside(result.outside),
            "box": boxed and {"model": boxed.name, "translation": boxed.text, "page": str(boxed.page)},
        }  # fmt: skip
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    print("source, translation, reference; = if translation and reference are identical, ! if not")
    for source, reference, translation in result.rows[:SHOWN_SENTENCES]:
        print(f"{'=' if translation == reference else '!'} {source}\n  {translation}\n  {reference}")
    print(f"\n{len(result.rows)} held-out sentences: {result.exact_match:.1%} exact, {result.bleu}")
    language = pair.partition("-")[2]
    print(f"model: {result.model}\nnext, after `. .venv/bin/activate` if make installed it:")
    print(f"  echo {shlex.quote(result.rows[0][0])} | manyheads translate {result.model}")
    print(f"  manyheads evaluate {result.model} {out}/test.en {out}/test.{language}")
    print(f"  manyheads inspect {out}/run")
    print(f"  manyheads inspect {out}/data --sentence 'I go home.'")
    print(f"  manyheads look {result.model} {shlex.quote(result.rows[1][0])} -o page.html")
    print(
        f"  manyheads look {result.model} --live -o translator.html      the model in a page: type, cut heads"
    )
    print(f"  manyheads look {out}/run --through-training -o training.html      how it learned")
    print(f"  manyheads serve {result.model} --run {out}/run      and open http://127.0.0.1:5000")
    print(f"attention of every head: open {result.page.resolve().as_uri()} in a browser")
    print(f"\nThe model learned a world of {result.num_words} words; it will not know yours:")
    confidence = result.outside.confidence
    rating = "unknown" if confidence is None else f"{confidence:.2f}"
    print(f"  {result.outside.source}\n  {result.outside.text}  (confidence {rating})")


def describe_outside(translation: "Translation") -> dict[str, Any]:
    return {
        "source": translation.source, "translation": translation.text, "confidence": translation.confidence,
    }  # fmt: skip
