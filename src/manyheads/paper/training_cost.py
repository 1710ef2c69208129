"""What training costs in arithmetic: added up by formula, and as the paper estimates it (6.1)."""

import time

import numpy as np
import torch

from manyheads.config import ModelConfig
from manyheads.data.store import Store
from manyheads.train.flops import training_flops

MATMUL_WIDTH = {
    "cpu": 1024,
    "cuda": 8192,
}  # width of the square matrices that the device's rate is measured with
MIN_SECONDS = 0.3  # seconds


def compute_flops_per_token(model: ModelConfig, store: Store) -> float:
    """Of training, a token of either side, on average over the training pairs."""
    split = store.load_split("train")
    sources, targets = (side.lengths.astype(np.int64) for side in (split.source, split.target))
    return training_flops(model, sources, targets) / int(sources.sum() + targets.sum())


def measure_matmul_rate(device: str, threads: int) -> float:
    """Operations a second of a large matrix product: float32 on a CPU, bfloat16 on a GPU, as training uses.

    The paper multiplies a training's time by such a number for each GPU.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return time_largest_matmul(device)
    finally:
        torch.set_num_threads(before)


def time_largest_matmul(device: str) -> float:
    width = MATMUL_WIDTH[device]
    left = torch.ones(width, width, device=device, dtype=torch.bfloat16 if device == "cuda" else None)
    time_matmuls(left, 1)  # the first one also sets things up
    times = 1
    while (seconds := time_matmuls(left, times)) < MIN_SECONDS:
        times *= 2
    return 2 * width**3 * times / seconds


def time_matmuls(left: torch.Tensor, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        product = left @ left
    product[0, 0].item()  # waits for a GPU
    return time.perf_counter() - began
