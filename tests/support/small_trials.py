"""A data folder of a few short sentences, and trials that train a tiny model on it in milliseconds."""

from dataclasses import replace
from pathlib import Path

import manyheads as mh
from manyheads import playground
from manyheads.data.store import Store
from manyheads.demo import prepare_corpus
from manyheads.paper.budget import Budget
from manyheads.paper.trials import Trial

MODEL = mh.TransformerConfig(layers=1, d_model=16, d_ff=16, heads=2, dropout=0.0)


def small_store(folder: Path, seed: int = 1) -> Store:
    corpus = playground.generate_corpus(
        "en-de", train=120, valid=6, test=5, seed=seed, constructions=["tense"], words=4
    )
    return prepare_corpus(folder, "en-de", corpus, 360)


def small_trial(store: Store, budget: str = "4steps", row: str = "base", **keys: str | float) -> Trial:
    """`keys` override the configuration: model_d_ff=32 sets model.d_ff."""
    config = mh.Config(
        model=MODEL,
        data=mh.DataConfig(folder=str(store.folder), batch_tokens=200),
        train=mh.TrainConfig(warmup=2, learning_rate=1e-3),
        decoding=mh.DecodingConfig(beam=2, max_extra_length=2),
    )
    config = config.override(f"{key.replace('_', '.', 1)}={value}" for key, value in keys.items())
    return Trial(row, replace(Budget.parse(budget).apply_to(config, store)), "valid")
