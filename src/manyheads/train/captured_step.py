"""Updates on a GPU as captured graphs, which run at the GPU's speed and not at Python's.

A graph is a recording: its shapes and addresses are fixed. So a batch is filled up with tokens that do not
count to one of a few sizes, and each size has a graph of its own; the gradients of all parameters lie in one
row, which graphs add to, ranks sum up and the optimizer reads.

Shapes: S source and T target tokens of a size, N = max(S, T) sentences that it has room for.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from manyheads.config import Config, TrainConfig
from manyheads.cuda.graphs import captured
from manyheads.cuda.transfer import Arriving
from manyheads.data.batches import Batch
from manyheads.model.attention import SPANS_LONGEST, SPANS_WIDTH_LIMIT, has_kernel
from manyheads.model.layers import Linear
from manyheads.ops import dispatch as kernels
from manyheads.packed import FILLER, Packed, put_offsets, up, zeros_for_gpu
from manyheads.train.distributed import World
from manyheads.train.optimizer import Optimizer

SIZES = 64  # that a side of a batch may have, from nothing to full
SIZES_BEYOND = 8  # from full to twice as much
GRAIN = 128  # tokens: sizes are multiples of it
ALIGNED = 64  # numbers: a parameter's gradient begins at a multiple of it


def can_capture(config: Config, device: torch.device) -> bool:
    """Whether every part of a step has a kernel whose shapes do not depend on the sentences."""
    model, train = config.model, config.train
    widths = max(model.key_width, model.value_width)
    return (
        (model.kind == "transformer" and model.experts is None)
        and (train.capture and not train.compile and train.precision != "float32")
        and (device.type == "cuda" and kernels.there_is_triton() and has_kernel(device))
        and config.data.longest <= SPANS_LONGEST
        and (model.attention != "additive" and model.attention_dropout == 0 and widths <= SPANS_WIDTH_LIMIT)
        and (model.normalization == "layer" and train.optimizer != "muon")
    )


@dataclass(frozen=True)
class BatchSize:
    """The tokens that a graph is made for, of either side."""

    source: int
    target: int

    @classmethod
    def around(cls, batch: Batch, full: int) -> "BatchSize":
        """The smallest that holds the batch, counted down from full ones, of which there are most.

        Words split anew make batches longer than full, each by a length of its own: few sizes serve these.
        """
        most = up(full, GRAIN)
        below, beyond = (max(GRAIN, up(full // sizes, GRAIN)) for sizes in (SIZES, SIZES_BEYOND))
        lengths = len(batch.source.tokens), len(batch.labels.tokens)
        over = [length - most for length in lengths]
        return cls(*(max(GRAIN, most + up(one, beyond if one > 0 else below)) for one in over))

    @property
    def parts(self) -> list[int]:
        """How many numbers: source, inputs, labels, and the offsets of both sides."""
        sentences = max(self.source, self.target)
        return [self.source, self.target, self.target, sentences + 1, sentences + 1]


class Captured:
    """The gradient of a model and its optimizer's step, for one rank."""

    def __init__(
        self,
        objective: nn.Module,
        optimizer: Optimizer,
        train: TrainConfig,
        world: World,
        *,
        full: int,
        longest: int,
    ) -> None:
        self.objective, self.optimizer, self.train, self.world = objective, optimizer, train, world
        self.full, self.longest = full, longest  # tokens of a full batch's side, and of a sentence
        self.gradient = FlatGradient(objective)
        self.half = HalfWeights(objective, self.gradient)
        self.scale = torch.ones((), device=world.device)
        pool = torch.cuda.graph_pool_handle()
        self.gradients: Recorder[BatchSize] = Recorder(self._add_gradient, world.device, pool)
        self.updates: Recorder[None] = Recorder(self._update, world.device, pool)
        self.nothing = torch.empty(0)

    def begin(self) -> None:
        """Nothing summed up yet."""
        self.gradient.everything.zero_()

    def add(self, part: Batch, scale: float, seed: int) -> None:
        """The gradient of `scale` times the part's loss, on top of what there is; the seed is dropout's."""
        size = BatchSize.around(part, self.full)
        self.scale.fill_(scale)
        self.gradients.run(size, fill_up(part, size, min(FILLER, self.longest)), seed)

    def finish(self, rate: float) -> "Outcome":
        """The optimizer's step; without a finite gradient nothing changes."""
        if self.world.size > 1:
            distributed.all_reduce(self.gradient.everything)
        self.optimizer.set_rate(rate)
        return Outcome.of(self.updates.run(None, self.nothing, 0))

    def _add_gradient(self, size: BatchSize, numbers: Tensor) -> Tensor:
        source, inputs, labels = unpack(numbers, size, self.longest)
        with torch.autocast("cuda", torch.bfloat16):
            total, nll = self.half.call(source, inputs, labels)
        self.half.add_gradient(total * self.scale)
        self.gradient.total += total.detach()
        self.gradient.nll += nll
        return self.gradient.total

    def _update(self, _: None, __: Tensor) -> Tensor:
        """[norm of the gradient, loss, negative log-likelihood]"""
        gradient = self.gradient
        norm = torch.linalg.vector_norm(gradient.of_parameters)
        if self.train.clip is not None:
            gradient.of_parameters.mul_((self.train.clip / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(skip=~(norm + gradient.total).isfinite())
        return torch.stack((norm, gradient.total, gradient.nll))


class FlatGradient:
    """The gradients of all parameters in one row, and behind them the sums of the loss and of -log p.

    First come those of products, whose weights are rounded for each step, all of them at once.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {one: name for name, one in module.named_parameters()}
        linear = [one for one in module.modules() if isinstance(one, Linear)]
        self.products = {names[one]: one for layer in linear for one in layer.parameters()}
        self.others = {name: one for one, name in names.items() if name not in self.products}
        size, rest = length(self.products.values()), length(self.others.values())
        self.everything = torch.zeros(size + rest + 2, device=next(iter(names)).device)
        self.of_parameters, self.of_products = self.everything[:-2], self.everything[:size]
        self.total, self.nll = self.everything[-2], self.everything[-1]
        for tensors, row in ((self.products, self.of_products), (self.others, self.everything[size:])):
            for parameter, room in zip(tensors.values(), cut(row, tensors.values()), strict=True):
                parameter.grad = room


class HalfWeights:
    """The weights of products in bfloat16: as autocast rounds them, but in one piece, and back in one."""

    def __init__(self, module: nn.Module, gradient: FlatGradient) -> None:
        self.module, self.gradient = module, gradient
        products = gradient.products.values()
        self.exact = torch.empty_like(gradient.of_products)
        self.rounded, self.by_rounded = (torch.zeros_like(self.exact, dtype=torch.bfloat16) for _ in range(2))
        for parameter, room in zip(products, cut(self.exact, products), strict=True):
            parameter.data = room.copy_(parameter.data)
        self.leaves = [room.requires_grad_() for room in cut(self.rounded, products)]
        self.rooms = cut(self.by_rounded, products)

    def call(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            self.rounded.copy_(self.exact)
        rounded = dict(zip(self.gradient.products, self.leaves, strict=True))
        total, nll = torch.func.functional_call(self.module, rounded, inputs)
        return total, nll

    def add_gradient(self, loss: Tensor) -> None:
        others = list(self.gradient.others.values())
        found = list(torch.autograd.grad(loss, [*self.leaves, *others]))
        torch._foreach_copy_(self.rooms, found[: len(self.rooms)])
        self.gradient.of_products.add_(self.by_rounded)
        torch._foreach_add_([one.grad for one in others if one.grad is not None], found[len(self.rooms) :])


def length(tensors: Iterable[Tensor]) -> int:
    """Of a row that holds them all, each beginning at an aligned place."""
    return sum(up(one.numel(), ALIGNED) for one in tensors)


def cut(row: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """The places of these tensors in a row, in their shapes."""
    rooms, start = [], 0
    for one in tensors:
        rooms.append(row[start : start + one.numel()].view_as(one).detach())
        start += length([one])
    return rooms


@dataclass(frozen=True)
class Outcome:
    """What an update came to, on its way from the GPU."""

    numbers: Arriving  # [3]: the gradient's norm, the loss, the negative log-likelihood

    @classmethod
    def of(cls, numbers: Tensor) -> "Outcome":
        return cls(Arriving.at_the_host([numbers]))

    def read(self) -> tuple[float, float, float]:
        norm, total, nll = self.numbers.read()[0].tolist()
        return norm, total, nll


Key = TypeVar("Key", bound=Hashable)


class Recorder(Generic[Key]):
    """Does a piece of work as it is the first time, so that all is compiled, and from then on as a graph."""

    def __init__(self, work: Callable[[Key, Tensor], Tensor], device: torch.device, pool: Any) -> None:
        self.work, self.device, self.pool = work, device, pool
        self.done: set[Key] = set()
        self.graphs: dict[Key, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def run(self, key: Key, given: Tensor, seed: int) -> Tensor:
        """The work with this key on what is given, which lies in page-locked memory."""
        if key not in self.done:
            self.done.add(key)
            torch.cuda.manual_seed(seed)
            return self.work(key, given.to(self.device, non_blocking=True))
        if key not in self.graphs:
            self.graphs[key] = self._record(key, given)
        graph, room, result = self.graphs[key]
        room.copy_(given, non_blocking=True)
        torch.cuda.manual_seed(seed)
        graph.replay()
        return result

    def _record(self, key: Key, given: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        room = torch.empty_like(given, device=self.device)
        graph, result = captured(lambda: self.work(key, room), self.pool)
        return graph, room, result


# ---- batches of a fixed size


def fill_up(batch: Batch, size: BatchSize, filler: int) -> Tensor:
    """Source, inputs, labels and both offsets in a row, filled up by sentences of at most `filler` tokens."""
    lacking = [size.source - len(batch.source.tokens), size.target - len(batch.labels.tokens)]
    fillers = -(-max(lacking) // filler)
    row = zeros_for_gpu(sum(size.parts))
    source, inputs, labels, *offsets = np.split(row.numpy(), np.cumsum(size.parts)[:-1])
    labels.fill(kernels.IGNORED)
    for room, side in zip((source, inputs, labels), (batch.source, batch.inputs, batch.labels), strict=True):
        room[: len(side.tokens)] = side.tokens.numpy()
    for room, side, lack in zip(offsets, (batch.source, batch.labels), lacking, strict=True):
        put_offsets(room, side.offsets.numpy(), np.minimum(filler * np.arange(1, fillers + 1), lack))
    return row


def unpack(row: Tensor, size: BatchSize, longest: int) -> tuple[Packed, Packed, Tensor]:
    """The source, the decoder's input and the labels."""
    source, inputs, labels, source_offsets, target_offsets = row.split(size.parts)
    return (
        Packed(source, source_offsets.int(), longest),
        Packed(inputs, target_offsets.int(), longest),
        labels,
    )
