"""LayerNorm(x + Dropout(MultiHead(x, M, M))) (3.1, 3.2.2), one op for the sake of its gradient.

There the attention sums up the gradients of the biases before it, and the product with the projections adds
the gradient of the residual connection.

Shapes: T tokens of x, S of the memory M, D = d_model, H heads, K = d_k, V = d_v, W numbers of a projection.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops import add_norm_triton, attention_triton
from manyheads.ops.attention_triton import AttentionBounds
from manyheads.ops.dropout_seeds import dropout_seed
from manyheads.ops.stripes_triton import sum_stripes

WeightAndBias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SublayerSpec:
    """The numbers that are no tensors."""

    heads: int
    widths: tuple[int, int]  # H K and H V
    scale: float  # of the scores
    bounds: AttentionBounds
    eps: float  # of the norm
    dropout: float


def attention_add_norm(
    x_TD: Tensor,
    memory_SD: Tensor | None,
    projections: list[WeightAndBias],
    output: WeightAndBias,
    norm: WeightAndBias,
    spec: SublayerSpec,
) -> Tensor:
    """Return LayerNorm(x + Dropout(MultiHead(x, M, M))) in the dtype of x. [T, D]

    Without a memory this is self-attention, and `projections` is that of queries, keys and values together;
    otherwise that of queries, and that of keys and values.
    """
    weights = [tensor.to(x_TD.dtype) for pair in (*projections, output) for tensor in pair]
    seed = dropout_seed(x_TD.device, spec.dropout)
    out = _AttentionAddNorm.apply(x_TD, memory_SD, seed, spec, *norm, *weights)
    assert isinstance(out, Tensor)
    return out


class _AttentionAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        memory: Tensor | None,
        seed: Tensor,
        spec: SublayerSpec,
        norm_weight: Tensor,
        norm_bias: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        *projections, output_weight, output_bias = weights
        inputs = [x] if memory is None else [x, memory]
        projected = [
            torch.addmm(bias, given, weight.T)
            for given, weight, bias in zip(inputs, projections[::2], projections[1::2], strict=True)
        ]
        q, k, v = split_heads(projected, spec)
        heads, log_sums = attention_triton.launch_forward(q, k, v, spec.bounds, spec.scale)
        h = torch.addmm(output_bias, heads.flatten(1), output_weight.T)
        y, *saved = add_norm_triton.launch_forward(x, h, norm_weight, norm_bias, seed, spec.eps, spec.dropout)
        ctx.spec, ctx.input_count = spec, len(inputs)
        ctx.save_for_backward(
            *(*inputs, *projected, *projections[::2]),
            *(heads, log_sums, output_weight, *saved, norm_weight, seed),
        )
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        spec: SublayerSpec = ctx.spec
        count, saved = ctx.input_count, ctx.saved_tensors
        inputs, projected, weights = (saved[count * part : count * (part + 1)] for part in range(3))
        heads, log_sums, output_weight, *norm_saved = saved[3 * count :]
        d_x, d_h, norm_sums = add_norm_triton.launch_backward(d_y, norm_saved, spec.dropout, inputs[0].dtype)
        d_norm_weight, d_norm_bias, d_output_bias = norm_sums
        d_heads, d_output_weight = d_h @ output_weight, d_h.T @ heads.flatten(1)
        d_projected, d_biases = attention_backward(d_heads.view_as(heads), projected, heads, log_sums, spec)
        d_weights = [d.T @ given for d, given in zip(d_projected, inputs, strict=True)]
        return (
            d_x.addmm_(d_projected[0], weights[0]),
            d_projected[1] @ weights[1] if count == 2 else None,
            *(None, None, d_norm_weight, d_norm_bias),
            *(gradient for pair in zip(d_weights, d_biases, strict=True) for gradient in pair),
            *(d_output_weight, d_output_bias),
        )


def attention_backward(
    d_heads: Tensor, projected: tuple[Tensor, ...], heads: Tensor, log_sums: Tensor, spec: SublayerSpec
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the gradients of the projections, and their sums over the tokens."""
    q, k, v = split_heads(projected, spec)
    d_projected = [torch.empty_like(x) for x in projected]
    sums = [
        x.new_empty(attention_triton.count_tiles(q, v, len(x)), x.shape[1], dtype=torch.float32)
        for x in projected
    ]
    attention_triton.launch_backward(
        *(d_heads, (q, k, v), heads, log_sums, spec.bounds, spec.scale),
        gradients=split_heads(d_projected, spec),
        sums=split_heads(sums, spec),
    )
    return d_projected, [sum_stripes(x[None], d_heads.dtype)[0] for x in sums]


def split_heads(projected: list[Tensor] | tuple[Tensor, ...], spec: SublayerSpec) -> tuple[Tensor, ...]:
    """Return the parts of queries, keys and values of one tensor, or of two. [rows, H, K or V] each"""
    width_k, width_v = spec.widths
    widths = [[width_k, width_k, width_v]] if len(projected) == 1 else [[width_k], [width_k, width_v]]
    return tuple(
        part.unflatten(1, (spec.heads, -1))
        for x, parts in zip(projected, widths, strict=True)
        for part in x.split(parts, 1)
    )
