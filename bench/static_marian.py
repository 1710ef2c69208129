"""Hugging Face generate with static caches and a compiled decoder in CUDA graphs, for bench/decode.py.

`generate` compiles greedy search by itself, and beam search not at all. Here both run the same compiled
forward pass. Caches are kept from call to call, since a CUDA graph reads fixed addresses: every batch has
the same number of sentences, sources are padded to a few lengths, and a beam reorders its cache in place.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import EncoderDecoderCache, StaticCache

from manyheads.config import DecodingConfig
from manyheads.packed import round_up
from manyheads.search.options import DecodingConstraints
from peers import MarianEngine

TOKENS_PER_SENTENCE = 16  # sentences of a batch: batch_tokens over this


class ReorderedCache(EncoderDecoderCache):
    """Static caches of both attentions. The hypotheses of a sentence share its source."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        layers: list[Any] = self.self_attention_cache.layers
        for layer in layers:
            layer.keys.copy_(layer.keys.index_select(0, beam_idx))
            layer.values.copy_(layer.values.index_select(0, beam_idx))


class StaticMarianEngine(MarianEngine):
    """Marian with static caches for outputs of at most `max_length` tokens."""

    warm_up_runs = 2
    source_multiple = 32

    def __init__(self, marian: Any, pad: int, device: str, max_length: int, *, compiled: bool) -> None:
        super().__init__(marian, pad, device)
        self.max_length = round_up(max_length + 1, 8)
        self.caches: dict[tuple[int, int], ReorderedCache] = {}
        self.eager_forward = self.marian.forward
        if compiled:
            torch._dynamo.config.cache_size_limit = 64
            self.compiled_forward = torch.compile(
                self.eager_forward, mode="reduce-overhead", fullgraph=True, dynamic=True
            )
            self.marian.forward = self.run_forward

    @property
    def sentences(self) -> int:
        """The number of sentences of every batch."""
        return max(1, self.batch_tokens // TOKENS_PER_SENTENCE)

    def count_sentences(self, length: int) -> int:
        return self.sentences

    def describe_batch(self) -> str:
        return f"{self.sentences:,} sentences"

    def run_forward(self, **inputs: Any) -> Any:
        """Compute the first token eagerly: it fills the cache of the source."""
        cache = inputs["past_key_values"]
        if not all(cache.is_updated.values()):
            return self.eager_forward(**inputs)
        torch.compiler.cudagraph_mark_step_begin()
        return self.compiled_forward(**inputs)  # type: ignore[no-untyped-call]

    def make_batches(self, lengths: list[int]) -> list[list[int]]:
        """Return batches of equally many sentences, those of similar length together."""
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        return [order[start : start + self.sentences] for start in range(0, len(order), self.sentences)]

    def generate(
        self, sources: list[list[int]], constraints: list[DecodingConstraints], config: DecodingConfig
    ) -> Iterator[list[int]]:
        """Fill the batch with copies of its last sentence."""
        missing = self.sentences - len(sources)
        rows = super().generate(
            [*sources, *[sources[-1]] * missing], [*constraints, *[constraints[-1]] * missing], config
        )
        return (row for row, _ in zip(rows, sources, strict=False))

    def make_options(self, source: Tensor, config: DecodingConfig) -> dict[str, Any]:
        """Return the cache of this shape, empty."""
        rows, length = len(source) * config.beam, source.shape[1]
        if (rows, length) not in self.caches:
            static = (
                StaticCache(config=self.marian.config, max_cache_len=size)
                for size in (self.max_length, length)
            )
            self.caches[rows, length] = ReorderedCache(*static)
        cache = self.caches[rows, length]
        cache.reset()  # type: ignore[no-untyped-call]
        return {"past_key_values": cache, "disable_compile": True}
