"""How queries score keys, and which keys each query may attend to (3.2.1, 3.2.3).

Shapes: B sentences, H heads, K = d_k, L keys of a sentence.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

BAND_MIN_BLOCK = 32  # queries of a block of the band: smaller products are not faster


@dataclass(frozen=True)
class AttentionSpec:
    """The defaults are those of the encoder."""

    score: Literal["scaled-dot", "dot", "additive"] = "scaled-dot"
    causal: bool = False  # position i sees j <= i
    window: int | None = None  # r: position i sees |i - j| <= r // 2
    dropout: float = 0.0  # of the weights
    energy_HK: Tensor | None = None  # the output layer of additive attention

    def scale(self, d_k: int) -> float:
        return 1 / math.sqrt(d_k) if self.score == "scaled-dot" else 1.0

    @property
    def compares_positions(self) -> bool:
        """Whether a query sees only some keys of its sentence."""
        return self.causal or self.window is not None

    @property
    def keys_before(self) -> int | None:
        """How many keys before its own position a query sees; None: all."""
        return None if self.window is None else self.window // 2

    @property
    def keys_after(self) -> int | None:
        """How many keys after its own position a query sees; None: all."""
        return 0 if self.causal else self.keys_before


def attention_mask(length: int, spec: AttentionSpec, device: torch.device) -> Tensor:
    """Return which positions j each position i of a sentence sees (3.2.3). [L, L]"""
    i = torch.arange(length, device=device)[:, None]
    j = torch.arange(length, device=device)[None, :]
    mask = torch.ones(length, length, dtype=torch.bool, device=device)
    if spec.causal:
        mask = mask & (j <= i)
    if spec.window is not None:
        mask = mask & ((i - j).abs() <= spec.window // 2)
    return mask


def padding_mask(lengths_B: Tensor, length: int) -> Tensor:
    """Return which of `length` padded positions hold a token. [B, L]

    The first position always counts. In an empty sentence it holds zeros, so the output is zero, forward and
    backward, where a softmax over no keys would be NaN.
    """
    return torch.arange(length, device=lengths_B.device) < lengths_B.clamp(min=1)[:, None]


def band_shape(spec: AttentionSpec) -> tuple[int, int, int]:
    """Return the queries of a block, and how many keys before and after the block they see."""
    before, after = spec.keys_before, spec.keys_after
    assert before is not None
    assert after is not None
    return max(before, BAND_MIN_BLOCK), before, after
