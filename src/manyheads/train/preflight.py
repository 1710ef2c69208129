"""Checks before a run starts: settings that contradict each other, or that this machine cannot run."""

import os

import torch

from manyheads.config import Config, ModelConfig, TransformerConfig
from manyheads.errors import ConfigError, ResourceError
from manyheads.model import count_parameters

BYTES_PER_PARAMETER = 16  # weight, gradient and two moments in float32


def cap_length(model: ModelConfig, tokens: int) -> int:
    """Return `tokens`, but at most the number of learned positions."""
    return tokens if model.position_limit is None else min(tokens, model.position_limit)


def check_memory(model: ModelConfig, device: torch.device) -> None:
    """Refuse a model that does not fit into this machine's memory, before it is built."""
    needed = BYTES_PER_PARAMETER * count_parameters(model)["total"]
    if device.type == "cuda":
        available = torch.cuda.get_device_properties(device).total_memory
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > available:
        raise ResourceError(
            f"training this model needs at least {needed / 2**30:.1f} GiB of memory, but {device} has "
            f"{available / 2**30:.1f}: lower model.layers, model.d_model, model.d_ff or the vocabulary size"
        )


def check_compile(config: Config) -> None:
    """Refuse train.compile for models that torch.compile cannot compile as one graph."""
    is_transformer = isinstance(config.model, TransformerConfig)
    if config.train.compile and not (is_transformer and getattr(config.model, "experts", None) is None):
        key = "experts" if is_transformer else "architecture"
        raise ConfigError(
            f"train.compile is true, but model.{key} is {getattr(config.model, key)!r}, which it does not "
            f"support: set train.compile = false"
        )


def check_r_drop(config: Config) -> None:
    """Refuse R-Drop without dropout: two forward passes would not differ."""
    attention_dropout = getattr(config.model, "attention_dropout", 0)
    if config.train.r_drop and config.model.dropout == attention_dropout == 0:
        raise ConfigError(
            f"train.r_drop is {config.train.r_drop:g}, but model.dropout and model.attention_dropout "
            f"are 0, so that two forward passes are the same: raise one of them, or set train.r_drop = 0"
        )


def check_adaptation(config: Config) -> None:
    """Refuse adapters without a model to adapt, and with settings that would not leave a low rank."""
    adaptation, train = config.adaptation, config.train
    if (adaptation.rank is not None or adaptation.anchor) and train.init_from is None:
        key = "anchor" if adaptation.rank is None else "rank"
        raise ConfigError(f"adaptation.{key} is set, but train.init_from names no model to adapt: set it")
    if adaptation.rank is None:
        return
    if train.optimizer == "muon":
        raise ConfigError(
            'train.optimizer is "muon", which makes updates of full rank: adapters (adaptation.rank) are '
            'trained with "adam" or "adamw"'
        )
    if train.average_checkpoints > 1:
        raise ConfigError(
            f"train.average_checkpoints is {train.average_checkpoints}, but an average of adapters "
            f"(adaptation.rank) has no low rank: set train.average_checkpoints = 1"
        )


def check_max_positions(config: Config) -> None:
    """Refuse sentences that are longer than the learned positions."""
    if cap_length(config.model, config.data.max_length) < config.data.max_length:
        raise ConfigError(
            f"data.max_length is {config.data.max_length}, but learned positions reach "
            f"{config.model.position_limit}: lower it, or raise model.max_positions"
        )
