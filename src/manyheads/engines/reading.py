"""The sources of a search on a GPU: encoded, and put as keys and values where its steps look for them.

An encoder's launches take Python longer than the GPU takes for the work. So sources are read a fixed number
of tokens at a time, filled up by sentences that nobody looks at, and that is one captured graph. Where
shapes must follow the sentences (in float32, or when some are very long) it is done as it is.

Shapes: E tokens read at once.
"""

import numpy as np
import torch
from torch import Tensor

from manyheads import kernels
from manyheads.model.attention import SPANS_LONGEST, SPANS_WIDTH_LIMIT, has_kernel
from manyheads.model.slots import SlotState
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed, put_offsets

FILLER = 64  # tokens of a sentence that only fills up
LONGEST = SPANS_LONGEST  # tokens of a sentence that the graph reads


class Reading:
    """Reads into the state of a search, E tokens at a time."""

    def __init__(self, model: Transformer, state: SlotState, tokens: int) -> None:
        self.model, self.state, self.tokens = model, state, tokens
        self.device, dtype = state.source_keys.device, state.source_keys.dtype
        widest = max(model.config.key_width, model.config.value_width)
        by_kernel = dtype in kernels.HALF and widest <= SPANS_WIDTH_LIMIT
        self.fills = self.device.type == "cpu" or (by_kernel and has_kernel(self.device))
        self.given = torch.zeros(2 * tokens + 2, dtype=torch.int64, device=self.device)
        self.began = False  # the first reading is done as it is, so that all kernels are ready
        self.graph: torch.cuda.CUDAGraph | None = None

    def read(self, part: Packed, start: int) -> None:
        """The keys and values of these sources into the state, from this place on."""
        if not self.fills or len(part.tokens) > self.tokens or part.longest > LONGEST:
            here = part.pinned() if self.device.type == "cuda" else part
            self._put(here.to(self.device, non_blocking=True), torch.full((), start, device=self.device))
            return
        self.given.copy_(self._filled_up(part, start), non_blocking=True)
        if self.device.type == "cuda" and self.began:
            self.graph = self.graph or self._captured()
            self.graph.replay()
        else:
            self._put_given()
        self.began = True

    def _filled_up(self, part: Packed, start: int) -> Tensor:
        """[2 E + 2] E tokens, the offsets of at most E sentences, and the place of the first token."""
        row = torch.empty(len(self.given), dtype=torch.int64, pin_memory=self.device.type == "cuda")
        row.numpy().fill(0)  # torch would call all cores together for it, and wait for the last one
        tokens, offsets, first = np.split(row.numpy(), [self.tokens, 2 * self.tokens + 1])
        tokens[: len(part.tokens)] = part.tokens.numpy()
        lacking = self.tokens - len(part.tokens)
        fillers = np.minimum(FILLER * np.arange(1, -(-lacking // FILLER) + 1), lacking)
        put_offsets(offsets, part.offsets.numpy(), fillers)
        first[:] = start
        return row

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._put_given()
        return graph

    def _put_given(self) -> None:
        tokens, offsets, first = self.given.split([self.tokens, self.tokens + 1, 1])
        self._put(Packed(tokens, offsets.int(), LONGEST), first)

    def _put(self, source: Packed, first: Tensor) -> None:
        memory = self.model.encode(source)
        places = first + torch.arange(len(source.tokens), device=self.device)
        for layer, (keys, values) in enumerate(self.model.keys_of_source(memory)):
            self.state.source_keys[layer].index_copy_(0, places, keys)
            self.state.source_values[layer].index_copy_(0, places, values)
