"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyheads.named_models.resolution import resolve_model

Model = Annotated[
    Path,
    typer.Argument(
        help="A model folder, such as run/model, or the name of a model (manyheads models).",
        metavar="MODEL",
        parser=resolve_model,
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",  # typer 0.27 would take the name from the metavar
        help="torch, torch:float32, torch:bfloat16, torch:int8, ctranslate2, ctranslate2:int8 or "
        "ctranslate2:int8_float32. By default torch; for int8 models given by their names on a CPU "
        "ctranslate2:int8, if installed.",
        metavar="ENGINE",
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default cuda if there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON.")]
Changes = Annotated[
    list[str] | None,
    typer.Argument(help="Keys to change, such as train.steps=2000.", metavar="SECTION.KEY=VALUE"),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        help="Another model to average the predictions with; can be repeated.",
        metavar="MODEL",
        parser=resolve_model,
    ),
]
AdapterName = Annotated[
    str | None,
    typer.Option(
        "--adapter", help="An adapter of the model, by its name (manyheads adapt --adapter).", metavar="NAME"
    ),
]
UseCorrections = Annotated[
    bool,
    typer.Option(
        "--corrections/--no-corrections",
        help="Use the corrections of this model's translations (manyheads correct), or the model alone.",
    ),
]
Space = Annotated[
    str,
    typer.Option(
        help="Space of corrections: users of a server have one each, by the names of their API keys.",
        metavar="NAME",
    ),
]
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty ((5 + L)/6)^alpha.")]
MaxExtraLength = Annotated[
    int | None, typer.Option(help="Maximum number of tokens by which the output may exceed the input.")
]
MinLength = Annotated[int | None, typer.Option(help="Minimum number of output tokens.")]
NoRepeatNgram = Annotated[int | None, typer.Option(help="Never repeat an n-gram of this length.")]


def drop_unset(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the model folder has the others."""
    return {key: value for key, value in options.items() if value is not None}
