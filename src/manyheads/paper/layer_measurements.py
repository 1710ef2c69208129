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

from manyheads.paper.layer_types import LayerType, Size, Work

AT_LEAST = 0.01  # seconds that a work is repeated for in each round
PATH_WIDTH = 4  # of the vectors that hops are counted with

Key = TypeVar("Key", bound=Hashable)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log(value) over log(size) by least squares: 2 where doubling makes four times as much."""
    slope: float = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slope)


@contextmanager
def measured_on(device: str) -> Iterator[None]:
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


def seconds_of(
    works: Mapping[Key, Work], device: str, rounds: int, tell: Callable[[int], None] = lambda done: None
) -> dict[Key, float]:
    """The least of several rounds, in each of which every work has its turn: a slow while slows them all."""
    best = dict.fromkeys(works, math.inf)
    for work in works.values():
        work.run()
    for done in range(rounds):
        for key, work in works.items():
            spent = 0.0
            while spent < AT_LEAST:
                seconds = seconds_of_one(work, device)
                best[key], spent = min(best[key], seconds), spent + seconds
        tell(done + 1)
    return best


def seconds_of_one(work: Work, device: str) -> float:
    """On a CPU those in which our thread ran, which others on the machine hardly change; on a GPU all."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    wait(device)
    began = clock()
    work.run()
    wait(device)
    return clock() - began


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# ---- bytes


def bytes_of(work: Work, device: str) -> int:
    """The most that was held at once beyond the inputs and weights, the output included."""
    work.run()  # what is only made once is there by now
    if device == "cuda":
        wait(device)
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


def flops_at(make: Callable[[Size], Work], size: Size) -> int:
    """Of the operations that a CPU would execute; they depend on shapes alone, so nothing is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with measured_on("cpu"), FakeTensorMode(allow_non_fake_inputs=True):
        return flops_of(make(size))


def flops_of(work: Work) -> int:
    """Two for each multiplication with its addition in a product, as torch counts; no softmax."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # which torch's own list lacks
    with FlopCounterMode(display=False, custom_mapping={on_cpu: attention}) as counter:
        work.run()
    return int(counter.get_total_flops())


# ---- operations one after another


class Depths(TorchDispatchMode):
    """Of every tensor that depends on the inputs, how many operations lie one after another before it.

    A view is none. Tensors are known by their memory, and kept, so that nobody else gets it.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept = list(inputs)
        self.depths = {memory_of(one): 0 for one in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [self.depths.get(memory_of(one)) for one in tensors_in((args, kwargs))]
        depths = [depth for depth in given if depth is not None]
        changes = func._schema.is_mutable
        before = {memory_of(one) for one in tensors_in((args, kwargs))}
        for one in tensors_in(result):
            if depths and (changes or memory_of(one) not in before):
                self.kept.append(one)
                self.depths[memory_of(one)] = max(depths) + 1
        return result

    def of(self, tensor: Tensor) -> int:
        return self.depths[memory_of(tensor)]


def memory_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def tensors_in(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


def depth_of(work: Work) -> int:
    """The longest chain of operations from the inputs to the output, as they were executed."""
    depths = Depths(work.inputs)
    with depths:
        out = work.run()
    return depths.of(out)


# ---- hops between positions


def hops_to_the_end(layer: LayerType, n: int, k: int) -> int:
    """How many hops until the last position's output has a gradient from the first position's input."""
    few, many = 0, 1
    while not reached(layer, n, k, many):
        assert many < 2 * n, f"{layer.name}: no path over {n} positions"
        few, many = many, many * 2
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if reached(layer, n, k, middle) else (middle, many)
    return many


def reached(layer: LayerType, n: int, k: int, hops: int) -> bool:
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64)
    gradient_BND = gradients(layer, inputs_BND, k, hops, lambda out_BND: out_BND[:, -1])
    return bool((gradient_BND[0, 0] != 0).any())


def pairs_reached(layer: LayerType, n: int, k: int, hops: int) -> Tensor:
    """Which output positions i have a gradient from which input positions j. [N, N]

    Sentence i of as many alike is asked for its i-th output.
    """
    inputs_BND = torch.randn(1, n, PATH_WIDTH, dtype=torch.float64).repeat(n, 1, 1)
    gradient_BND = gradients(layer, inputs_BND, k, hops, lambda out: out[torch.arange(n), torch.arange(n)])
    return (gradient_BND != 0).any(-1)


def gradients(
    layer: LayerType, inputs_BND: Tensor, k: int, hops: int, asked: Callable[[Tensor], Tensor]
) -> Tensor:
    """Of a random sum of what is asked of the output, by each input."""
    inputs_BND.requires_grad_()
    state_BND = layer.begin(inputs_BND)
    for number in range(hops):
        state_BND = layer.hop(state_BND, inputs_BND, number, k)
    wanted = asked(state_BND)
    (found,) = torch.autograd.grad((wanted * torch.rand_like(wanted)).sum(), inputs_BND)
    return found
