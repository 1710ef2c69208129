"""Splitting a projection into parts and joining weights into one, without a copy where memory allows it."""

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


def concat(tensors: list[Tensor]) -> Tensor:
    """Concatenate along the first dimension as torch.cat does; tensors adjacent in memory are not copied."""
    if dispatch.is_compiling():
        return torch.cat(tensors)
    whole: Tensor = _Concat.apply(*tensors)
    return whole


class _Concat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.lengths = [len(tensor) for tensor in tensors]
        first, address = tensors[0], tensors[0].data_ptr()
        for tensor in tensors:
            if tensor.data_ptr() != address or not tensor.is_contiguous():
                return torch.cat(tensors)
            address += tensor.numel() * tensor.element_size()
        if address > first.untyped_storage().data_ptr() + first.untyped_storage().nbytes():
            return torch.cat(tensors)  # neighbors by chance, each with memory of its own
        return first.as_strided((sum(ctx.lengths), *first.shape[1:]), first.stride())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = gradient.split(ctx.lengths)
        return parts
