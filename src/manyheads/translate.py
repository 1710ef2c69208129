"""Text in, text out."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from manyheads.config import END
from manyheads.packed import Packed
from manyheads.search import greedy
from manyheads.text.subwords import SubwordPair

TOGETHER = 64  # sentences translated at once


class Model(Protocol):
    """What every model of ours answers to."""

    def encode(self, source: Packed) -> Any: ...
    def start(self, memory: Any, width: int = 1) -> Any: ...
    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]: ...


def translate_greedily(
    model: Model, subwords: SubwordPair, sources: Sequence[str], extra_length: int, device: torch.device
) -> list[str]:
    """Each source's likeliest words, one after the other; sentences of like length go together."""
    encoded = [[*subwords.source.encode(text), END] for text in sources]
    order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
    texts = [""] * len(sources)
    for first in range(0, len(order), TOGETHER):
        chosen = order[first : first + TOGETHER]
        for number, ids in zip(
            chosen, decode(model, [encoded[n] for n in chosen], extra_length, device), strict=True
        ):
            texts[number] = subwords.target.decode(ids)
    return texts


def decode(
    model: Model, sources: list[list[int]], extra_length: int, device: torch.device
) -> list[list[int]]:
    packed = Packed.of(sources).to(device)
    with torch.no_grad():
        state = model.start(model.encode(packed))
        return greedy(model.step, state, [len(source) + extra_length for source in sources], device)
