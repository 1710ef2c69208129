"""The instruments of Table 1: seconds, bytes, FLOPs, operations one after another, hops between positions.

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

MIN_SECONDS = 0.01  # seconds that a work is repeated for in each round
PATH_WIDTH = 4  # of the vectors that hops are counted with

Key = TypeVar("Key", bound=Hashable)


def fit_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log(value) over log(size) by least squares: 2 where doubling makes four times as much."""
    slope: float = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slope)


@contextmanager
def measurement_context(device: str) -> Iterator[None]:
    """One thread of a CPU in float32; a GPU in bfloat16. Nothing is kept for a gradient."""
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
    works: Mapping[Key, LayerCall],
    device: str,
    rounds: int,
    report_round: Callable[[int], None] = lambda done: None,
) -> dict[Key, float]:
    """The least of several rounds, in each of which every work has its turn: a slow while slows them all."""
    best = dict.fromkeys(works, math.inf)
    for work in works.values():
        work.run()
    for done in range(rounds):
        for key, work in works.items():
            spent = 0.0
            while spent < MIN_SECONDS:
                seconds = time_once(work, device)
                best[key], spent = min(best[key], seconds), spent + seconds
        report_round(done + 1)
    return best


def time_once(work: LayerCall, device: str) -> float:
    """On a CPU those in which our thread ran, which others on the machine hardly change; on a GPU all."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    synchronize(device)
    began = clock()
    work.run()
    synchronize(device)
    return clock() - began


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# ---- bytes


def measure_peak_bytes(work: LayerCall, device: str) -> int:
    """The most that was held at once beyond the inputs and weights, the output included."""
    work.run()  # what is only made once is there by now
    if device == "cuda":
        synchronize(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work.run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before its first use, else it chats
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        work.run()
    events: list[Any] = profile.kineto_results.events()
    taken = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    return int(np.cumsum([0, *(size for _, size in taken)]).max())


# ---- FLOPs


def count_flops_at(make: Callable[[LayerSize], LayerCall], size: LayerSize) -> int:
    """Of the operations that a CPU would execute; they depend on shapes alone, so nothing is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with measurement_context("cpu"), FakeTensorMode(allow_non_fake_inputs=True):
        return count_flops(make(size))


def count_flops(work: LayerCall) -> int:
    """Two for each multiplication with its addition in a product, as torch counts; no softmax."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # which torch's own list lacks
    with FlopCounterMode(display=False, custom_mapping={on_cpu: attention}) as counter:
        work.run()
    return int(counter.get_total_flops())


# ---- operations one after another


class DepthTracker(TorchDispatchMode):
    """Of every tensor that depends on the inputs, how many operations lie one after another before it.

    A view is none. Tensors are known by their memory, and kept, so that nobody else gets it.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = list(inputs)
        self.depths = {storage_id(one): 0 for one in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [self.depths.get(storage_id(one)) for one in list_tensors((args, kwargs))]
        depths = [depth for depth in given if depth is not None]
        changes = func._schema.is_mutable
        before = {storage_id(one) for one in list_tensors((args, kwargs))}
        for one in list_tensors(result):
            if depths and (changes or storage_id(one) not in before):
                self.kept.append(one)
                self.depths[storage_id(one)] = max(depths) + 1
        return result

    def depth_of(self, tensor: Tensor) -> int:
        return self.depths[storage_id(tensor)]


def storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def list_tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


def measure_depth(work: LayerCall) -> int:
    """The longest chain of operations from the inputs to the output, as they were executed."""
    depths = DepthTracker(work.inputs)
    with depths:
        out = work.run()
    return depths.depth_of(out)


# ---- hops between positions


def count_hops(layer: LayerType, n: int, k: int) -> int:
    """How many hops until the last position's output has a gradient from the first position's input."""
    few, many = 0, 1
    while not is_reached(layer, n, k, many):
        assert many < 2 * n, f"{layer.name}: no path over {n} positions"
        few, many = many, many * 2
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_reached(layer, n, k, middle) else (middle, many)
    return many


def is_reached(layer: LayerType, n: int, k: int, hops: int) -> bool:
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64)
    gradient_BND = compute_gradients(layer, inputs_BND, k, hops, lambda out_BND: out_BND[:, -1])
    return bool((gradient_BND[0, 0] != 0).any())


def find_reached_pairs(layer: LayerType, n: int, k: int, hops: int) -> Tensor:
    """Which output positions i have a gradient from which input positions j. [N, N]

    Sentence i of as many alike is asked for its i-th output.
    """
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64).repeat(n, 1, 1)
    gradient_BND = compute_gradients(
        layer, inputs_BND, k, hops, lambda out: out[torch.arange(n), torch.arange(n)]
    )
    return (gradient_BND != 0).any(-1)


def compute_gradients(
    layer: LayerType, inputs_BND: Tensor, k: int, hops: int, select: Callable[[Tensor], Tensor]
) -> Tensor:
    """Of a random sum of what is asked of the output, by each input."""
    inputs_BND.requires_grad_()
    state_BND = layer.initial_state(inputs_BND)
    for number in range(hops):
        state_BND = layer.apply_hop(state_BND, inputs_BND, number, k)
    wanted = select(state_BND)
    (found,) = torch.autograd.grad((wanted * torch.rand_like(wanted)).sum(), inputs_BND)
    return found
