"""Which model goes with which subwords, and which weights can initialize which model."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from manyheads.checkpoint.manifest import read_info, read_subwords
from manyheads.checkpoint.model_folder import load_weights
from manyheads.config import ModelConfig
from manyheads.errors import CheckpointError, ConfigError
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.text.subwords import SubwordPair

# The keys of a model that may differ from those of the model that it is initialized from.
CHANGEABLE_KEYS = {"dropout", "attention_dropout", "experts_balance_weight", "init", "init_gain"}


def fit_to_vocabulary(model: ModelConfig, subwords: SubwordPair) -> ModelConfig:
    """Set the vocabulary sizes of the data. Embeddings are shared only if both sides have the same ids."""
    if subwords.has_shared_ids:
        return replace(model, vocab_size=len(subwords.source), source_vocab_size=None, target_vocab_size=None)
    return replace(
        model,
        tie_embeddings="two-way" if model.tie_embeddings == "three-way" else model.tie_embeddings,
        source_vocab_size=len(subwords.source),
        target_vocab_size=len(subwords.target),
    )


def check_subwords(folder: Path, subwords: SubwordPair) -> None:
    """Check that a checkpoint was trained with these subwords."""
    if not subwords.is_same_as(read_subwords(folder)):
        raise CheckpointError(
            f"{folder}: was trained with other subwords than the data's: prepare the data with "
            f"subwords.reuse_from={folder}, or start another run"
        )


def load_initial_weights(model: EncoderDecoder, subwords: SubwordPair, folder: Path) -> None:
    """Initialize a model with the weights of another one that has the same subwords: fine-tuning."""
    info = read_info(folder)
    if not subwords.is_same_as(read_subwords(info.folder)):
        raise ConfigError(
            f"train.init_from is {folder}, whose subwords are not the data's: "
            f"prepare the data with subwords.reuse_from={folder}"
        )
    current, initial = asdict(model.config), asdict(info.config.model)
    changed = [
        key
        for key in {**current, **initial}
        if current.get(key) != initial.get(key) and key not in CHANGEABLE_KEYS
    ]
    if changed:
        raise ConfigError(
            f"train.init_from is {folder}, another model: "
            + "; ".join(
                describe_change(f"model.{key}", initial.get(key), current.get(key)) for key in changed
            )
        )
    load_weights(model, folder)


def describe_change(key: str, before: Any, after: Any) -> str:
    """Return what became of a setting, its values as the command line and TOML write them."""
    old, new = ("none" if value is None else repr(value) for value in (before, after))
    return f"{key} was {old}, is {new}"
