"""The device to compute on."""

import torch

from manyheads.errors import ConfigError


def resolve_device(device: str | None) -> str:
    """Return the device by name; without one, a GPU where there is one."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"the device is {device!r}, but must be cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("the device is cuda, but there is no GPU here that torch can use: --device cpu")
    return device
