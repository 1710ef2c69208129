"""A small corpus and a run of a few steps, and what tests read from a run folder."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import Recipe
from manyheads.data.prepare import prepare
from manyheads.train.log import read_log

PAIRS = [
    (f"{who} {does} {n} {what}.", f"{누구} {무엇} {n} {하다}.")
    for n in range(1, 13)
    for who, 누구 in (("She", "그녀는"), ("He", "그는"), ("Mina", "미나는"))
    for what, 무엇 in (("books", "책"), ("apples", "사과"))
    for does, 하다 in (("sees", "본다"), ("buys", "산다"))
]


def prepare_data(folder: Path) -> Path:
    """Write the corpus and prepare it; return the data folder."""
    for side, code in enumerate(("en", "ko")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / f"a.{code}").write_text(text, encoding="utf-8")
    files = [f"{folder}/a.en", f"{folder}/a.ko"]
    tables = {"train": [{"files": files}], "subwords": {"vocab_size": 330}, "corpus": {"hold_out": 7}}
    prepare(Recipe.from_mapping(tables), folder / "data")
    return folder / "data"


def make_config(data: Path, **changes: Any) -> mh.Config:
    """Return the config of a run of 12 steps, with changes to its [model] and [train] tables."""
    model = {"layers": 1, "d_model": 16, "d_ff": 32, "heads": 2, "dropout": 0.1}
    training = {
        "steps": 12,
        "warmup": 4,
        "learning_rate": 5e-3,
        "log_every": 1,
        "validate_every": 4,
        "checkpoint_every": 3,
        "bleu_sentences": 3,
        "average_checkpoints": 2,
        "keep_checkpoints": 2,
        "card": False,
    }
    for table in (model, training):
        table |= {key: changes.pop(key) for key in list(changes) if key in table}
    return mh.Config(
        model=mh.TransformerConfig(**model),
        data=mh.DataConfig(folder=str(data), batch_tokens=300),
        train=mh.TrainConfig(**training, **changes),
    )


def read_weights(run: Path) -> dict[str, Tensor]:
    return checkpoint.read_tensors(run / "model" / "weights.safetensors")


def are_identical(weights: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return weights.keys() == others.keys() and all(
        torch.equal(weights[name], others[name]) for name in weights
    )


def read_entries(run: Path, event: str = "train") -> list[dict[str, Any]]:
    return [entry for entry in read_log(run / "log.jsonl") if entry["event"] == event]


def read_losses(run: Path, event: str = "train") -> list[float]:
    return [entry["loss"] for entry in read_entries(run, event)]


def read_log_without_times(run: Path) -> list[dict[str, Any]]:
    """Return the entries that are the same in a resumed run, which starts and saves more often."""
    times = ("seconds", "run_seconds", "finish_seconds", "compile_seconds", "tokens_per_second", "mfu")
    return [
        {key: value for key, value in entry.items() if key not in times}
        for entry in read_log(run / "log.jsonl")
        if entry["event"] not in ("start", "checkpoint")
    ]
