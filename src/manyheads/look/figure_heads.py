"""Find the heads most like those of the paper's Figures 3 to 5.

long        Figure 3: the mean weight on words that are far away, four words or half the sentence
sharp       Figure 4: the largest single weight on a word that is not a neighbor
structural  Figure 5: how strongly queries point at one other word, times how much this word and its direction
            vary from query to query (the smaller of their normalized entropies): a head that knows only
            positions, such as "the previous word", always points the same way and gets 0

Only weights between words count, not those of punctuation and of the begin and end tokens, and within one
sentence not that of a word on itself. What counts of a weight is its excess over the mean that the key gets
from all queries: a word that all attend to is a resting place, as the end token is, and not a link.

Shapes: L layers, H heads, Q queries, K keys.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.look.measures import Array, relative_offsets, to_json_number

FIGURE_PATTERNS = {"long": 3, "sharp": 4, "structural": 5}  # with the figure of the paper
FAR_DISTANCE = 4  # words: the "long-distance dependencies" of Figure 3
HEADS_PER_PATTERN = 3


def find_heads_like_figures(
    maps_LHQK: NDArray[Any], attention_type: str, words_Q: Sequence[bool], words_K: Sequence[bool]
) -> dict[str, list[dict[str, Any]]]:
    """Return the best heads of each pattern: layer, head, score, and the row that shows it best.

    `words_Q` and `words_K` say which queries and keys are words.
    """
    rows, links_LHQK, offsets_QK = compute_links(maps_LHQK, attention_type, words_Q, words_K)
    if not len(rows):
        return {pattern: [] for pattern in FIGURE_PATTERNS}
    scores = score_heads(links_LHQK, offsets_QK)
    return {pattern: best_heads(score, by_row, rows) for pattern, (score, by_row) in scores.items()}


def compute_links(
    maps_LHQK: NDArray[Any], attention_type: str, words_Q: Sequence[bool], words_K: Sequence[bool]
) -> tuple[NDArray[np.intp], Array, Array]:
    """Return the rows that are words, their weights that count, and the signed distances of the keys.

    There are no rows if no word has another to attend to.
    """
    rows = np.flatnonzero(words_Q)
    offsets_QK = relative_offsets(maps_LHQK.shape[-2], maps_LHQK.shape[-1], attention_type)[rows]
    counted = np.asarray(words_K)[None, :] & ((offsets_QK != 0) if attention_type != "cross" else True)
    if not counted.any():
        rows, offsets_QK, counted = rows[:0], offsets_QK[:0], counted[:0]
    maps = maps_LHQK.astype(np.float64)[:, :, rows]
    mean = maps.mean(-2, keepdims=True) if len(rows) else 0.0
    return rows, np.maximum(maps - mean, 0) * counted, offsets_QK


def score_heads(links_LHQK: Array, offsets_QK: Array) -> dict[str, tuple[Array, Array]]:
    """Return by pattern the score of every head, [L, H], and the contribution of each row, [L, H, Q]."""
    distances = np.abs(offsets_QK)
    far = max(2.0, min(FAR_DISTANCE, links_LHQK.shape[-1] / 2))
    long_LHQ = (links_LHQK * (distances >= far)).sum(-1)
    sharp_LHQ = (links_LHQK * (distances >= 2)).max(-1)
    peaks_LHQ = links_LHQK.max(-1)
    return {
        "long": (long_LHQ.mean(-1), long_LHQ),
        "sharp": (sharp_LHQ.max(-1), sharp_LHQ),
        "structural": (peaks_LHQ.mean(-1) * target_variety(links_LHQK, offsets_QK), peaks_LHQ),
    }


def target_variety(maps: Array, offsets_QK: Array) -> Array:
    """Return the normalized entropy of the peaks of rows, or of their directions if smaller. [L, H]"""
    layers, heads, queries, _ = maps.shape
    variety = np.zeros((layers, heads))
    if queries < 2:
        return variety
    for layer, head in np.ndindex(layers, heads):
        peaks = maps[layer, head].argmax(-1)
        directions = np.rint(offsets_QK[np.arange(queries), peaks])
        variety[layer, head] = min(value_entropy(peaks), value_entropy(directions)) / np.log2(queries)
    return variety


def value_entropy(values: NDArray[Any]) -> float:
    """Return the entropy of the frequencies of values, in bits."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def best_heads(score_LH: Array, by_row_LHQ: Array, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    order = np.argsort(-score_LH, axis=None, kind="stable")[:HEADS_PER_PATTERN]
    heads = [divmod(int(index), score_LH.shape[1]) for index in order]
    return [
        {
            "layer": layer,
            "head": head,
            "score": to_json_number(score_LH[layer, head]),
            "row": int(rows[by_row_LHQ[layer, head].argmax()]),
        }
        for layer, head in heads
    ]
