"""The model that a search runs: in bfloat16 on a GPU, or with int8 products on a CPU."""

import copy
from collections.abc import Collection

import torch
from torch import nn

from manyheads.checkpoint.adapters import replace_weights
from manyheads.checkpoint.quantization import quantize_rows
from manyheads.errors import RequestError
from manyheads.model.transformer import Transformer
from manyheads.ops.int8 import Int8Linear, has_int8_products


def to_bfloat16(model: nn.Module) -> nn.Module:
    """Return a copy that multiplies matrices in bfloat16. Norms stay as they are."""
    rounded = copy.deepcopy(model)
    for part in rounded.modules():
        if isinstance(part, Transformer):  # other architectures stay as they are
            for module in part.modules():
                if isinstance(module, nn.Linear | nn.Embedding):
                    module.to(torch.bfloat16)
    return rounded


def to_int8(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy that multiplies matrices in int8, on a CPU: those of an int8 folder as they are."""
    if device.type != "cpu" or not has_int8_products():
        raise RequestError(f"torch:int8 needs a CPU that multiplies int8, but the device is {device}")
    rounded = copy.deepcopy(model)
    for part in rounded.modules():
        if isinstance(part, Transformer) and part.config.experts is None:  # others stay as they are
            for module in part.modules():
                for name, layer in module.named_children():
                    if isinstance(layer, nn.Linear):
                        setattr(module, name, round_linear(layer))
    return rounded


def round_linear(layer: nn.Linear) -> Int8Linear:
    rows, scales = quantize_rows(layer.weight.detach().numpy())
    bias = None if layer.bias is None else layer.bias.detach()
    return Int8Linear(torch.from_numpy(rows), torch.from_numpy(scales), bias)


def replace_search_weights(search_model: nn.Module, model: nn.Module, names: Collection[str]) -> nn.Module:
    """Return a search model with some weights of another model, rounded as its own; it shares all others."""
    weights = dict(model.named_parameters())
    kept = dict(search_model.named_parameters())
    changed = replace_weights(search_model, {name: weights[name] for name in names if name in kept})
    for name in names:
        if name not in kept:  # an int8 layer
            parent, _, child = name.removesuffix(".weight").rpartition(".")
            layer = model.get_submodule(parent).get_submodule(child)
            assert isinstance(layer, nn.Linear)
            setattr(changed.get_submodule(parent), child, round_linear(layer))
    return changed
