"""Mixed precision: whether a run computes in bfloat16."""

import torch

from manyheads.config import TrainConfig


def uses_bfloat16(train: TrainConfig, device: torch.device) -> bool:
    """Whether matrix products are in bfloat16: if asked for, and by default on a GPU."""
    return train.precision == "bfloat16" or (train.precision == "auto" and device.type == "cuda")


def autocast(train: TrainConfig, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=uses_bfloat16(train, device))
