"""The update step as CUDA graphs: the same as EagerStep, without the time that Python takes between kernels.

The shapes and addresses of a graph are fixed. So a batch is padded to one of a few static shapes with tokens
that the loss ignores, and each shape has a graph of its own. The gradients of all parameters are in one
buffer, which the graph of an update's first micro-batch writes, to which those of the others add, which ranks
sum up and the optimizer reads.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from manyheads.ops import dispatch, dropout_seeds
from manyheads.ops.cross_entropy import IGNORE_INDEX
from manyheads.ops.linear import Linear
from manyheads.packed import round_up
from manyheads.train.distributed import DistributedContext
from manyheads.train.optimizer import Optimizer
from manyheads.train.step import StepInput, StepResult
from manyheads.train.trained_weights import ModelWeights

GRADIENT_ALIGNMENT = 64  # each gradient starts at a multiple of so many numbers


def can_capture(config: Config, device: torch.device) -> bool:
    """Whether every operation of a step has a kernel whose shapes do not depend on the sentences."""
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


@dataclass(frozen=True)
class MicroBatchGraph:
    """What a graph of the gradient is captured for."""

    shape: StaticBatchShape
    is_first: bool  # of the micro-batches of an update: it writes the gradient, the others add to it


class CapturedStep:
    """The update step as CUDA graphs: one for the gradient of each batch shape, one for the optimizer."""

    is_async = True

    def __init__(
        self,
        objective: nn.Module,
        optimizer: Optimizer,
        train: TrainConfig,
        dist: DistributedContext,
        *,
        full_tokens: int,
        max_length: int,
    ) -> None:
        self.objective, self.optimizer, self.train, self.dist = objective, optimizer, train, dist
        self.full_tokens = full_tokens  # on a side of a full micro-batch
        self.max_length = max_length  # of a sentence
        self.flat_gradient = FlatGradient(objective)
        self.bf16_weights = BFloat16Weights(objective, self.flat_gradient)
        self.loss_scale = torch.ones((), device=dist.device)
        pool = torch.cuda.graph_pool_handle()
        self.has_gradient = False  # of a micro-batch of the present update
        self.gradient_graphs: GraphRunner[MicroBatchGraph] = GraphRunner(
            self._forward_backward, dist.device, pool
        )
        self.update_graph: GraphRunner[None] = GraphRunner(self._clip_and_step, dist.device, pool)
        self.no_input = torch.empty(0)

    @property
    def compile_seconds(self) -> float:
        """The seconds that compiling kernels and capturing graphs has taken so far."""
        return self.gradient_graphs.compile_seconds + self.update_graph.compile_seconds

    def run(self, inputs: StepInput) -> StepResult:
        """Update the weights; without a finite loss and gradient nothing changes."""
        self.zero_grad()
        for batch, seed in zip(inputs.micro_batches, inputs.dropout_seeds, strict=True):
            self.accumulate(batch, 1 / inputs.target_tokens, seed)
        return self.apply_update(inputs.learning_rate)

    def zero_grad(self) -> None:
        """Reset the gradient, and the sums of the loss and the negative log-likelihood."""
        self.has_gradient = False  # the next micro-batch overwrites it

    def accumulate(self, batch: Batch, scale: float, seed: int) -> None:
        """Add the gradient of `scale` times the loss of a micro-batch; `seed` is that of dropout."""
        shape = StaticBatchShape.for_tokens(
            len(batch.source.tokens), len(batch.labels.tokens), self.full_tokens
        )
        row = pack_static_batch(
            batch.source,
            batch.inputs,
            batch.labels,
            shape,
            filler_length=min(FILLER_LENGTH, self.max_length),
            ignore_index=IGNORE_INDEX,
        )
        self.loss_scale.fill_(scale)
        self.gradient_graphs.run(MicroBatchGraph(shape, not self.has_gradient), row, seed)
        self.has_gradient = True

    def apply_update(self, learning_rate: float) -> StepResult:
        """Sum the gradient over ranks, clip it and run the optimizer."""
        if not self.has_gradient:  # a rank without a micro-batch
            self.flat_gradient.buffer.zero_()
        if self.dist.world_size > 1:
            distributed.all_reduce(self.flat_gradient.buffer)
        self.optimizer.set_learning_rate(learning_rate)
        return StepResult.from_tensor(self.update_graph.run(None, self.no_input, 0))

    def _forward_backward(self, graph: MicroBatchGraph, row: Tensor) -> Tensor:
        source, inputs, labels = unpack_static_batch(row, graph.shape, self.max_length)
        if graph.is_first:
            self.bf16_weights.update()
        with torch.autocast(self.dist.device.type, torch.bfloat16), dropout_seeds.drawing_together():
            loss, nll = self.bf16_weights.forward(source, inputs, labels, self.loss_scale)
        gradients = self.bf16_weights.backward(loss, self.loss_scale)
        sums = torch.stack((loss.detach(), nll))
        if graph.is_first:
            self.flat_gradient.write(gradients, sums)
        else:
            self.flat_gradient.add(gradients, sums)
        return self.flat_gradient.loss

    def _clip_and_step(self, _: None, __: Tensor) -> Tensor:
        """Return the gradient norm, the loss and the negative log-likelihood. [3]"""
        gradient = self.flat_gradient
        self.optimizer.weights.map_gradients()
        gradients = self._trained_gradients()
        norm = total_norm(gradients)
        if self.train.clip_norm is not None:
            factor = (self.train.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, factor.nan_to_num(nan=1.0))  # the gaps between gradients stay zero
        self.optimizer.step(skip=~(norm + gradient.loss).isfinite())
        return torch.stack((norm, gradient.loss, gradient.nll))

    def _trained_gradients(self) -> list[Tensor]:
        """Return the gradients of what is trained: those of all weights as one, where weights are trained."""
        if isinstance(self.optimizer.weights, ModelWeights):
            return [self.flat_gradient.gradients]
        return [parameter.grad for parameter in self.optimizer.parameters if parameter.grad is not None]


class FlatGradient:
    """The gradients of all parameters in one buffer, followed by the sums of loss and log-likelihood.

    Those of linear layers come first: their weights are converted to bfloat16 all at once. Weights are
    followed by biases, so that the projections of an attention are adjacent and can be one product.
    """

    def __init__(self, module: nn.Module) -> None:
        names = {parameter: name for name, parameter in module.named_parameters()}
        layers = [layer for layer in module.modules() if isinstance(layer, Linear)]
        by_layer = [list(layer.parameters()) for layer in layers]
        linear = [parameter for same_role in zip(*by_layer, strict=True) for parameter in same_role]
        self.linear_parameters = {names[parameter]: parameter for parameter in linear}
        self.other_parameters = {
            name: parameter for parameter, name in names.items() if name not in self.linear_parameters
        }
        linear_size = aligned_size(self.linear_parameters.values())
        size = linear_size + aligned_size(self.other_parameters.values())
        self.buffer = torch.zeros(size + 2, device=next(iter(names)).device)
        self.gradients, self.linear_gradients = self.buffer[:-2], self.buffer[:linear_size]
        self.sums, self.loss, self.nll = self.buffer[-2:], self.buffer[-2], self.buffer[-1]
        self.bf16_gradients = torch.zeros_like(self.linear_gradients, dtype=torch.bfloat16)
        linear_shapes, other_shapes = self.linear_parameters.values(), self.other_parameters.values()
        self.bf16_views = split_into_views(self.bf16_gradients, linear_shapes)
        self.linear_views = split_into_views(self.linear_gradients, linear_shapes)
        self.other_views = split_into_views(self.buffer[linear_size:], other_shapes)
        for parameter, view in zip(
            [*linear_shapes, *other_shapes], [*self.linear_views, *self.other_views], strict=True
        ):
            parameter.grad = view

    def write(self, gradients: list[Tensor], sums: Tensor) -> None:
        """Set the gradients, first those of linear layers in bfloat16, and the sums."""
        torch._foreach_copy_(self.linear_views, gradients[: len(self.linear_views)])
        torch._foreach_copy_(self.other_views, gradients[len(self.linear_views) :])
        self.sums.copy_(sums)

    def add(self, gradients: list[Tensor], sums: Tensor) -> None:
        """Add to what `write` has set."""
        torch._foreach_copy_(self.bf16_views, gradients[: len(self.linear_views)])
        self.linear_gradients.add_(self.bf16_gradients)
        torch._foreach_add_(self.other_views, gradients[len(self.linear_views) :])
        self.sums.add_(sums)


class BFloat16Weights:
    """The weights of linear layers in bfloat16, converted in one operation.

    The numbers are those of autocast, which converts each weight by itself.
    """

    def __init__(self, module: nn.Module, gradient: FlatGradient) -> None:
        self.module = module
        self.names = list(gradient.linear_parameters)
        self.others = list(gradient.other_parameters.values())
        parameters = gradient.linear_parameters.values()
        self.master_weights = torch.empty_like(gradient.linear_gradients)
        self.bf16_weights = torch.zeros_like(self.master_weights, dtype=torch.bfloat16)
        master_views = split_into_views(self.master_weights, parameters)
        for parameter, view in zip(parameters, master_views, strict=True):
            parameter.data = view.copy_(parameter.data)
        self.weight_views = split_into_views(self.bf16_weights, parameters)
        for view in self.weight_views:
            view.requires_grad_()

    def update(self) -> None:
        """Convert the weights as they are now."""
        with torch.no_grad():
            self.bf16_weights.copy_(self.master_weights)

    def forward(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        weights = dict(zip(self.names, self.weight_views, strict=True))
        loss, nll = torch.func.functional_call(self.module, weights, inputs)
        return loss, nll

    def backward(self, loss: Tensor, loss_gradient: Tensor) -> list[Tensor]:
        """Return the gradients of linear layers, in bfloat16, and of the other parameters."""
        return list(torch.autograd.grad(loss, [*self.weight_views, *self.others], loss_gradient))


def total_norm(gradients: list[Tensor]) -> Tensor:
    norms: list[Tensor] = [torch.linalg.vector_norm(part) for part in gradients]
    norm: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    return norm


def aligned_size(tensors: Iterable[Tensor]) -> int:
    """Return the size of a buffer for all tensors, each starting at an aligned offset."""
    return sum(round_up(tensor.numel(), GRADIENT_ALIGNMENT) for tensor in tensors)


def split_into_views(buffer: Tensor, tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the parts of a buffer for these tensors, in their shapes."""
    views, start = [], 0
    for tensor in tensors:
        views.append(buffer[start : start + tensor.numel()].view_as(tensor).detach())
        start += aligned_size([tensor])
    return views


Key = TypeVar("Key", bound=Hashable)


class GraphRunner(Generic[Key]):
    """Calls a function eagerly the first time, so that kernels are compiled, and as a CUDA graph after that.

    There is one graph for each key, such as the shape of a batch.
    """

    def __init__(self, function: Callable[[Key, Tensor], Tensor], device: torch.device, pool: Any) -> None:
        self.function, self.device, self.pool = function, device, pool
        self.warmed_up: set[Key] = set()
        self.graphs: dict[Key, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.compile_seconds = 0.0  # of the first call of each key and of captures, on the host

    def run(self, key: Key, inputs: Tensor, seed: int) -> Tensor:
        """Call the function with this key on inputs in pinned memory."""
        if key not in self.warmed_up:
            self.warmed_up.add(key)
            torch.cuda.manual_seed(seed)
            with self._compiling():
                return self.function(key, inputs.to(self.device, non_blocking=True))
        if key not in self.graphs:
            with self._compiling():
                self.graphs[key] = self._capture(key, inputs)
        graph, static_inputs, result = self.graphs[key]
        static_inputs.copy_(inputs, non_blocking=True)
        torch.cuda.manual_seed(seed)
        graph.replay()
        return result

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.compile_seconds += time.monotonic() - start

    def _capture(self, key: Key, inputs: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        static_inputs = torch.empty_like(inputs, device=self.device)
        graph, result = capture(lambda: self.function(key, static_inputs), self.pool)
        return graph, static_inputs, result
