"""What a run may ask for: settings that are right alone and cannot go together, or not on this machine."""

import os

import torch

from manyheads.config import Config, ModelConfig, TransformerConfig
from manyheads.errors import ConfigError, ResourceError
from manyheads.model import count_parameters

BYTES_PER_PARAMETER = 16  # weight, gradient and two moments in float32


def limit_to_positions(model: ModelConfig, tokens: int) -> int:
    """So many tokens, or as many as learned positions go."""
    return tokens if model.position_limit is None else min(tokens, model.position_limit)


def check_memory(model: ModelConfig, device: torch.device) -> None:
    """A model that this machine cannot hold is refused before it is made."""
    needed = BYTES_PER_PARAMETER * count_parameters(model)["total"]
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ResourceError(
            f"training this model takes {needed / 2**30:.1f} GiB of memory at least, and {device} has "
            f"{there / 2**30:.1f}: make model.layers, model.d_model, model.d_ff or the vocabulary smaller"
        )


def check_compile(config: Config) -> None:
    """torch.compile makes one program of the Transformer; the others would fall into pieces."""
    is_transformer = isinstance(config.model, TransformerConfig)
    if config.train.compile and not (is_transformer and getattr(config.model, "experts", None) is None):
        key = "experts" if is_transformer else "architecture"
        raise ConfigError(
            f"train.compile is true, but model.{key} is {getattr(config.model, key)!r}, which it does not "
            f"serve: set train.compile = false"
        )


def check_r_drop(config: Config) -> None:
    """Readings differ by what is dropped."""
    attention_dropout = getattr(config.model, "attention_dropout", 0)
    if config.train.r_drop and config.model.dropout == attention_dropout == 0:
        raise ConfigError(
            f"train.r_drop is {config.train.r_drop:g}, but model.dropout and model.attention_dropout "
            f"are 0, so that two readings are the same: raise one of them, or set train.r_drop = 0"
        )


def check_max_positions(config: Config) -> None:
    if limit_to_positions(config.model, config.data.max_length) < config.data.max_length:
        raise ConfigError(
            f"data.max_length is {config.data.max_length}, but learned positions reach "
            f"{config.model.position_limit}: lower it, or raise model.max_positions"
        )
