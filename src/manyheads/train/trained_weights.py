"""Which numbers the optimizer updates: the weights of the model, some of them, or low-rank adapters.

The model, its kernels and its CUDA graphs always see plain weights W. With adapters (LoRA), the optimizer has
two thin matrices for each linear layer instead. After each update W is set to W_0 + s B A, and after each
backward pass the gradient G of W becomes those of the two matrices:

    dL/dA = s B^T G        dL/dB = s G A^T

Shapes: F numbers out, D in, r = adaptation.rank.
"""

import math
from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from manyheads.config import AdaptationConfig
from manyheads.errors import CheckpointError, ConfigError
from manyheads.ops.linear import Linear

VALUE_KEY = "value"  # of an adapter's matrix in the optimizer's file, beside its moments
EMBEDDINGS = ("source_embedding.", "target_embedding.", "output.", "source_positions.", "target_positions.")


class TrainedWeights(Protocol):
    """What is trained, in terms of the weights of the model."""

    needs_base: bool  # whether a resumed run must read the initial weights again
    parameters: dict[str, nn.Parameter]  # what the optimizer updates, by name

    def set_base(self) -> None:
        """Take the present weights of the model as the initial ones."""
        ...

    def map_gradients(self) -> None:
        """Turn the gradients of the model's weights into those of `parameters`."""
        ...

    def update_model(self) -> None:
        """Set the model's weights after `parameters` have changed."""
        ...

    def named_state(self) -> dict[str, Tensor]:
        """Return what a checkpoint stores beside the model's weights and the moments."""
        ...

    def load_named_state(self, state: dict[str, Tensor], where: str) -> None:
        """Restore what `named_state` returned, and remove it from `state`."""
        ...


def make_trained_weights(model: nn.Module, config: AdaptationConfig) -> TrainedWeights:
    if config.rank is None:
        return ModelWeights(model, config.freeze, config.anchor)
    return LowRankWeights(model, config.rank, config.scale, config.freeze)


def is_frozen(name: str, freeze: tuple[str, ...]) -> bool:
    """Return whether a parameter belongs to a part that stays as it is. Tied matrices are embeddings."""
    if name.startswith(EMBEDDINGS):
        return "embeddings" in freeze
    return any(name.startswith((f"{part}.", f"{part}_")) for part in freeze if part != "embeddings")


class ModelWeights:
    """The weights themselves, without frozen ones, and perhaps pulled toward their initial values (L2-SP)."""

    def __init__(self, model: nn.Module, freeze: tuple[str, ...] = (), anchor: float = 0.0) -> None:
        every = dict(model.named_parameters())
        self.parameters = {name: weight for name, weight in every.items() if not is_frozen(name, freeze)}
        self.frozen = [weight for name, weight in every.items() if name not in self.parameters]
        if not self.parameters:
            raise ConfigError(f"adaptation.freeze is {', '.join(freeze)}: nothing is left to train")
        self.anchor, self.needs_base = anchor, anchor > 0
        self.initial: list[Tensor] = []

    def set_base(self) -> None:
        if self.needs_base:
            self.initial = [weight.detach().clone() for weight in self.parameters.values()]

    @torch.no_grad()
    def map_gradients(self) -> None:
        """Add the gradient of anchor / 2 |W - W_0|^2. Frozen weights have none, and none to clip."""
        for weight in self.frozen:
            if weight.grad is not None:
                weight.grad.zero_()
        if self.needs_base:
            for weight, initial in zip(self.parameters.values(), self.initial, strict=True):
                if weight.grad is not None:
                    weight.grad.add_(weight - initial, alpha=self.anchor)

    def update_model(self) -> None:
        pass

    def named_state(self) -> dict[str, Tensor]:
        return {}

    def load_named_state(self, state: dict[str, Tensor], where: str) -> None:
        pass


class LowRankWeights:
    """Two thin matrices A [r, D] and B [F, r] for the weight W [F, D] of each linear layer."""

    needs_base = True

    def __init__(self, model: nn.Module, rank: int, scale: float, freeze: tuple[str, ...] = ()) -> None:
        self.rank, self.scale = rank, scale
        self.weights = {name: weight for name, weight in find_linear(model) if not is_frozen(name, freeze)}
        if not self.weights:
            raise ConfigError(
                f"adaptation.rank is {rank}, but the model has no linear layers to adapt: set "
                f"adaptation.rank = none, or freeze less"
            )
        self.factors = {name: create_factors(weight, rank) for name, weight in self.weights.items()}
        self.parameters = {
            f"{name}.{letter}": matrix
            for name, pair in self.factors.items()
            for letter, matrix in zip("ab", pair, strict=True)
        }
        self.initial: dict[str, Tensor] = {}

    def set_base(self) -> None:
        self.initial = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def map_gradients(self) -> None:
        """Write the gradients of A and B, which always have the same addresses for a captured step."""
        for name, (a_rD, b_Fr) in self.factors.items():
            gradient_FD = self.weights[name].grad
            assert gradient_FD is not None
            for matrix in (a_rD, b_Fr):
                matrix.grad = torch.empty_like(matrix) if matrix.grad is None else matrix.grad
            torch.mm(b_Fr.T, gradient_FD, out=a_rD.grad).mul_(self.scale)
            torch.mm(gradient_FD, a_rD.T, out=b_Fr.grad).mul_(self.scale)

    @torch.no_grad()
    def update_model(self) -> None:
        for name, (a_rD, b_Fr) in self.factors.items():
            torch.addmm(self.initial[name], b_Fr, a_rD, alpha=self.scale, out=self.weights[name].data)

    def named_state(self) -> dict[str, Tensor]:
        return {f"{name}/{VALUE_KEY}": matrix for name, matrix in self.parameters.items()}

    @torch.no_grad()
    def load_named_state(self, state: dict[str, Tensor], where: str) -> None:
        for name, matrix in self.parameters.items():
            value = state.pop(f"{name}/{VALUE_KEY}", None)
            if value is None or value.shape != matrix.shape:
                raise CheckpointError(
                    f"{where}: has no adapter of rank {self.rank} for {name}: adaptation.rank of a run "
                    f"cannot change; start another"
                )
            matrix.copy_(value)

    def scaled_factors(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return A and s B of each weight, for an adapter file."""
        return {name: (a_rD, self.scale * b_Fr) for name, (a_rD, b_Fr) in self.factors.items()}


def find_linear(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the weights of the linear layers within the model: not those of embeddings and output."""
    return [
        (f"{name}.weight", cast(nn.Parameter, module.weight))
        for name, module in model.named_modules()
        if isinstance(module, Linear)
    ]


def create_factors(weight_FD: Tensor, rank: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return a random A and a B of zeros, so that W does not change at first."""
    outputs, inputs = weight_FD.shape
    a_rD = torch.empty(rank, inputs, device=weight_FD.device).uniform_(-1, 1) / math.sqrt(inputs)
    return nn.Parameter(a_rD), nn.Parameter(torch.zeros(outputs, rank, device=weight_FD.device))


def count_adapter_parameters(weights: Mapping[str, Tensor], rank: int) -> int:
    """Return the numbers in an adapter of this rank for these weights."""
    return sum(rank * sum(weight.shape) for weight in weights.values())
