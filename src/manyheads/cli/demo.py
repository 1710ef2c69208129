"""The command `demo`."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyheads.cli.app import app, exit_with_error
from manyheads.cli.messages import localize
from manyheads.cli.options import AsJson
from manyheads.errors import EXIT_PREEMPTED

if TYPE_CHECKING:
    from manyheads.demo import DemoResult
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
        print(localize("{}, which is installed with the package:", boxed.name))
        print(f"  {boxed.source}\n  {boxed.text}")
        print(localize("attention of every head: open {} in a browser", boxed.page.resolve().as_uri()))
        print(f"\n{localize('Now a small model of your own, from nothing:')}", flush=True)
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
    print(localize("source, translation, reference; = if translation and reference are identical, ! if not"))
    for source, reference, translation in result.rows[:SHOWN_SENTENCES]:
        print(f"{'=' if translation == reference else '!'} {source}\n  {translation}\n  {reference}")
    scores = (len(result.rows), f"{result.exact_match:.1%}", result.bleu)
    print(f"\n{localize('{} held-out sentences: {} exact, {}', *scores)}")
    print_next_steps(result, out, pair.partition("-")[2])
    known = "The training text has only {} different words; others are translated wrongly:"
    print(f"\n{localize(known, result.num_words)}")
    confidence = result.outside.confidence
    rating = localize("unknown") if confidence is None else f"{confidence:.2f}"
    print(f"  {result.outside.source}\n  {result.outside.text}  {localize('(confidence {})', rating)}")
    page = "Your translator in a page, with all of its heads, works offline. Open it in a browser:"
    print(f"\n{localize(page)}\n  {result.page.resolve().as_uri()}")


def print_next_steps(result: "DemoResult", out: Path, language: str) -> None:
    """Print what to do with the model."""
    from manyheads.demo import SHOWN_SENTENCES

    print(localize("model: {}", result.model))
    print(localize("next, after `. .venv/bin/activate` if make installed it:"))
    print(f"  echo {shlex.quote(result.rows[0][0])} | manyheads translate {result.model}")
    print(f"  manyheads evaluate {result.model} {out}/test.en {out}/test.{language}")
    print(f"  manyheads inspect {out}/run")
    print(f"  manyheads inspect {out}/data --sentence 'I go home.'")
    sources = [source for source, _, _ in result.rows[:SHOWN_SENTENCES]]
    sentence = max((source for source in sources if "'" not in source), key=len, default=sources[0])
    print(f"  manyheads look {result.model} {shlex.quote(sentence)} -o {out}/page.html")
    learned, opened = localize("how it learned"), localize("and open http://127.0.0.1:5000")
    print(f"  manyheads look {out}/run --through-training -o {out}/training.html      {learned}")
    print(f"  manyheads serve {result.model} --run {out}/run      {opened}")


def describe_outside(translation: "Translation") -> dict[str, Any]:
    return {
        "source": translation.source, "translation": translation.text, "confidence": translation.confidence,
    }  # fmt: skip
