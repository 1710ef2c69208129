"""Sentences of the data that a model was trained with, for pages that show something to try."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from manyheads import checkpoint
from manyheads.errors import ManyheadsError

MAX_SENTENCES = 100  # of a set, among which examples are chosen
NUM_EXAMPLES = 4
MIN_EXAMPLE_CHARACTERS, MAX_EXAMPLE_CHARACTERS = 8, 90
CORPUS_FILE = "corpus.json"


@dataclass(frozen=True)
class TrainingFacts:
    """What a model was trained on, as far as its data are still there."""

    num_pairs: int | None = None
    examples: list[str] = field(default_factory=list)


def read_training_facts(folder: Path) -> TrainingFacts:
    """Return what the data folder of a model says; nothing where the folder is gone or cannot be read."""
    try:
        manifest = checkpoint.read_model_manifest(folder)
        data = find_data_folder(manifest["config"]["data"]["folder"], folder)
        corpus = json.loads((data / CORPUS_FILE).read_text(encoding="utf-8"))
        num_pairs = corpus["splits"]["train"]["pairs"]
        examples = choose_examples(read_sentences(data, manifest["languages"]["source"]))
        return TrainingFacts(num_pairs if type(num_pairs) is int else None, examples)
    except (OSError, ValueError, KeyError, TypeError, ManyheadsError):
        return TrainingFacts()


def list_examples(info: checkpoint.CheckpointInfo) -> list[str]:
    """Return sentences of the test set of a model, short to long; none where its data are gone."""
    try:
        data = find_data_folder(info.config.data.folder, info.folder)
        return choose_examples(read_sentences(data, info.languages["source"]))
    except (OSError, UnicodeDecodeError):
        return []


def find_data_folder(stored: str, model: Path) -> Path:
    """Return the data folder that a model was trained with.

    A relative path is one of the folder that training was started in. From elsewhere, and after a move,
    the data are looked for beside the folders that hold the model.
    """
    data = Path(stored)
    parents = [parent / data.name for parent in model.resolve().parents]
    return next((path for path in [data, *parents] if (path / CORPUS_FILE).is_file()), data)


def read_sentences(data: Path, language: str, splits: tuple[str, ...] = ("test", "valid")) -> list[str]:
    """Return the first source sentences of the first of these sets that a data folder has."""
    paths = [data / f"{split}.{language}" for split in splits]
    path = next((path for path in paths if path.is_file()), paths[-1])
    with path.open(encoding="utf-8") as file:
        return [line.strip() for line, _ in zip(file, range(MAX_SENTENCES), strict=False) if line.strip()]


def choose_examples(sentences: list[str]) -> list[str]:
    """Return sentences of different lengths, short to long."""
    fitting = [
        sentence
        for sentence in dict.fromkeys(sentences)
        if MIN_EXAMPLE_CHARACTERS <= len(sentence) <= MAX_EXAMPLE_CHARACTERS
    ]
    ranked = sorted(fitting, key=len)
    if len(ranked) <= NUM_EXAMPLES:
        return ranked
    return [ranked[round(index * (len(ranked) - 1) / (NUM_EXAMPLES - 1))] for index in range(NUM_EXAMPLES)]
