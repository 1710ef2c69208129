"""Convolutions over packed sentences: each token sees k tokens of its own sentence, zeros beyond its ends.

    out_t = b + sum_j W_j x_{t + o_j}        offsets o: dilation * (-k/2 .. k/2), or, causal, (-(k - 1) .. 0)

There is no padding: the row of tokens is shifted by each offset, and values from other sentences are masked.
The shifted rows are concatenated, so a convolution is one matrix product.

Shapes: T tokens, X features in, F out, k the kernel size; R rows of a step,
        P = (k - 1) * dilation past tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.ops.batch_cache import cached_for_batch
from manyheads.packed import Packed


class Convolution(nn.Module):
    """A convolution, optionally with weight normalization: direction and gain are learned apart."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        *,
        dilation: int = 1,
        causal: bool = False,
        weight_norm: bool = False,
        init_variance: float = 1.0,
    ):
        """`init_variance` is the factor by which initial weights scale the variance of the input."""
        super().__init__()
        self.init_variance = init_variance
        self.dilation = dilation
        first = -(kernel_size - 1) if causal else -(kernel_size // 2)
        self.offsets = [(first + index) * dilation for index in range(kernel_size)]
        self.weight_v = nn.Parameter(torch.empty(outputs, kernel_size * inputs))
        self.weight_g = nn.Parameter(torch.empty(outputs)) if weight_norm else None
        self.bias = nn.Parameter(torch.empty(outputs))

    @property
    def weight(self) -> Tensor:
        """[F, k X]; with weight normalization g v / |v| for each output feature."""
        if self.weight_g is None:
            return self.weight_v
        norms: Tensor = self.weight_v.norm(dim=1)
        return self.weight_v * (self.weight_g / norms)[:, None]

    def forward(self, x_TX: Tensor, text: Packed) -> Tensor:
        shifted = [shift_tokens(x_TX, offset, text) for offset in self.offsets]
        return F.linear(torch.cat(shifted, -1), self.weight, self.bias)

    def pointwise(self, x: Tensor) -> Tensor:
        """Apply a convolution of kernel size 1, which needs no sentence boundaries."""
        return F.linear(x, self.weight, self.bias)

    def step(self, x_RX: Tensor, past_RPX: Tensor) -> tuple[Tensor, Tensor]:
        """Read one token of each row of a causal convolution; return its output and the new past."""
        tokens = torch.cat((past_RPX, x_RX[:, None].to(past_RPX.dtype)), 1)
        inputs = tokens[:, :: self.dilation].flatten(1)
        return F.linear(inputs.to(x_RX.dtype), self.weight, self.bias), tokens[:, 1:]


def shift_tokens(x_TX: Tensor, offset: int, text: Packed) -> Tensor:
    """Return for each token the value `offset` tokens away in its sentence, or zeros. [T, X]"""
    if offset == 0:
        return x_TX
    if abs(offset) >= max(1, text.max_length):
        return torch.zeros_like(x_TX)
    padding = (0, 0, -offset, 0) if offset < 0 else (0, 0, 0, offset)
    padded = F.pad(x_TX, padding)
    shifted = padded[: len(x_TX)] if offset < 0 else padded[offset:]
    return shifted.masked_fill(outside_mask(offset, text), 0)


def outside_mask(offset: int, text: Packed) -> Tensor:
    """Return for which tokens the position `offset` away is outside the sentence. [T, 1]"""

    def compute() -> Tensor:
        position_T = text.positions + offset
        return ((position_T < 0) | (position_T >= text.lengths[text.sentence_ids]))[:, None]

    return cached_for_batch(text, (outside_mask, offset), compute)
