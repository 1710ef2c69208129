"""Verbs for translating: translate, score, evaluate, export."""

import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from manyheads.cli.app import app
from manyheads.errors import DataError, RequestError

Model = Annotated[Path, typer.Argument(help="A model folder, such as run/model.", metavar="MODEL")]
Engine = Annotated[
    str,
    typer.Option(
        help="torch, torch:float32 or torch:bfloat16, ctranslate2, ctranslate2:int8 or :int8_float32.",
        metavar="ENGINE",
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; without it cuda where there is one.")]
Ensemble = Annotated[
    list[Path] | None, typer.Option("--with", help="Another model that decides with it; may repeat.")
]
Beam = Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty ((5 + L)/6)^alpha.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command()
def translate(
    model: Model,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text, a line each; without them stdin.", metavar="FILE")
    ] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    nbest: Annotated[int | None, typer.Option(help="So many translations of each line, with --json.")] = None,
    max_extra_length: Annotated[
        int | None, typer.Option(help="Tokens that the output may be longer than the input.")
    ] = None,
    min_length: Annotated[int | None, typer.Option(help="Tokens that the output has at least.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Draw words at random: 1 as they are.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Drawn out of so many likeliest words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Drawn out of this share of probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of what is drawn.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="No run of so many tokens twice.")] = None,
    prefix: Annotated[str, typer.Option(help="How each sentence's translation must begin.")] = "",
    glossary: Annotated[
        Path | None, typer.Option(help="Terms that must become given ones: source, tab, target a line.")
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(help="A word that must not come out; may repeat.")
    ] = None,
    split: Annotated[bool, typer.Option(help="Part lines into sentences; else a line is one.")] = True,
    together: Ensemble = None,
    engine: Engine = "torch",
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line: scores, tokens, alignment, alternatives.")
    ] = False,
) -> None:
    """Translate text line by line, from files or stdin to stdout: n lines in, n lines out.

    Example: manyheads translate run/model test.en > test.ko
    """
    from manyheads.loading import load
    from manyheads.progress import create_progress

    search = drop_unset(
        beam=beam, alpha=alpha, nbest=nbest, max_extra_length=max_extra_length, min_length=min_length,
        temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, no_repeat_ngram=no_repeat_ngram,
    )  # fmt: skip
    if (nbest or 1) > 1 and not as_json:
        raise RequestError(
            f"--nbest is {nbest}, but a line out is one translation: add --json to see them all"
        )
    translator = load(model, *(together or []), device=device, engine=engine)
    terms = read_glossary(glossary) if glossary else {}
    live = not files and sys.stdin.isatty()
    read_ahead = 1 if live else 16 if sys.stdout.isatty() else None
    show_warnings()
    with create_progress(sys.stderr) as progress:
        stream = translator.stream(
            read_lines(files or []),
            read_ahead,
            prefix=prefix,
            glossary=terms,
            forbid=forbid or [],
            split=split,
            alignment=as_json and translator.engine.capabilities.alignment,
            scores="tokens" if as_json else "none",
            **search,
        )
        for done, found in enumerate(stream, 1):
            print(
                json.dumps(found.to_dict(), ensure_ascii=False) if as_json else found.text,
                flush=read_ahead is not None,
            )
            if not live and sys.stderr.isatty():
                progress.update("translating", done, None)


@app.command()
def score(
    model: Model,
    source: Annotated[Path, typer.Argument(help="Text, a line each.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line for line.")],
    together: Ensemble = None,
    engine: Engine = "torch",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with tokens.")] = False,
) -> None:
    """Say how likely the model thinks given translations, line by line, by forced decoding.

    A line out: log-probability, log-probability a token (its end counted), translation.
    Example: manyheads score run/model test.en test.ko
    """
    from manyheads.loading import load

    sources, targets = list(read_lines([source])), list(read_lines([target]))
    if len(sources) != len(targets):
        raise DataError(f"{source} has {len(sources)} lines, but {target} has {len(targets)}")
    show_warnings()
    for found in load(model, *(together or []), device=device, engine=engine).score(sources, targets):
        each = found.log_probability / (len(found.tokens) + 1)
        told = f"{found.log_probability:.4f}\t{each:.4f}\t{found.text}"
        print(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else told)


@app.command()
def evaluate(
    model: Model,
    source: Annotated[Path, typer.Argument(help="Text, a line each.")],
    references: Annotated[
        list[Path], typer.Argument(help="Its translations by people.", metavar="REFERENCE...")
    ],
    against: Annotated[Path | None, typer.Option(help="Another model: is the difference chance?")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer, such as 13a, char or ko-mecab.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Of the bootstrap, for confidence; 0 is none.", min=0)] = 1000,
    worst: Annotated[int, typer.Option(help="Sentences shown that went worst.", min=0)] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the translations here, a line each.")] = None,
    together: Ensemble = None,
    engine: Engine = "torch",
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Score a model's translations: BLEU and chrF with signatures and confidence, perplexity, the worst.

    Korean is scored by characters, and the signature says so. Each line is one sentence.
    Example: manyheads evaluate run/model test.en test.ko
    """
    from manyheads.evaluate.report import evaluate as judge
    from manyheads.loading import load
    from manyheads.progress import create_progress

    sources = list(read_lines([source]))
    texts = [list(read_lines([one])) for one in references]
    for path, lines in zip(references, texts, strict=True):
        if len(lines) != len(sources):
            raise DataError(f"{source} has {len(sources)} lines, but {path} has {len(lines)}")
    search = drop_unset(beam=beam, alpha=alpha)
    translator = load(model, *(together or []), device=device, engine=engine)
    other = load(against, device=device, engine=engine) if against else None
    show_warnings()
    with create_progress(sys.stderr) as progress:
        found = judge(
            translator, sources, texts, baseline=other, tokenize=tokenize, bootstrap_samples=samples,
            num_worst=worst, report_progress=progress.update, **search,
        )  # fmt: skip
    if out:
        out.write_text("".join(f"{line}\n" for line in found.translations), encoding="utf-8")
    print(json.dumps(found.to_dict(), ensure_ascii=False, indent=1) if as_json else found.to_text())


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A model folder; with --from, theirs.", metavar="FOLDER")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    to: Annotated[
        str | None, typer.Option("--to", help="ctranslate2, onnx or huggingface.", metavar="FORMAT")
    ] = None,
    source_format: Annotated[
        str | None,
        typer.Option("--from", help="huggingface: a Marian folder becomes ours.", metavar="FORMAT"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, or bring one in; both are compared at the end, score by score.

    Example: manyheads export run/model --to ctranslate2 --out run/ct2
    """
    if (to is None) == (source_format is None):
        raise RequestError("export needs either --to ctranslate2, onnx or huggingface, or --from huggingface")
    if out.exists():
        raise RequestError(f"{out}: exists already; choose another folder")
    checks = select_exporter(to, source_format)(model, out)
    if as_json:
        print(json.dumps({"folder": str(out), "checks": [vars(one) for one in checks]}, ensure_ascii=False))
        return
    print("log-probability by the one and by the other, of pieces drawn at random:")
    for one in checks:
        print(f"{one.ours:12.4f} {one.theirs:12.4f}  {one.target[:70]}")
    print(f"{out}: the same model")


def select_exporter(to: str | None, source_format: str | None) -> Any:
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
    wrong, known = (to, "ctranslate2, onnx, huggingface") if to else (source_format, "huggingface")
    raise RequestError(f"unknown format {wrong!r}; known: {known}")


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def drop_unset(**options: Any) -> dict[str, Any]:
    """Those that someone set; the others are the model folder's own."""
    return {key: value for key, value in options.items() if value is not None}


def read_lines(files: list[Path]) -> Iterator[str]:
    """Lines of files, or of stdin, without their line feeds. What is not UTF-8 becomes U+FFFD."""
    for path in files or [Path("-")]:
        with sys.stdin.buffer if path == Path("-") else open_text(path) as stream:
            for number, line in enumerate(stream, 1):
                text = (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line).removesuffix(b"\n")
                try:
                    yield text.decode("utf-8")
                except UnicodeDecodeError:
                    warnings.warn(
                        f"{path}: line {number} is not UTF-8; what cannot be read is \ufffd", stacklevel=2
                    )
                    yield text.decode("utf-8", "replace")


def open_text(path: Path) -> IO[bytes]:
    if path.suffix in (".gz", ".xz", ".zst"):
        raise DataError(f"{path}: is compressed; unpack it first, as with zcat, and pipe it in")
    return path.open("rb")


def read_glossary(path: Path) -> dict[str, str]:
    terms = {}
    for number, line in enumerate(read_lines([path]), 1):
        if not line.strip():
            continue
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(f"{path}: line {number} is not a term, a tab and its translation")
        terms[source.strip()] = target.strip()
    return terms


def show_warnings() -> None:
    """As a line each, as everything that we say. What goes out is UTF-8, as what comes in."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"manyheads: {message}", file=sys.stderr)

    warnings.showwarning = show
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
