"""Splitting a projection into parts, without a copy in the backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops import dispatch


def split(x_TW: Tensor, widths: list[int]) -> tuple[Tensor, ...]:
    """Split the last dimension as torch.split does; adjacent gradients become one tensor without a copy."""
    if dispatch.is_compiling():
        return torch.split(x_TW, widths, -1)
    parts: tuple[Tensor, ...] = _Split.apply(x_TW, widths)
    return parts


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, widths: list[int]) -> tuple[Tensor, ...]:
        ctx.widths = widths
        return torch.split(x, widths, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        first, size = gradients[0], gradients[0].element_size()
        strides = (sum(ctx.widths), 1)
        addresses = [first.data_ptr() + size * sum(ctx.widths[:index]) for index in range(len(ctx.widths))]
        adjacent = addresses == [gradient.data_ptr() for gradient in gradients]
        if adjacent and all(gradient.stride() == strides for gradient in gradients):
            return first.as_strided((len(first), strides[0]), strides), None
        return torch.cat(gradients, -1), None
