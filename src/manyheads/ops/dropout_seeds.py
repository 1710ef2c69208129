"""The seeds of dropout masks, drawn from torch's generator: one by one, or those of a whole step at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

SEEDS_AT_ONCE = 64  # at least as many as a step of the usual models needs
WORDS = 2  # of a seed, 32 bits each
SEED_STRIDE = (
    4  # words from one seed to the next: kernels are compiled for addresses that are multiples of 16
)

_drawn: ContextVar[list[Tensor] | None] = ContextVar("drawn", default=None)


@contextmanager
def drawing_together() -> Iterator[None]:
    """Draw many seeds with one kernel; they differ from those drawn one by one."""
    token = _drawn.set([])
    try:
        yield
    finally:
        _drawn.reset(token)


def dropout_seed(device: torch.device, dropout: float) -> Tensor:
    """Return two random words from torch's generator, whose seed so decides the mask; arbitrary ones at 0."""
    if dropout == 0:
        return torch.empty(WORDS, dtype=torch.int32, device=device)
    drawn = _drawn.get()
    if drawn is None:
        return draw_seeds(1, device)[0]
    if not drawn:
        drawn.extend(draw_seeds(SEEDS_AT_ONCE, device))
    return drawn.pop()


def draw_seeds(count: int, device: torch.device) -> list[Tensor]:
    words = torch.randint(-(2**31), 2**31, (count, SEED_STRIDE), dtype=torch.int32, device=device)
    return list(words[:, :WORDS].unbind())
