"""What `manyheads models` says of each model that has a name."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.checkpoint.manifest import MODEL_CARD, count_model_bytes, read_model_manifest
from manyheads.errors import CheckpointError
from manyheads.named_models.resolution import NamedModel, Origin, find_own_folder, list_models

# A score in the section "Scores" of a model card, such as "BLEU 27.31 ± 0.52 (`nrefs:1|...`)".
CARD_SCORE = re.compile(r"\b(BLEU|chrF) (\d+\.\d+)")


@dataclass(frozen=True)
class ModelSummary:
    """A named model as the list shows it."""

    name: str
    origin: Origin
    folder: str
    languages: str = ""  # en to de
    megabytes: float = 0.0  # of the files that its manifest lists, and of the manifest
    quantization: str | None = None  # int8, or None: floats
    scores: str = ""  # the first of each metric in its card
    error: str = ""  # why it cannot be read

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize_models() -> list[ModelSummary]:
    return [summarize_model(model) for model in list_models()]


def summarize_model(model: NamedModel) -> ModelSummary:
    try:
        manifest = read_model_manifest(model.folder)
    except CheckpointError as error:
        return ModelSummary(model.name, model.origin, str(model.folder), error=str(error))
    return ModelSummary(
        model.name,
        model.origin,
        str(model.folder),
        f"{manifest['languages']['source']} to {manifest['languages']['target']}",
        measure_megabytes(model.folder),
        manifest.get("quantization"),
        read_card_scores(model.folder / MODEL_CARD),
    )


def measure_megabytes(folder: Path) -> float:
    """Return the size of a model folder. 1 MB is 10^6 bytes."""
    return count_model_bytes(folder) / 1e6


def read_card_scores(card: Path) -> str:
    """Return the first score of each metric in the section "Scores" of a model card; "" if there is none."""
    try:
        text = card.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    section = text.partition("## Scores\n")[2].partition("\n## ")[0]
    first: dict[str, str] = {}
    for name, value in CARD_SCORE.findall(section):
        first.setdefault(name, f"{float(value):.1f}")
    return ", ".join(f"{name} {value}" for name, value in first.items())


def format_models(summaries: list[ModelSummary]) -> str:
    """Return a table of models, or what to do if there are none."""
    own = find_own_folder()
    if not summaries:
        return (
            f"no models: none is installed with this version, and none is in {own}\n"
            f"to have one there: cp -r run/model {own}/NAME    then: manyheads translate NAME"
        )
    header = ["name", "languages", "weights", "MB", "scores", "from"]
    rows = [header, *map(format_row, summaries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def format_row(summary: ModelSummary) -> list[str]:
    origin = "the box" if summary.origin == "box" else summary.folder
    if summary.error:
        return [summary.name, "-", "-", "-", summary.error, origin]
    return [
        summary.name,
        summary.languages,
        summary.quantization or "float",
        f"{summary.megabytes:.1f}",
        summary.scores or "-",
        origin,
    ]
