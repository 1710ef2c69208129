"""The prefill of a CUDA graph search: sources are encoded, and their keys and values stored for its steps.

Launching an encoder's kernels takes Python longer than the GPU takes to run them. So sources are encoded a
fixed number of tokens at a time, padded by sentences that nothing reads, and that is one captured graph;
there is another of few tokens. Where our attention kernel does not serve (float32, wide heads, older GPUs),
and for sentences that are too long or too many for a graph, the encoder runs as it is. On a CPU, for tests,
batches are padded but not captured.

Shapes: E source tokens encoded at once.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manyheads.cuda.graphs import capture
from manyheads.cuda.static_batch import (
    FILLER_LENGTH,
    count_fillers,
    pinned_zeros,
    write_batch_tokens,
    write_offsets,
)
from manyheads.inference.batching import group_in_order
from manyheads.model.static_cache import StaticKVCache
from manyheads.model.transformer import Transformer
from manyheads.ops import dispatch
from manyheads.packed import Packed
from manyheads.search.scheduler import QueuedRequest, RequestQueue

MAX_LENGTH = dispatch.TRITON_MAX_LENGTH  # tokens of a sentence that the graph encodes
EAGER_BATCHES = 4  # before the graph is captured: few batches are not worth one
SMALL_BATCH_TOKENS = 2048  # of a second graph, for the few sentences that join a running batch
STAGED_REQUESTS = 512  # taken from the queue at once

EncodedRequest = tuple[QueuedRequest, int]  # and where its source starts in the cache


class SourcePrefill:
    """Encodes sources into the cache of a search, E tokens at a time, or few where there are few."""

    def __init__(self, model: Transformer, cache: StaticKVCache, batch_tokens: int) -> None:
        self.model, self.cache, self.batch_tokens = model, cache, batch_tokens
        self.device, dtype = cache.source_keys.device, cache.source_keys.dtype
        head_dim = max(model.config.head_dim_k, model.config.head_dim_v)
        has_kernel = dispatch.has_static_attention(self.device, dtype, head_dim)
        self.pads_batches = self.device.type == "cpu" or has_kernel
        sizes = [batch_tokens] if batch_tokens <= SMALL_BATCH_TOKENS else [SMALL_BATCH_TOKENS, batch_tokens]
        self.batches = [StaticPrefill(self, size) for size in sizes]

    @property
    def padded_batches(self) -> int:
        """How many batches were padded so far."""
        return sum(batch.num_runs for batch in self.batches)

    @property
    def num_graphs(self) -> int:
        return sum(batch.graph is not None for batch in self.batches)

    def count_written(self, sources: Packed) -> int:
        """Return how many tokens of the cache are written for these sources."""
        batch = self._find_batch(sources)
        return len(sources.tokens) if batch is None else batch.batch_tokens

    def encode(self, sources: Packed, start: int) -> None:
        """Store the keys and values of these sources in the cache, from position `start` on."""
        if batch := self._find_batch(sources):
            batch.run(sources, start)
            return
        pinned = sources.pin_memory() if self.device.type == "cuda" else sources
        start_1 = torch.full((), start, device=self.device)
        self.store(pinned.to(self.device, non_blocking=True), start_1)

    def store(self, sources: Packed, start_1: Tensor) -> None:
        memory = self.model.encode(sources)
        positions = start_1 + torch.arange(len(sources.tokens), device=self.device)
        for layer, (keys, values) in enumerate(self.model.project_source(memory)):
            self.cache.source_keys[layer].index_copy_(0, positions, keys)
            self.cache.source_values[layer].index_copy_(0, positions, values)

    def _find_batch(self, sources: Packed) -> "StaticPrefill | None":
        if not self.pads_batches:
            return None
        return next((batch for batch in self.batches if batch.fits(sources)), None)


class StaticPrefill:
    """Encodes batches of a fixed number of tokens: eagerly at first, then in a CUDA graph."""

    def __init__(self, prefill: SourcePrefill, batch_tokens: int) -> None:
        self.prefill, self.batch_tokens, self.device = prefill, batch_tokens, prefill.device
        self.static_input = torch.zeros(2 * batch_tokens + 2, dtype=torch.int64, device=self.device)
        self.num_runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def fits(self, sources: Packed) -> bool:
        """Return whether these can be encoded. Empty sentences have no tokens, but an offset each."""
        missing = self.batch_tokens - len(sources.tokens)
        num_sentences = len(sources) + count_fillers(missing, FILLER_LENGTH)
        is_small = max(len(sources.tokens), num_sentences) <= self.batch_tokens
        return is_small and sources.max_length <= MAX_LENGTH

    def run(self, sources: Packed, start: int) -> None:
        self.static_input.copy_(self._pad(sources, start), non_blocking=True)
        self.num_runs += 1
        if self.device.type == "cuda" and self.num_runs > EAGER_BATCHES:
            self.graph = self.graph or capture(self._store_static_input)[0]
            self.graph.replay()
        else:
            self._store_static_input()

    def _pad(self, sources: Packed, start: int) -> Tensor:
        """Return E tokens, the offsets of at most E sentences, and the position of the first. [2 E + 2]"""
        row = pinned_zeros(len(self.static_input))
        tokens, offsets, first = np.split(row.numpy(), [self.batch_tokens, 2 * self.batch_tokens + 1])
        write_batch_tokens(tokens, sources)
        missing = self.batch_tokens - len(sources.tokens)
        write_offsets(offsets, sources, missing, count_fillers(missing, FILLER_LENGTH), FILLER_LENGTH)
        first[:] = start
        return row

    def _store_static_input(self) -> None:
        tokens, offsets, start_1 = self.static_input.split([self.batch_tokens, self.batch_tokens + 1, 1])
        self.prefill.store(Packed(tokens, offsets.int(), MAX_LENGTH), start_1)


# ---- which sources are encoded, and where they lie


@dataclass(eq=False)
class Region:
    """Source tokens of one batch in the cache."""

    start: int
    num_tokens: int
    num_unfinished: int  # sentences that still need it


class SourceBuffer:
    """Allocates the source tokens of a cache."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.regions: list[Region] = []  # in the order of their positions

    def allocate(self, num_tokens: int, num_written: int, num_sentences: int) -> Region | None:
        """Return the first free region, or None. The prefill may write more tokens than it needs."""
        start = 0
        for place, region in enumerate([*self.regions, Region(self.capacity, 0, 0)]):
            if start + num_written <= region.start:
                self.regions.insert(place, Region(start, num_tokens, num_sentences))
                return self.regions[place]
            start = max(start, region.start + region.num_tokens)
        return None

    def release(self, region: Region) -> None:
        """Note that one sentence of a region is finished."""
        region.num_unfinished -= 1
        if not region.num_unfinished:
            self.regions.remove(region)


class PrefillQueue:
    """Waiting sentences, encoded as far ahead as the cache has space for."""

    def __init__(self, prefill: SourcePrefill, queue: RequestQueue, capacity: int) -> None:
        self.prefill, self.queue, self.buffer = prefill, queue, SourceBuffer(capacity)
        self.staged: list[QueuedRequest] = []  # not encoded yet
        self.encoded: deque[EncodedRequest] = deque()
        self.regions: dict[int, Region] = {}  # of unfinished sentences

    @property
    def is_exhausted(self) -> bool:
        return not self.staged and not self.encoded and self.queue.is_exhausted

    def fill(self, num_free: int) -> None:
        """Encode sentences for the free slots, and at most one batch ahead: the GPU decodes meanwhile.

        A batch that is not full waits for more, unless slots would stay empty.
        """
        while batch := self._next_batch(num_free):
            is_full = len(batch) < len(self.staged)
            if not is_full and self.encoded and not self.queue.is_exhausted:
                return
            if not self._encode(batch):
                return
            del self.staged[: len(batch)]
            if len(self.encoded) > num_free:
                return

    def take(self, count: int) -> list[EncodedRequest]:
        return [self.encoded.popleft() for _ in range(min(count, len(self.encoded)))]

    def release(self, indices: Sequence[int]) -> None:
        """Free the sources of finished sentences."""
        for index in indices:
            self.buffer.release(self.regions.pop(index))

    def _next_batch(self, num_free: int) -> list[QueuedRequest]:
        """Return the sentences of a full batch, as far as there are so many."""
        lengths = [len(request.source) for _, request in self.staged]
        num_tokens = sum(lengths)
        while num_tokens <= self.prefill.batch_tokens:
            count = STAGED_REQUESTS
            if (
                self.queue.starts_at_once
            ):  # those that find no slot wait in the queue, where they can be canceled
                count = min(count, num_free - len(self.encoded) - len(self.staged))
            new = self.queue.take(count) if count > 0 else []
            if not new:
                break
            self.staged += new
            added = [len(request.source) for _, request in new]
            lengths += added
            num_tokens += sum(added)
        if not self.staged:
            return []
        return self.staged[next(group_in_order(lengths, self.prefill.batch_tokens))]

    def _encode(self, batch: Sequence[QueuedRequest]) -> bool:
        sources = Packed.of([request.source for _, request in batch])
        num_written = self.prefill.count_written(sources)
        region = self.buffer.allocate(len(sources.tokens), num_written, len(batch))
        if region is None:
            return False
        self.prefill.encode(sources, region.start)
        self.regions |= dict.fromkeys([index for index, _ in batch], region)
        self.encoded.extend(zip(batch, (region.start + sources.offsets[:-1]).tolist(), strict=True))
        return True
