"""Convolutions over packed texts: each token sees k tokens of its own sentence, zeros beyond its ends.

    out_t = b + sum_j W_j x_{t + o_j}        offsets o: dilation * (-k/2 .. k/2), or, causal, (-(k - 1) .. 0)

There is no padding: the row of tokens is shifted by each offset, and what came from another sentence is put
out. Laid side by side, the shifted rows make of a convolution one product.

Shapes: T tokens, X numbers of each in, F out, k the kernel's width; R rows of a step, P = (k - 1) * dilation
        tokens of the past that a row remembers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyheads.packed import Packed


class Convolution(nn.Module):
    """One layer's convolution. Its gain is learned apart from its direction where weights are normalized."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        dilation: int = 1,
        causal: bool = False,
        weight_norm: bool = False,
        init_variance: float = 1.0,
    ):
        """`spread` is what initial weights make of the variance of what comes in."""
        super().__init__()
        self.init_variance = init_variance
        self.dilation = dilation
        first = -(kernel - 1) if causal else -(kernel // 2)
        self.offsets = [(first + place) * dilation for place in range(kernel)]
        self.weight_v = nn.Parameter(torch.empty(outputs, kernel * inputs))
        self.weight_g = nn.Parameter(torch.empty(outputs)) if weight_norm else None
        self.bias = nn.Parameter(torch.empty(outputs))

    @property
    def weight(self) -> Tensor:
        """[F, k X]; with weight normalization gain * v / |v| for each number that comes out."""
        if self.weight_g is None:
            return self.weight_v
        lengths: Tensor = self.weight_v.norm(dim=1)
        return self.weight_v * (self.weight_g / lengths)[:, None]

    def forward(self, x_TX: Tensor, text: Packed) -> Tensor:
        seen = [shift_tokens(x_TX, offset, text) for offset in self.offsets]
        return F.linear(torch.cat(seen, -1), self.weight, self.bias)

    def pointwise(self, x: Tensor) -> Tensor:
        """Of a kernel that sees one token: where sentences end does not matter to it."""
        return F.linear(x, self.weight, self.bias)

    def step(self, x_RX: Tensor, past_RPX: Tensor) -> tuple[Tensor, Tensor]:
        """One more token of each row of a causal convolution, and what the row now remembers."""
        whole = torch.cat((past_RPX, x_RX[:, None].to(past_RPX.dtype)), 1)
        seen = whole[:, :: self.dilation].flatten(1)
        return F.linear(seen.to(x_RX.dtype), self.weight, self.bias), whole[:, 1:]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight_v, std=math.sqrt(self.init_variance / self.weight_v.shape[1]))
        nn.init.zeros_(self.bias)
        if self.weight_g is not None:
            self.weight_g.copy_(self.weight_v.norm(dim=1))


def shift_tokens(x_TX: Tensor, offset: int, text: Packed) -> Tensor:
    """What stands so far behind (or before) each token in its sentence, or zeros. [T, X]"""
    if offset == 0:
        return x_TX
    if abs(offset) >= max(1, text.max_length):
        return torch.zeros_like(x_TX)
    beyond = (0, 0, -offset, 0) if offset < 0 else (0, 0, 0, offset)
    moved = F.pad(x_TX, beyond)[: len(x_TX)] if offset < 0 else F.pad(x_TX, beyond)[offset:]
    return moved.masked_fill(outside_mask(offset, text), 0)


def outside_mask(offset: int, text: Packed) -> Tensor:
    """Whose place, so far away, is no longer in the sentence. [T, 1]"""

    def found() -> Tensor:
        place_T = text.positions + offset
        return ((place_T < 0) | (place_T >= text.lengths[text.sentence_ids]))[:, None]

    return text.remember(("outside", offset), found)
