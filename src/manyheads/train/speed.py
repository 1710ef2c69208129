"""How much arithmetic a step is, and what share of the device's peak it reaches."""

import re

import numpy as np
import torch
from numpy.typing import NDArray

from manyheads.config import ModelConfig
from manyheads.data.batches import Batch

# Dense bfloat16 products a second, as the makers state them.
PEAKS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100": 125e12,
}


def training_flops(config: ModelConfig, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> int:
    """Of a step over sentences of these lengths, real tokens only.

    Matrix parameters x 2, attention with the causal half, and the backward pass twice the forward.
    """
    head_widths = config.key_width + config.value_width
    query_side = 2 * config.d_model * config.heads * head_widths  # W_Q and W_O; W_K and W_V cost the same
    layer = 3 * query_side + 2 * 2 * config.d_model * config.d_ff  # cross-attention's W_K, W_V: by source
    per_source = config.layers * layer
    per_target = config.layers * layer + 2 * config.d_model * config.target_size
    seen = float((sources**2 + targets**2 / 2 + targets * sources).sum())  # encoder, decoder, cross
    attention = config.layers * 2 * config.heads * head_widths * seen
    return round(3 * (per_source * int(sources.sum()) + per_target * int(targets.sum()) + attention))


def batch_flops(config: ModelConfig, batch: Batch) -> int:
    source, target = (np.diff(side.offsets.numpy()).astype(np.int64) for side in (batch.source, batch.labels))
    return training_flops(config, source, target)


def peak(device: torch.device) -> float | None:
    """What the device could do at most, where it is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((rate for part, rate in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)
