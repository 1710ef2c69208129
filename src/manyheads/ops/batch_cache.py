"""Values that follow from the layout of a batch: computed once, kept as long as the batch is."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from manyheads.packed import Packed

Value = TypeVar("Value")

_CACHE: WeakKeyDictionary[Packed, dict[Hashable, Any]] = WeakKeyDictionary()


def cached_for_batch(batch: Packed, key: Hashable, compute: Callable[[], Value]) -> Value:
    """Return what was computed for this batch under this key, or compute it now."""
    values = _CACHE.setdefault(batch, {})
    if key not in values:
        values[key] = compute()
    value: Value = values[key]
    return value


def precompute_layout(batch: Packed) -> Packed:
    """Return the batch with its cached properties computed, so that torch.compile takes them as inputs."""
    _ = batch.lengths, batch.positions, batch.padded_positions
    return batch
