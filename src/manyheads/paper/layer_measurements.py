"""Measurements of Table 1: seconds, bytes, FLOPs, sequential operations, path lengths between positions.

Shapes: B sentences, N positions, D width.
"""

import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from manyheads.paper.layer_types import LayerCall, LayerSize, LayerType

MIN_SECONDS = 0.01  # of repetitions in each round
PATH_WIDTH = 4  # of the vectors in path-length measurements

Key = TypeVar("Key", bound=Hashable)


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the least-squares slope of log(value) over log(size): 2 if doubling quadruples the value."""
    slope: float = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slope)


@contextmanager
def measurement_context(device: str) -> Iterator[None]:
    """Use one CPU thread in float32, or a GPU in bfloat16, without gradients."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    try:
        with torch.device(device), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


# ---- seconds


def measure_seconds(
    calls: Mapping[Key, LayerCall],
    device: str,
    rounds: int,
    report_round: Callable[[int], None] = lambda done: None,
) -> dict[Key, float]:
    """Return the minimum over rounds. Every call runs once per round, so that slow periods affect all."""
    best = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call.run()
    for done in range(rounds):
        for key, call in calls.items():
            spent = 0.0
            while spent < MIN_SECONDS:
                seconds = time_once(call, device)
                best[key], spent = min(best[key], seconds), spent + seconds
        report_round(done + 1)
    return best


def time_once(call: LayerCall, device: str) -> float:
    """Time one call: thread time on a CPU, which other processes hardly affect; wall time on a GPU."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    synchronize(device)
    start = clock()
    call.run()
    synchronize(device)
    return clock() - start


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# ---- bytes


def measure_peak_bytes(call: LayerCall, device: str) -> int:
    """Return the peak memory beyond inputs and weights, including the output."""
    call.run()  # warm-up: one-time allocations
    if device == "cuda":
        synchronize(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call.run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before its first use, to silence its logging
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        call.run()
    events: list[Any] = profile.kineto_results.events()
    allocations = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return int(np.cumsum([0, *(size for _, size in allocations)]).max())


# ---- FLOPs


def count_flops_at(make: Callable[[LayerSize], LayerCall], size: LayerSize) -> int:
    """Count the FLOPs of a call on a CPU from shapes alone, with fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with measurement_context("cpu"), FakeTensorMode(allow_non_fake_inputs=True):
        return count_flops(make(size))


def count_flops(call: LayerCall) -> int:
    """Count FLOPs as torch does: two per multiply-add of a matrix product, nothing for softmax."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # missing from torch's own list
    with FlopCounterMode(display=False, custom_mapping={on_cpu: attention}) as counter:
        call.run()
    return int(counter.get_total_flops())


# ---- sequential operations


class DepthTracker(TorchDispatchMode):
    """Track how many sequential operations precede each tensor that depends on the inputs.

    Views do not count. Tensors are identified by their storage, and kept alive so that it is not reused.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = list(inputs)
        self.depths = {storage_id(tensor): 0 for tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        input_depths = [self.depths.get(storage_id(tensor)) for tensor in list_tensors((args, kwargs))]
        depths = [depth for depth in input_depths if depth is not None]
        changes = func._schema.is_mutable
        before = {storage_id(tensor) for tensor in list_tensors((args, kwargs))}
        for tensor in list_tensors(result):
            if depths and (changes or storage_id(tensor) not in before):
                self.kept.append(tensor)
                self.depths[storage_id(tensor)] = max(depths) + 1
        return result

    def depth_of(self, tensor: Tensor) -> int:
        return self.depths[storage_id(tensor)]


def storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def list_tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def measure_depth(call: LayerCall) -> int:
    """Return the longest chain of executed operations from the inputs to the output."""
    depths = DepthTracker(call.inputs)
    with depths:
        out = call.run()
    return depths.depth_of(out)


# ---- path length between positions


def count_hops(layer: LayerType, n: int, k: int) -> int:
    """Count the hops until the last output has a gradient with respect to the first input."""
    low, high = 0, 1
    while not is_reached(layer, n, k, high):
        assert high < 2 * n, f"{layer.name}: no path over {n} positions"
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_reached(layer, n, k, middle) else (middle, high)
    return high


def is_reached(layer: LayerType, n: int, k: int, hops: int) -> bool:
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64)
    gradient_BND = compute_gradients(layer, inputs_BND, k, hops, lambda out_BND: out_BND[:, -1])
    return bool((gradient_BND[0, 0] != 0).any())


def find_reached_pairs(layer: LayerType, n: int, k: int, hops: int) -> Tensor:
    """Return which outputs i have a gradient with respect to which inputs j. [N, N]

    Of n equal sentences, sentence i contributes its i-th output.
    """
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64).repeat(n, 1, 1)
    gradient_BND = compute_gradients(
        layer, inputs_BND, k, hops, lambda out: out[torch.arange(n), torch.arange(n)]
    )
    return (gradient_BND != 0).any(-1)


def compute_gradients(
    layer: LayerType, inputs_BND: Tensor, k: int, hops: int, select: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the gradient of a random sum of selected outputs with respect to the inputs."""
    inputs_BND.requires_grad_()
    state_BND = layer.initial_state(inputs_BND)
    for index in range(hops):
        state_BND = layer.apply_hop(state_BND, inputs_BND, index, k)
    selected = select(state_BND)
    (gradient_BND,) = torch.autograd.grad((selected * torch.rand_like(selected)).sum(), inputs_BND)
    return gradient_BND
