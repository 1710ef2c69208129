"""Pinned batches reach a GPU unchanged."""

import numpy as np
import pytest
import torch

from manyheads.config import EOS_ID, DataConfig
from manyheads.data.batches import Batch, Batches
from manyheads.data.store import Side, Split
from manyheads.packed import Packed

pytestmark = pytest.mark.gpu


def test_pinned_batches_reach_the_device_unchanged() -> None:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 30, 2000))])
    tokens = rng.integers(3, 60_000, offsets[-1]).astype(np.uint16)
    tokens[offsets[1:] - 1] = EOS_ID
    side = Side(tokens, offsets)
    batches = Batches(Split(side, side, (("all", 1.0, 2000),)), DataConfig(batch_tokens=500), seed=3)
    with batches.stream(pin=True) as stream:
        for index in range(20):
            pinned, plain = next(stream), batches.get_batch(0, index)
            assert all(part.tokens.is_pinned() and part.offsets.is_pinned() for part in parts(pinned))
            for moved, kept in zip(parts(pinned.to("cuda")), parts(plain), strict=True):
                assert moved.tokens.is_cuda
                assert torch.equal(moved.tokens.cpu(), kept.tokens)
                assert torch.equal(moved.offsets.cpu(), kept.offsets)
                assert moved.max_length == kept.max_length


def parts(batch: Batch) -> tuple[Packed, Packed, Packed]:
    return batch.source, batch.inputs, batch.labels
