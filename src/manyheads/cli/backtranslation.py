"""The command `backtranslate`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from manyheads.cli.app import app
from manyheads.cli.bulk import Gpus, Ray, RayCommand, Workers, run_bulk_job
from manyheads.cli.options import Beam, Device, Engine
from manyheads.named_models.resolution import resolve_model

ReverseModel = Annotated[
    Path,
    typer.Argument(
        help="A model from the language of the text into the source language of the model to train.",
        metavar="MODEL",
        parser=resolve_model,
    ),
]
Mono = Annotated[
    list[Path],
    typer.Argument(help="Text in one language, one sentence a line; or folders of it.", metavar="MONO..."),
]
PairFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Folder for a file of pairs (synthetic source, tab, text) for each file. The same command goes "
        "on with a job that was stopped.",
        metavar="FOLDER",
    ),
]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        help="beam; sampling, from the whole distribution; or noised-beam, which drops and shuffles words. "
        "On a GPU sampling is several times slower.",
        metavar="METHOD",
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Of sampling; by default 1.", min=0.01)]
TopK = Annotated[int | None, typer.Option(help="Sample from this many most probable tokens.", min=1)]
Seed = Annotated[int, typer.Option(help="Of sampling and noise.", min=0)]
MinConfidence = Annotated[
    float | None,
    typer.Option(help="Leave out pairs below this confidence; needs a calibrated model.", min=0, max=1),
]


@app.command(cls=RayCommand)
def backtranslate(
    model: ReverseModel,
    mono: Mono,
    out: PairFolder,
    method: MethodName = "beam",
    beam: Beam = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    seed: Seed = 0,
    min_confidence: MinConfidence = None,
    engine: Engine = None,
    device: Device = None,
    gpus: Gpus = None,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """Make synthetic pairs from text in one language, by a model of the opposite direction.

    A recipe names the files as training text with a tag and a weight (docs/own-data.md):

    \b
      [[train]]
      files = ["bt/news.ko.tsv"]
      tag = "<bt>"
      weight = 0.5

    \b
    Example:
      manyheads backtranslate run-ko-en/model news.ko --out bt --min-confidence 0.3
    """
    from manyheads.bulk.backtranslation import BacktranslationOptions, create_decoding
    from manyheads.bulk.jobs import BulkJob
    from manyheads.bulk.shards import list_shards, rename_to_pairs
    from manyheads.loading import choose_engine

    options = BacktranslationOptions(min_confidence, method == "noised-beam", seed)
    decoding = create_decoding(method, beam, temperature, top_k, seed)
    if engine is None:  # CTranslate2 does not sample
        engine = "torch" if method == "sampling" else choose_engine(model, (), device)
    job = BulkJob(
        "backtranslate", [str(model)], engine, device, options=decoding, backtranslation=asdict(options)
    )
    run_bulk_job(job, rename_to_pairs(list_shards(mono)), [None], out, gpus=gpus, workers=workers, ray=ray)
