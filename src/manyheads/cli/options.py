"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[Path, typer.Argument(help="A model folder, such as run/model.", metavar="MODEL")]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",  # typer 0.27 would take the name from the metavar
        help="torch, torch:float32, torch:bfloat16, torch:int8, ctranslate2, ctranslate2:int8 or "
        "ctranslate2:int8_float32.",
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
    typer.Option(help="Another model to average the predictions with; can be repeated.", metavar="MODEL"),
]
Beam = Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty ((5 + L)/6)^alpha.")]


def drop_unset(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the model folder has the others."""
    return {key: value for key, value in options.items() if value is not None}
