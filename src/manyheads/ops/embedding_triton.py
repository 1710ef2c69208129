"""Dropout(embedding * scale + positional encoding) (3.4, 3.5, 5.4) in one pass, rounded once.

Shapes: T tokens, D = d_model, L positions. A program takes ROWS tokens.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.ops.add_norm_triton import block_shape, dropout_mask
from manyheads.ops.dropout_seeds import dropout_seed

BLOCK_SIZE = 1024  # elements that a program holds at once


def embed_tokens(
    tokens_T: Tensor,
    weight_VD: Tensor,
    positions_T: Tensor,
    encoding_LD: Tensor,
    scale: float,
    dropout: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return Dropout(scale * embedding + encoding) of each token in this dtype. [T, D]"""
    seed = dropout_seed(tokens_T.device, dropout)
    out = _EmbedTokens.apply(weight_VD, tokens_T, positions_T, encoding_LD, seed, scale, dropout, dtype)
    assert isinstance(out, Tensor)
    return out


class _EmbedTokens(torch.autograd.Function):
    """torch sums the gradients of equal tokens; ours are masked and scaled on their way to it."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        tokens: Tensor,
        positions: Tensor,
        encoding: Tensor,
        seed: Tensor,
        scale: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        width = weight.shape[1]
        out = torch.empty(len(tokens), width, dtype=dtype, device=weight.device)
        block, rows, warps = block_shape(width, BLOCK_SIZE)
        embed_forward[(triton.cdiv(len(tokens), rows),)](
            *(tokens, weight, positions, encoding.contiguous(), seed, out, len(tokens), scale, dropout),
            *(width, block, rows, dropout > 0),
            num_warps=warps,
        )
        ctx.save_for_backward(tokens, seed)
        ctx.shape, ctx.scale, ctx.dropout = weight.shape, scale, dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        tokens, seed = ctx.saved_tensors
        vocab_size, width = ctx.shape
        gradient = torch.empty(len(tokens), width, dtype=torch.float32, device=d_out.device)
        block, rows, warps = block_shape(width, BLOCK_SIZE)
        embed_backward[(triton.cdiv(len(tokens), rows),)](
            *(d_out.contiguous(), seed, gradient, len(tokens), ctx.scale, ctx.dropout),
            *(width, block, rows, ctx.dropout > 0),
            num_warps=warps,
        )
        d_weight = torch.ops.aten.embedding_dense_backward(gradient, tokens, vocab_size, -1, False)
        return d_weight, *[None] * 7


@triton.jit
def embed_forward(
    tokens, weight, positions, encoding, seed, out, count, scale, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    token = tl.load(tokens + rows, mask=rows < count, other=0)
    position = tl.load(positions + rows, mask=rows < count, other=0)
    value = tl.load(weight + token[:, None] * D + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    code = tl.load(encoding + position[:, None] * D + columns[None, :], mask=inside, other=0.0)
    value = value * scale + code.to(tl.float32)
    offsets = rows[:, None] * D + columns[None, :]
    if HAS_DROPOUT:
        value = tl.where(dropout_mask(seed, offsets, dropout), value / (1 - dropout), 0.0)
    tl.store(out + offsets, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def embed_backward(
    d_out, seed, gradient, count, scale, dropout,
    D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (rows < count)[:, None] & (columns < D)[None, :]
    offsets = rows[:, None] * D + columns[None, :]
    value = tl.load(d_out + offsets, mask=inside, other=0.0).to(tl.float32) * scale
    if HAS_DROPOUT:
        value = tl.where(dropout_mask(seed, offsets, dropout), value / (1 - dropout), 0.0)
    tl.store(gradient + offsets, value, mask=inside)
