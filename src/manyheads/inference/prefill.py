"""The sources of a search on a GPU: encoded, and put as keys and values where its steps look for them.

An encoder's launches take Python longer than the GPU takes for the work. So sources are read a fixed number
of tokens at a time, filled up by sentences that nobody looks at, and that is one captured graph. Where our
attention kernel does not serve (float32, wide heads, older GPUs), and for sentences that are too long or too
many for the graph, it is done as it is. On a CPU, where tests are, parts are filled up and nothing captured.

Shapes: E tokens read at once.
"""

import numpy as np
import torch
from torch import Tensor

from manyheads.cuda.graphs import capture
from manyheads.cuda.static_batch import (
    FILLER_LENGTH,
    count_fillers,
    pinned_zeros,
    write_offsets,
    write_tokens,
)
from manyheads.model.static_cache import StaticKVCache
from manyheads.model.transformer import Transformer
from manyheads.ops import dispatch
from manyheads.packed import Packed

LONGEST = dispatch.TRITON_MAX_LENGTH  # tokens of a sentence that the graph reads
CAPTURE_AFTER = 4  # parts that are read as they are before a graph is worth its making


class SourcePrefill:
    """Reads into the state of a search, E tokens at a time."""

    def __init__(self, model: Transformer, state: StaticKVCache, tokens: int) -> None:
        self.model, self.state, self.tokens = model, state, tokens
        self.device, dtype = state.source_keys.device, state.source_keys.dtype
        widest = max(model.config.head_dim_k, model.config.head_dim_v)
        has_kernel = dispatch.has_static_attention(self.device, dtype, widest)
        self.pads_batches = self.device.type == "cpu" or has_kernel
        self.static_input = torch.zeros(2 * tokens + 2, dtype=torch.int64, device=self.device)
        self.padded_batches = 0  # parts so far that were filled up
        self.graph: torch.cuda.CUDAGraph | None = None

    def encode(self, part: Packed, start: int) -> None:
        """The keys and values of these sources into the state, from this place on."""
        if not (self.pads_batches and self._has_room_for(part)):
            here = part.pin_memory() if self.device.type == "cuda" else part
            self._put(here.to(self.device, non_blocking=True), torch.full((), start, device=self.device))
            return
        self.static_input.copy_(self._filled_up(part, start), non_blocking=True)
        self.padded_batches += 1
        if self.device.type == "cuda" and self.padded_batches > CAPTURE_AFTER:
            self.graph = self.graph or capture(self._put_given)[0]
            self.graph.replay()
        else:
            self._put_given()

    def _has_room_for(self, part: Packed) -> bool:
        """Empty sentences have no tokens, but an offset each."""
        sentences = len(part) + count_fillers(self.tokens - len(part.tokens), FILLER_LENGTH)
        return max(len(part.tokens), sentences) <= self.tokens and part.max_length <= LONGEST

    def _filled_up(self, part: Packed, start: int) -> Tensor:
        """[2 E + 2] E tokens, the offsets of at most E sentences, and the place of the first token."""
        row = pinned_zeros(len(self.static_input))
        tokens, offsets, first = np.split(row.numpy(), [self.tokens, 2 * self.tokens + 1])
        write_tokens(tokens, part)
        missing = self.tokens - len(part.tokens)
        write_offsets(offsets, part, missing, count_fillers(missing, FILLER_LENGTH), FILLER_LENGTH)
        first[:] = start
        return row

    def _put_given(self) -> None:
        tokens, offsets, first = self.static_input.split([self.tokens, self.tokens + 1, 1])
        self._put(Packed(tokens, offsets.int(), LONGEST), first)

    def _put(self, source: Packed, first: Tensor) -> None:
        memory = self.model.encode(source)
        places = first + torch.arange(len(source.tokens), device=self.device)
        for layer, (keys, values) in enumerate(self.model.project_source(memory)):
            self.state.source_keys[layer].index_copy_(0, places, keys)
            self.state.source_values[layer].index_copy_(0, places, values)
