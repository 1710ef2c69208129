"""Adam with the paper's numbers (5.3), AdamW and Muon; their state as named tensors that can be kept."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn, optim

from manyheads.config import TrainConfig
from manyheads.errors import CheckpointError

STATE_KEYS: dict[type[optim.Optimizer], set[str]] = {
    optim.Adam: {"exp_avg", "exp_avg_sq", "step"},
    optim.AdamW: {"exp_avg", "exp_avg_sq", "step"},
    optim.Muon: {"momentum_buffer"},
}


class Optimizer:
    """One or two of torch's, over the parameters of a model by their names."""

    def __init__(self, model: nn.Module, train: TrainConfig) -> None:
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self.optimizers = make_optimizers(model, train)

    def set_learning_rate(self, learning_rate: float) -> None:
        """The learning rate of the next step. On a GPU it is a number there, which a captured step reads."""
        for part in self.optimizers:
            for group in part.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(learning_rate)
                else:
                    group["lr"] = learning_rate

    def step(self, skip: Tensor | None = None) -> None:
        """An update, unless `skip` holds, which only the fused ones can be told on the GPU itself."""
        for part in self.optimizers:
            if skip is not None:
                part.found_inf = skip.float()  # type: ignore[attr-defined]  # as torch's own scaler does it
            part.step()

    def zero_grad(self) -> None:
        for part in self.optimizers:
            part.zero_grad(set_to_none=True)

    def named_state(self) -> dict[str, Tensor]:
        """By parameter and quantity: decoder.0.norm.weight/exp_avg."""
        return {
            f"{self.names[parameter]}/{key}": value
            for part in self.optimizers
            for parameter, kept in part.state.items()
            for key, value in kept.items()
            if isinstance(value, Tensor)
        }

    def load_named_state(self, state: Mapping[str, Tensor], where: str) -> None:
        """What `state` gave, put back."""
        left = dict(state)
        for part in self.optimizers:
            for group in part.param_groups:
                for parameter in group["params"]:
                    prefix = f"{self.names[parameter]}/"
                    own = {key.removeprefix(prefix) for key in left if key.startswith(prefix)}
                    if own not in (set(), STATE_KEYS[type(part)]):
                        raise CheckpointError(
                            f"{where}: keeps {', '.join(sorted(own))} of {prefix[:-1]}, but "
                            f"{type(part).__name__} needs {', '.join(sorted(STATE_KEYS[type(part)]))}: the "
                            f"optimizer of a run cannot change; start another with train.init_from"
                        )
                    kept = {key: move_to_parameter(left.pop(prefix + key), parameter) for key in sorted(own)}
                    part.state[parameter] = kept
        if left:
            raise CheckpointError(f"{where}: holds {sorted(left)[0]}, which this model does not have")


def move_to_parameter(value: Tensor, parameter: Tensor) -> Tensor:
    """Moments lie beside their parameter; a step count is a number of its own."""
    return value.to(parameter.device)


def make_optimizers(model: nn.Module, train: TrainConfig) -> list[optim.Optimizer]:
    parameters = list(model.parameters())
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
    outside = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    outside.add(model.output.weight)  # type: ignore[union-attr, arg-type]
    inside = [one for one in parameters if one.dim() == 2 and one not in outside]
    rest = [one for one in parameters if one.dim() != 2 or one in outside]
    return [
        optim.Muon(inside, lr=0.0, weight_decay=decay),
        optim.AdamW(rest, weight_decay=decay, **adam),
    ]


def clip_grad_norm(model: nn.Module, max_norm: float | None) -> float:
    """The norm of the whole gradient, before it is scaled down to the limit."""
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return norm.item()
