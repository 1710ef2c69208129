"""Looking for translations over a step function. It knows no model, no vocabulary and no text.

step(tokens, state) -> logits, state       one more token of every row; the state can drop sentences
"""

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from manyheads.config import BEGIN, END


class Droppable(Protocol):
    """What a state must be able to do."""

    def drop(self, sentences: Tensor) -> Self: ...


AnyState = TypeVar("AnyState", bound=Droppable)
Step = Callable[[Tensor, AnyState], tuple[Tensor, AnyState]]


@torch.no_grad()
def greedy(
    step: Step[AnyState], state: AnyState, limits: Sequence[int], device: torch.device
) -> list[list[int]]:
    """The likeliest token each time, until the end token or a sentence's limit. Without begin and end."""
    found: list[list[int]] = [[] for _ in limits]
    live = [sentence for sentence, limit in enumerate(limits) if limit > 0]
    state = without(state, [sentence for sentence, limit in enumerate(limits) if limit <= 0], device)
    tokens = torch.full((len(live),), BEGIN, device=device)
    while live:
        logits, state = step(tokens, state)
        tokens = logits.argmax(-1)
        over = []
        for row, (sentence, token) in enumerate(zip(live, tokens.tolist(), strict=True)):
            if token != END:
                found[sentence].append(token)
            if token == END or len(found[sentence]) == limits[sentence]:
                over.append(row)
        if over:
            state = without(state, over, device)
            kept = [row for row in range(len(live)) if row not in set(over)]
            live, tokens = [live[row] for row in kept], tokens[kept]
    return found


def without(state: AnyState, rows: list[int], device: torch.device) -> AnyState:
    return state.drop(torch.tensor(rows, device=device)) if rows else state
