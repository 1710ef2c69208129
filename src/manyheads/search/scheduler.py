"""Which sentence gets which slot of the batch, and when sentences come and go.

Both drivers take waiting requests from a RequestQueue as slots become free. The eager driver has a batch that
grows and shrinks (DynamicSchedule); CUDA graphs need a fixed number of slots (SlotTable).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from manyheads.search.options import DecodingConstraints, Request, SearchLimits

if TYPE_CHECKING:
    import torch

Ints = NDArray[np.int64]
EMPTY = -1  # the index of the sentence in a free slot


class QueuedRequest(NamedTuple):
    request_index: int
    request: Request


class RequestQueue(Protocol):
    """Requests that wait for a slot."""

    @property
    def starts_at_once(self) -> bool:
        """Whether requests are taken into free slots only, and results are reported at once."""
        ...

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return the next requests, at most this many. There may be more later."""
        ...

    def take_canceled(self) -> list[int]:
        """Return the indices of requests that were taken and whose results nobody needs any more, once."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether there will never be another request."""
        ...


class ListQueue:
    """A queue of requests that are all known."""

    starts_at_once = False

    def __init__(self, requests: Sequence[Request]) -> None:
        self.waiting = [QueuedRequest(index, request) for index, request in enumerate(requests)]

    def take(self, count: int) -> list[QueuedRequest]:
        chosen, self.waiting = self.waiting[:count], self.waiting[count:]
        return chosen

    def take_canceled(self) -> list[int]:
        return []

    @property
    def is_exhausted(self) -> bool:
        return not self.waiting


# ---- a batch that grows and shrinks


@dataclass
class ActiveSentence:
    """The host's record of a sentence in the batch."""

    index: int
    constraints: DecodingConstraints
    generator: "torch.Generator"
    length: int = 0  # tokens that its hypotheses have


@dataclass
class DynamicSchedule:
    """The sentences of an eager search's batch, in the order of its rows."""

    queue: RequestQueue
    capacity: int  # sentences at most
    limits: SearchLimits
    active: list[ActiveSentence] = field(default_factory=list)

    def admit(self) -> list[QueuedRequest]:
        """Add waiting requests to the batch when enough of it is free. Return them."""
        import torch  # only here: queues of requests serve engines without torch too

        free = self.capacity - len(self.active)
        if self.active and free < self.limits.refill_fraction * self.capacity:
            return []
        new = self.queue.take(free)
        for index, request in new:
            generator = torch.Generator().manual_seed(request.constraints.seed)
            self.active.append(ActiveSentence(index, request.constraints, generator))
        return new

    def find_canceled(self) -> list[int]:
        """Return the slots of sentences whose results nobody needs any more."""
        canceled = set(self.queue.take_canceled())
        return [slot for slot, item in enumerate(self.active) if item.index in canceled] if canceled else []

    def should_retire(self, num_done: int) -> bool:
        """Return whether so many finished sentences are worth a smaller batch."""
        return num_done > self.limits.retire_fraction * len(self.active) or num_done == len(self.active)

    def retire(self, slots: Sequence[int]) -> list[int]:
        """Remove sentences from the batch. Return the slots that stay."""
        gone = set(slots)
        kept = [slot for slot in range(len(self.active)) if slot not in gone]
        self.active = [self.active[slot] for slot in kept]
        return kept


# ---- a fixed number of slots


class SlotTable:
    """Which sentence is in each slot of a batch of fixed size."""

    def __init__(self, num_slots: int) -> None:
        self.occupants = np.full(num_slots, EMPTY)
        self.num_active = num_slots  # the first slots, which a step computes

    @property
    def is_empty(self) -> bool:
        return not (self.occupants != EMPTY).any()

    def free_slots(self) -> Ints:
        return np.flatnonzero(self.occupants == EMPTY)

    def release(self, slots: Ints) -> None:
        self.occupants[slots] = EMPTY

    def fit(self, factor: int, min_slots: int) -> None:
        """Compute as few of the first slots as hold all sentences, without moving one."""
        occupied = np.flatnonzero(self.occupants != EMPTY)
        num_used = occupied[-1] + 1 if len(occupied) else 1
        num_active = len(self.occupants)
        while num_used * factor <= num_active and num_active >= min_slots * factor:
            num_active //= factor
        self.num_active = num_active

    def compact(self, factor: int, min_slots: int) -> tuple[Ints, Ints]:
        """Move the last sentences to the first slots, so that a step computes those alone.

        Return the old and the new slots of those that move. The slots they leave stay unused until all are
        done, since the keys and values of their past still lie there: no sentence may come after that.
        """
        is_occupied = self.occupants != EMPTY
        num_left, num_active = np.count_nonzero(is_occupied), self.num_active
        if is_occupied[num_active:].any():  # sentences that came after `fit`
            num_active = len(self.occupants)
        while num_left * factor <= num_active and num_active >= min_slots * factor:
            num_active //= factor
        old = num_active + np.flatnonzero(is_occupied[num_active:])
        new = np.flatnonzero(~is_occupied[:num_active])[: len(old)]
        self.occupants[new], self.occupants[old] = self.occupants[old], EMPTY
        self.num_active = num_active
        return old, new
