"""What training costs in arithmetic: counted operation by operation, and as the paper estimates it (6.1)."""

import math
import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from manyheads.config import Config
from manyheads.data.batches import Batches
from manyheads.data.store import Store

BACKWARD_TOO = 3  # the gradients of inputs and of weights cost as much as the forward pass each
COUNTED_BATCHES = 8  # spread over the lengths that the data have
COUNTED_TOKENS = 1000  # of a side of each
PRODUCT = {"cpu": 1024, "cuda": 8192}  # width of the square matrices that the device's rate is measured with
LONG_ENOUGH = 0.3  # seconds


def flops_a_token(model: nn.Module, config: Config, store: Store) -> float:
    """Of training, a token of either side: matrix products and convolutions as PyTorch counts them.

    A CPU computes the forward pass of real batches; masked scores are computed there, so they count.
    """
    from torch.utils.flop_counter import FlopCounterMode

    data = replace(config.data, batch_tokens=max(COUNTED_TOKENS, config.data.longest))
    batches = Batches(store.split("train"), data, seed=config.train.seed)
    every = max(1, batches.count(0) // COUNTED_BATCHES)
    plain: Any = model.cpu().eval()
    tokens = 0
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=FUSED) as counter:
        for index in range(0, every * COUNTED_BATCHES, every)[: batches.count(0)]:
            batch = batches.batch(0, index)
            plain(batch.source, batch.inputs)
            tokens += len(batch.source.tokens) + len(batch.labels.tokens)
    return float(BACKWARD_TOO * counter.get_total_flops() / tokens)


def fused_attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """The two products inside the CPU's fused attention, which PyTorch's counter does not know."""
    from torch.utils.flop_counter import sdpa_flop_count

    return int(sdpa_flop_count(query, key, value))


def fused_recurrence(x_shape: Any, w_x_shape: Any, w_h_shape: Any, *_: Any, **__: Any) -> int:
    """A layer of LSTM cells by the CPU's own kernel: each token meets both matrices."""
    return int(2 * x_shape[0] * x_shape[1] * (math.prod(w_x_shape) + math.prod(w_h_shape)))


FUSED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_attention,
    torch.ops.aten.mkldnn_rnn_layer: fused_recurrence,
}


def sustained_rate(device: str, threads: int) -> float:
    """Operations a second of a large matrix product: float32 on a CPU, bfloat16 on a GPU, as training uses.

    The paper multiplies a training's time by such a number for each GPU.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return measured_rate(device)
    finally:
        torch.set_num_threads(before)


def measured_rate(device: str) -> float:
    width = PRODUCT[device]
    left = torch.ones(width, width, device=device, dtype=torch.bfloat16 if device == "cuda" else None)
    timed(left, 1)  # the first one also sets things up
    times = 1
    while (seconds := timed(left, times)) < LONG_ENOUGH:
        times *= 2
    return 2 * width**3 * times / seconds


def timed(left: torch.Tensor, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        product = left @ left
    product[0, 0].item()  # waits for a GPU
    return time.perf_counter() - began
