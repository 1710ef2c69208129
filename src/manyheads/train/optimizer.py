"""Adam with the paper's hyperparameters (5.3), AdamW and Muon, with state that checkpoints can store."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from manyheads.config import TrainConfig
from manyheads.errors import CheckpointError
from manyheads.train.trained_weights import ModelWeights, TrainedWeights

STATE_KEYS: dict[type[optim.Optimizer], set[str]] = {
    optim.Adam: {"exp_avg", "exp_avg_sq", "step"},
    optim.AdamW: {"exp_avg", "exp_avg_sq", "step"},
    optim.Muon: {"momentum_buffer"},
}


class Optimizer:
    """One or two torch optimizers over the weights of a model, or over what these are made of."""

    def __init__(self, model: nn.Module, train: TrainConfig, weights: TrainedWeights | None = None) -> None:
        self.model, self.weights = model, weights or ModelWeights(model)
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in self.weights.parameters.items()
        }
        self.optimizers = make_optimizers(model, train, self.parameters)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.weights.parameters.values())

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next step. On a GPU it is a tensor, which a captured step reads."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(learning_rate)
                else:
                    group["lr"] = learning_rate

    def step(self, skip: Tensor | None = None) -> None:
        """Update the weights, unless `skip` is true. Only fused optimizers read a `skip` on the GPU."""
        for optimizer in self.optimizers:
            if skip is not None:
                optimizer.found_inf = skip.float()  # type: ignore[attr-defined]  # as torch's GradScaler does
            optimizer.step()
        self.weights.update_model()

    def zero_grad(self) -> None:
        self.model.zero_grad(set_to_none=True)

    def named_state(self) -> dict[str, Tensor]:
        """Return the state by parameter and key, such as decoder.0.norm.weight/exp_avg."""
        return {
            f"{self.names[parameter]}/{key}": value
            for optimizer in self.optimizers
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
            if isinstance(value, Tensor)
        } | self.weights.named_state()

    def load_named_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """Restore what `named_state` returned; `where` names its file in errors."""
        remaining = dict(state)
        self.weights.load_named_state(remaining, where)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    prefix = f"{self.names[parameter]}/"
                    keys = {key.removeprefix(prefix) for key in remaining if key.startswith(prefix)}
                    needed = STATE_KEYS[type(optimizer)]
                    if keys not in (set(), needed):
                        raise CheckpointError(
                            f"{where}: has {', '.join(sorted(keys))} of {prefix[:-1]}, but "
                            f"{type(optimizer).__name__} needs {', '.join(sorted(needed))}: the "
                            f"optimizer of a run cannot change; start another with train.init_from"
                        )
                    optimizer.state[parameter] = {
                        key: move_to_parameter(remaining.pop(prefix + key), parameter) for key in sorted(keys)
                    }
        if remaining:
            raise CheckpointError(f"{where}: has {sorted(remaining)[0]}, which this model does not")


def move_to_parameter(value: Tensor, parameter: Tensor) -> Tensor:
    """Put moments and step counts on the device of their parameter."""
    return value.to(parameter.device)


def make_optimizers(
    model: nn.Module, train: TrainConfig, parameters: list[nn.Parameter]
) -> list[optim.Optimizer]:
    """Return Adam, AdamW, or Muon for the hidden matrices with AdamW for the rest."""
    on_gpu = parameters[0].is_cuda
    adam: dict[str, Any] = {
        "lr": torch.zeros((), device=parameters[0].device) if on_gpu else 0.0,
        "betas": (train.beta1, train.beta2),
        "eps": train.epsilon,
        "fused": True,
        "capturable": on_gpu,
    }
    if train.optimizer == "adam":
        return [optim.Adam(parameters, **adam)]
    decay = train.weight_decay
    if train.optimizer == "adamw":
        return [optim.AdamW(parameters, weight_decay=decay, **adam)]
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    embeddings.add(model.output.weight)  # type: ignore[union-attr, arg-type]
    hidden: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in parameters:
        is_hidden = parameter.dim() == 2 and parameter not in embeddings
        (hidden if is_hidden else rest).append(parameter)
    return [
        optim.Muon(hidden, lr=0.0, weight_decay=decay),
        optim.AdamW(rest, weight_decay=decay, **adam),
    ]


def clip_grad_norm(parameters: Iterable[nn.Parameter], max_norm: float | None) -> float:
    """Scale the gradient down to `max_norm`, if it is given; return the norm before that."""
    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()
