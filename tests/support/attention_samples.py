"""Attention of unusual sentences: tokens that look like markup, and very many tokens."""

from dataclasses import replace
from typing import Any

import torch

import manyheads as mh
from manyheads.look.attention_data import build_attention_data

MARKUP_TOKENS = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]>",
    "&lt;b&gt;",
    "\u2028\u2029",
    "'\"`${alert(1)}",
    "{script}",
    "\\",
    "{{data}}",
    "\x00\x1b\x7f",
    "\u202eevil",
]


def with_markup_tokens(attention: mh.AttentionMaps) -> mh.AttentionMaps:
    """Replace the tokens by markup."""
    count = len(attention.source_tokens) - 1
    source = [MARKUP_TOKENS[n % len(MARKUP_TOKENS)] for n in range(count)]
    target = [MARKUP_TOKENS[-1 - n % len(MARKUP_TOKENS)] for n in range(len(attention.target_tokens) - 1)]
    candidates = [
        [(token, value) for token, (_, value) in zip(MARKUP_TOKENS, step, strict=False)]
        for step in attention.candidates
    ]
    return replace(
        attention, source_tokens=[*source, "</s>"], target_tokens=[*target, "</s>"], candidates=candidates
    )


def random_attention_data(layers: int = 24, heads: int = 16, length: int = 100) -> dict[str, Any]:
    """Return the data of random maps, by default with 100 tokens, 24 layers and 16 heads."""

    def random_maps(causal: bool) -> list[list[torch.Tensor]]:
        scores = 3 * torch.randn(layers, heads, length, length)
        if causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1) > 0, -torch.inf)
        return [[layer] for layer in scores.softmax(-1)]

    tokens = [*(f"▁w{n}" for n in range(length - 1)), "</s>"]
    trace = mh.Trace(random_maps(False), random_maps(True), random_maps(False))
    return build_attention_data(
        mh.AttentionMaps(tokens, tokens, trace, languages={"source": "en", "target": "ko"})
    )
