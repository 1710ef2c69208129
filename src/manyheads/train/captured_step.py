"""Updates on a GPU as captured graphs, which run at the GPU's speed and not at Python's.

A graph is a recording: its shapes and addresses are fixed. So a batch is filled up with tokens that do not
count to one of a few sizes, and each size has a graph of its own; the gradients of all parameters lie in one
row, which graphs add to, ranks sum up and the optimizer reads.

Shapes: S source and T target tokens of a size, N = max(S, T) sentences that it has room for.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, distributed, nn

from manyheads.config import Config, TrainConfig, TransformerConfig
from manyheads.cuda.graphs import capture
from manyheads.cuda.static_batch import (
    FILLER_LENGTH,
    StaticBatchShape,
    pack_static_batch,
    unpack_static_batch,
)
from manyheads.data.batches import Batch
from manyheads.ops import dispatch
from manyheads.ops.cross_entropy import IGNORE_INDEX
from manyheads.ops.linear import Linear
from manyheads.packed import round_up
from manyheads.train.distributed import DistributedContext
from manyheads.train.optimizer import Optimizer
from manyheads.train.step import StepInput, StepResult

GRADIENT_ALIGNMENT = 64  # numbers: a parameter's gradient begins at a multiple of it


def can_capture(config: Config, device: torch.device) -> bool:
    """Whether every part of a step has a kernel whose shapes do not depend on the sentences."""
    model, train = config.model, config.train
    if not isinstance(model, TransformerConfig):
        return False
    head_dim = max(model.head_dim_k, model.head_dim_v)
    return (
        model.experts is None
        and (train.cuda_graphs and not train.compile and train.precision != "float32")
        and dispatch.has_static_attention(device, torch.bfloat16, head_dim, config.data.max_length)
        and (model.attention != "additive" and model.attention_dropout == 0)
        and (model.normalization == "layer" and train.optimizer != "muon")
    )


class CapturedStep:
    """The update step as CUDA graphs: one for the gradient of each batch shape, one for the optimizer."""

    is_async = True

    def __init__(
        self,
        objective: nn.Module,
        optimizer: Optimizer,
        train: TrainConfig,
        world: DistributedContext,
        *,
        full_tokens: int,
        max_length: int,
    ) -> None:
        self.objective, self.optimizer, self.train, self.dist = objective, optimizer, train, world
        self.full_tokens, self.max_length = (
            full_tokens,
            max_length,
        )  # tokens of a full batch's side, and of a sentence
        self.flat_gradient = FlatGradient(objective)
        self.bf16_weights = BFloat16Weights(objective, self.flat_gradient)
        self.loss_scale = torch.ones((), device=world.device)
        pool = torch.cuda.graph_pool_handle()
        self.gradient_graphs: GraphRunner[StaticBatchShape] = GraphRunner(
            self._forward_backward, world.device, pool
        )
        self.update_graph: GraphRunner[None] = GraphRunner(self._clip_and_step, world.device, pool)
        self.no_input = torch.empty(0)

    def run(self, inputs: StepInput) -> StepResult:
        """Update the weights; without a finite loss and gradient nothing changes."""
        self.zero_grad()
        for batch, seed in zip(inputs.micro_batches, inputs.dropout_seeds, strict=True):
            self.accumulate(batch, 1 / inputs.target_tokens, seed)
        return self.apply_update(inputs.learning_rate)

    def zero_grad(self) -> None:
        """Reset the gradient, and the sums of the loss and the negative log-likelihood."""
        self.flat_gradient.buffer.zero_()

    def accumulate(self, part: Batch, scale: float, seed: int) -> None:
        """The gradient of `scale` times the part's loss, on top of what there is; the seed is dropout's."""
        shape = StaticBatchShape.for_tokens(
            len(part.source.tokens), len(part.labels.tokens), self.full_tokens
        )
        row = pack_static_batch(
            part.source,
            part.inputs,
            part.labels,
            shape,
            filler_length=min(FILLER_LENGTH, self.max_length),
            ignore_index=IGNORE_INDEX,
        )
        self.loss_scale.fill_(scale)
        self.gradient_graphs.run(shape, row, seed)

    def apply_update(self, rate: float) -> StepResult:
        """The optimizer's step; without a finite gradient nothing changes."""
        if self.dist.world_size > 1:
            distributed.all_reduce(self.flat_gradient.buffer)
        self.optimizer.set_learning_rate(rate)
        return StepResult.from_tensor(self.update_graph.run(None, self.no_input, 0))

    def _forward_backward(self, size: StaticBatchShape, numbers: Tensor) -> Tensor:
        source, inputs, labels = unpack_static_batch(numbers, size, self.max_length)
        with torch.autocast("cuda", torch.bfloat16):
            total, nll = self.bf16_weights.forward(source, inputs, labels)
        self.bf16_weights.backward(total * self.loss_scale)
        self.flat_gradient.loss += total.detach()
        self.flat_gradient.nll += nll
        return self.flat_gradient.loss

    def _clip_and_step(self, _: None, __: Tensor) -> Tensor:
        """[norm of the gradient, loss, negative log-likelihood]"""
        gradient = self.flat_gradient
        norm = torch.linalg.vector_norm(gradient.gradients)
        if self.train.clip_norm is not None:
            gradient.gradients.mul_((self.train.clip_norm / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(skip=~(norm + gradient.loss).isfinite())
        return torch.stack((norm, gradient.loss, gradient.nll))


class FlatGradient:
    """The gradients of all parameters in one row, and behind them the sums of the loss and of -log p.

    First come those of products, whose weights are rounded for each step, all of them at once.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {one: name for name, one in module.named_parameters()}
        linear = [one for one in module.modules() if isinstance(one, Linear)]
        self.linear_parameters = {names[one]: one for layer in linear for one in layer.parameters()}
        self.other_parameters = {
            name: one for one, name in names.items() if name not in self.linear_parameters
        }
        size, rest = (
            aligned_size(self.linear_parameters.values()),
            aligned_size(self.other_parameters.values()),
        )
        self.buffer = torch.zeros(size + rest + 2, device=next(iter(names)).device)
        self.gradients, self.linear_gradients = self.buffer[:-2], self.buffer[:size]
        self.loss, self.nll = self.buffer[-2], self.buffer[-1]
        for tensors, row in (
            (self.linear_parameters, self.linear_gradients),
            (self.other_parameters, self.buffer[size:]),
        ):
            for parameter, room in zip(
                tensors.values(), split_into_views(row, tensors.values()), strict=True
            ):
                parameter.grad = room


class BFloat16Weights:
    """The weights of products in bfloat16: as autocast rounds them, but in one piece, and back in one."""

    def __init__(self, module: nn.Module, gradient: FlatGradient) -> None:
        self.module, self.gradient = module, gradient
        products = gradient.linear_parameters.values()
        self.master_weights = torch.empty_like(gradient.linear_gradients)
        self.bf16_weights, self.bf16_gradients = (
            torch.zeros_like(self.master_weights, dtype=torch.bfloat16) for _ in range(2)
        )
        for parameter, room in zip(products, split_into_views(self.master_weights, products), strict=True):
            parameter.data = room.copy_(parameter.data)
        self.weight_views = [room.requires_grad_() for room in split_into_views(self.bf16_weights, products)]
        self.gradient_views = split_into_views(self.bf16_gradients, products)

    def forward(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            self.bf16_weights.copy_(self.master_weights)
        rounded = dict(zip(self.gradient.linear_parameters, self.weight_views, strict=True))
        total, nll = torch.func.functional_call(self.module, rounded, inputs)
        return total, nll

    def backward(self, loss: Tensor) -> None:
        others = list(self.gradient.other_parameters.values())
        found = list(torch.autograd.grad(loss, [*self.weight_views, *others]))
        torch._foreach_copy_(self.gradient_views, found[: len(self.gradient_views)])
        self.gradient.linear_gradients.add_(self.bf16_gradients)
        torch._foreach_add_(
            [one.grad for one in others if one.grad is not None], found[len(self.gradient_views) :]
        )


def aligned_size(tensors: Iterable[Tensor]) -> int:
    """Of a row that holds them all, each beginning at an aligned place."""
    return sum(round_up(one.numel(), GRADIENT_ALIGNMENT) for one in tensors)


def split_into_views(row: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """The places of these tensors in a row, in their shapes."""
    rooms, start = [], 0
    for one in tensors:
        rooms.append(row[start : start + one.numel()].view_as(one).detach())
        start += aligned_size([one])
    return rooms


Key = TypeVar("Key", bound=Hashable)


class GraphRunner(Generic[Key]):
    """Does a piece of work as it is the first time, so that all is compiled, and from then on as a graph."""

    def __init__(self, work: Callable[[Key, Tensor], Tensor], device: torch.device, pool: Any) -> None:
        self.function, self.device, self.pool = work, device, pool
        self.warmed_up: set[Key] = set()
        self.graphs: dict[Key, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def run(self, key: Key, given: Tensor, seed: int) -> Tensor:
        """The work with this key on what is given, which lies in page-locked memory."""
        if key not in self.warmed_up:
            self.warmed_up.add(key)
            torch.cuda.manual_seed(seed)
            return self.function(key, given.to(self.device, non_blocking=True))
        if key not in self.graphs:
            self.graphs[key] = self._capture(key, given)
        graph, room, result = self.graphs[key]
        room.copy_(given, non_blocking=True)
        torch.cuda.manual_seed(seed)
        graph.replay()
        return result

    def _capture(self, key: Key, given: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        room = torch.empty_like(given, device=self.device)
        graph, result = capture(lambda: self.function(key, room), self.pool)
        return graph, room, result
