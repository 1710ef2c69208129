"""What a run may ask for: settings that are right alone and cannot go together, or not on this machine."""

import os

import torch

from manyheads.config import Config, ModelConfig
from manyheads.errors import ConfigError, ResourceError
from manyheads.model import count_parameters

BYTES_A_PARAMETER = 16  # weight, gradient and two moments in float32


def reach(model: ModelConfig, tokens: int) -> int:
    """So many tokens, or as many as learned positions go."""
    return min(tokens, model.learned_length) if model.positions == "learned" else tokens


def check_memory(model: ModelConfig, device: torch.device) -> None:
    """A model that this machine cannot hold is refused before it is made."""
    needed = BYTES_A_PARAMETER * count_parameters(model)["total"]
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    else:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ResourceError(
            f"training this model takes {needed / 2**30:.1f} GiB of memory at least, and {device} has "
            f"{there / 2**30:.1f}: make model.layers, model.d_model, model.d_ff or the vocabulary smaller"
        )


def check_compiled(config: Config) -> None:
    """torch.compile makes one program of the Transformer; the others would fall into pieces."""
    if config.train.compile and (config.model.kind != "transformer" or config.model.experts is not None):
        key = "kind" if config.model.kind != "transformer" else "experts"
        raise ConfigError(
            f"train.compile is true, but model.{key} is {getattr(config.model, key)!r}, which it does not "
            f"serve: set train.compile = false"
        )


def check_agreement(config: Config) -> None:
    """Readings differ by what is dropped."""
    if config.train.agreement and config.model.dropout == config.model.attention_dropout == 0:
        raise ConfigError(
            f"train.agreement is {config.train.agreement:g}, but model.dropout and model.attention_dropout "
            f"are 0, so that two readings are the same: raise one of them, or set train.agreement = 0"
        )


def check_reach(config: Config) -> None:
    if reach(config.model, config.data.longest) < config.data.longest:
        raise ConfigError(
            f"data.longest is {config.data.longest}, but learned positions reach "
            f"{config.model.learned_length}: lower it, or raise model.learned_length"
        )
