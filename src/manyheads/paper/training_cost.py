"""Training cost in FLOPs: counted by formula, and estimated from time as in the paper (6.1)."""

import time

import numpy as np
import torch

from manyheads.config import ModelConfig
from manyheads.data.store import Store
from manyheads.train.flops import training_flops

MATMUL_WIDTH = {
    "cpu": 1024,
    "cuda": 8192,
}  # width of the square matrices
MIN_SECONDS = 0.3  # seconds


def compute_flops_per_token(model: ModelConfig, store: Store) -> float:
    """Return the training FLOPs per source or target token, averaged over the training pairs."""
    split = store.load_split("train")
    sources, targets = (side.lengths.astype(np.int64) for side in (split.source, split.target))
    return training_flops(model, sources, targets) / int(sources.sum() + targets.sum())


def measure_matmul_rate(device: str, threads: int) -> float:
    """Return the FLOP/s of a large matrix product: float32 on a CPU, bfloat16 on a GPU, as in training.

    The paper multiplies training time by such a rate for each GPU.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measure_rate(device)
    finally:
        torch.set_num_threads(before)


def _measure_rate(device: str) -> float:
    width = MATMUL_WIDTH[device]
    left = torch.ones(width, width, device=device, dtype=torch.bfloat16 if device == "cuda" else None)
    time_matmuls(left, 1)  # warm-up
    repeats = 1
    while (seconds := time_matmuls(left, repeats)) < MIN_SECONDS:
        repeats *= 2
    return 2 * width**3 * repeats / seconds


def time_matmuls(left: torch.Tensor, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        product = left @ left
    product[0, 0].item()  # waits for the GPU
    return time.perf_counter() - start
