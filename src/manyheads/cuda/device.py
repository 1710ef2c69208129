"""The device to compute on."""

import platform
from pathlib import Path

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


def describe_machine(device: str) -> str:
    """Return the name of the GPU, or of the processor with the number of threads."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{(names or [platform.processor()])[0]}, {threads} thread{'' if threads == 1 else 's'}"
