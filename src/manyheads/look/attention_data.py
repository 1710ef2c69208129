"""The attention of one sentence as plain data, for the page, the server and notebooks.

    format      2
    languages   source and target
    text        source and target
    sides       by attention type: whose tokens are the queries, and whose are the keys
    tokens      by side: `source`; `decoder_input`, which begins with the begin token; and `target`, the token
                that the decoder outputs at each step, which is the decoder input of the next
    words       by side: the words that the tokens form
    word_ids    by side: the index of the word of each token
    layers      by attention type
    heads, colors (one per head), measures (names, in the order of their values)
    snapshots   one per checkpoint of training, the latest last; of a model there is one:
        name, step, translation (by the model of this snapshot)
        maps           by attention type, layer and head: base64 of uint16, little-endian, row-major, of
                       weights times 65535
        measures       by attention type, then "tokens" or "words", layer and head: values, or null
        figure_heads   by attention type, then "long", "sharp" or "structural": the heads most like Figures 3,
                       4 and 5
        probabilities  of each target token
        candidates     the most probable tokens of each step, with their probabilities

Shapes: L layers, H heads, Q query tokens or words, K key tokens or words.
"""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import RequestError
from manyheads.look.colors import head_colors
from manyheads.look.figure_heads import find_heads_like_figures
from manyheads.look.measures import MEASURES, compute_measures
from manyheads.look.words import BEGIN, get_word_ids, is_word, tokens_to_words
from manyheads.translation import AttentionMaps

FORMAT = 2
ATTENTION_TYPES = ("encoder", "decoder", "cross")
SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("decoder_input", "decoder_input"),
    "cross": ("target", "source"),
}
WEIGHT_SCALE = 65535
MAX_WEIGHTS = 100_000_000  # of a page: about 260 MB, more than most browsers handle

Maps = NDArray[np.float32]


def build_attention_data(
    attention: AttentionMaps, *, source: str = "", target: str = "", name: str = "", step: int | None = None
) -> dict[str, Any]:
    """Return the data of one model."""
    snapshot = build_snapshot(attention, name=name, step=step, translation=target)
    return combine_snapshots(attention, source, target, [snapshot])


def combine_snapshots(
    attention: AttentionMaps, source: str, target: str, snapshots: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the data of several models for the same tokens."""
    tokens = tokens_by_side(attention)
    traces = {name: getattr(attention.trace, name) for name in attention_types(attention)}
    heads = len(next(iter(traces.values()))[0][0])
    return {
        "format": FORMAT,
        "languages": attention.languages,
        "text": {
            "source": source or " ".join(tokens_to_words(tokens["source"])[:-1]),
            "target": target or " ".join(tokens_to_words(tokens["target"])[:-1]),
        },
        "sides": {name: SIDES[name] for name in traces},
        "tokens": {side: list(own) for side, own in tokens.items()},
        "words": {side: tokens_to_words(own) for side, own in tokens.items()},
        "word_ids": {side: get_word_ids(own) for side, own in tokens.items()},
        "layers": {name: len(layers) for name, layers in traces.items()},
        "heads": heads,
        "colors": head_colors(heads),
        "measures": MEASURES,
        "snapshots": list(snapshots),
    }


def build_snapshot(
    attention: AttentionMaps, *, name: str, step: int | None, translation: str, num_snapshots: int = 1
) -> dict[str, Any]:
    """Return the data of one of several models."""
    check_size(attention, num_snapshots)
    maps = {
        attention_type: stack_maps(attention, attention_type) for attention_type in attention_types(attention)
    }
    word_maps = {
        attention_type: merge_into_words(own, attention, attention_type)
        for attention_type, own in maps.items()
    }
    return {
        "name": name,
        "step": step,
        "translation": translation,
        "maps": {
            attention_type: [[encode_map(head) for head in layer] for layer in layers]
            for attention_type, layers in maps.items()
        },
        "measures": {
            attention_type: {
                "tokens": compute_measures(maps[attention_type], attention_type),
                "words": compute_measures(word_maps[attention_type], attention_type),
            }
            for attention_type in maps
        },
        "figure_heads": {
            attention_type: find_figure_heads(own, attention, attention_type)
            for attention_type, own in word_maps.items()
        },
        "probabilities": [round_significant(math.exp(score)) for score in attention.token_scores],
        "candidates": [
            [[piece, round_significant(math.exp(log_prob))] for piece, log_prob in ranked]
            for ranked in attention.candidates
        ],
    }


def check_size(attention: AttentionMaps, num_snapshots: int) -> None:
    """Raise RequestError for more weights than a page holds, before anything is computed."""
    per_snapshot = sum(
        layer[0].numel() for name in ATTENTION_TYPES for layer in getattr(attention.trace, name)
    )
    total = num_snapshots * per_snapshot
    if total > MAX_WEIGHTS:
        raise RequestError(
            f"the page would have {total:,} attention weights, but the maximum is {MAX_WEIGHTS:,}: "
            f"use a shorter sentence"
        )


def attention_types(attention: AttentionMaps) -> list[str]:
    """Return the attention types of the model; most baselines have cross-attention only."""
    return [name for name in ATTENTION_TYPES if getattr(attention.trace, name)]


def tokens_by_side(attention: AttentionMaps) -> dict[str, list[str]]:
    target = attention.target_tokens
    return {
        "source": attention.source_tokens,
        "decoder_input": [BEGIN, *target[:-1]],
        "target": target,
    }


def stack_maps(attention: AttentionMaps, attention_type: str) -> Maps:
    """Return all maps of a type. [L, H, Q, K]

    A query that sees no key, as in a narrow window, has zeros instead of NaN.
    """
    layers = getattr(attention.trace, attention_type)
    maps: Maps = np.nan_to_num(np.stack([layer[0].float().cpu().numpy() for layer in layers]))
    return maps


def encode_map(map_QK: Maps) -> str:
    scaled = np.rint(map_QK.clip(0, 1) * WEIGHT_SCALE).astype("<u2")
    return base64.b64encode(scaled.tobytes()).decode("ascii")


def merge_into_words(maps: Maps, attention: AttentionMaps, attention_type: str) -> Maps:
    """Return maps between words: averages over the tokens of queries, sums over the tokens of keys."""
    tokens = tokens_by_side(attention)
    query_ids, key_ids = (get_word_ids(tokens[side]) for side in SIDES[attention_type])
    return merge_tokens(maps, query_ids, key_ids)


def merge_tokens(maps: Maps, query_ids: Sequence[int], key_ids: Sequence[int]) -> Maps:
    """[..., Q tokens, K tokens] -> [..., Q words, K words]. A row that summed to 1 still does."""
    query_words = np.eye(max(query_ids) + 1, dtype=np.float32)[list(query_ids)]  # [tokens, words]
    key_words = np.eye(max(key_ids) + 1, dtype=np.float32)[list(key_ids)]
    merged: Maps = (query_words / query_words.sum(0)).T @ maps @ key_words
    return merged


def find_figure_heads(
    word_maps: Maps, attention: AttentionMaps, attention_type: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the heads most like those of the paper's figures."""
    tokens = tokens_by_side(attention)
    query_flags, key_flags = (
        list(map(is_word, tokens_to_words(tokens[side]))) for side in SIDES[attention_type]
    )
    return find_heads_like_figures(word_maps, attention_type, query_flags, key_flags)


def round_significant(number: float) -> float:
    return float(f"{number:.5g}")
