"""What a reader wants to know of a head, as numbers; and heads like those of the paper's Figures 3 to 5.

Every measure is a mean over those who look (the rows of a map). A row's home is its own place; between two
sentences (cross) it is the place as far into the source as the row is into the target.

entropy    -sum p log2 p, in bits: 0 looks at one place, log2 K at all alike
distance   sum p |place - home|: how far away it looks, in tokens or words
diagonal   the share at home: within half a place of it
previous   the share on the place before its own, the first row left out; cross-attention has none
edge       the share on the sentence's end, where heads rest that have nothing to do; the decoder cannot see
           its end, and rests on its begin

Shapes: L layers, H heads, Q who looks, K who is looked at.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEASURES = ["entropy", "distance", "diagonal", "previous", "edge"]
FIGURE_PATTERNS = {
    "long": 3,
    "sharp": 4,
    "structural": 5,
}  # what is looked for, and the figure of the paper that shows it
FAR_DISTANCE = 4  # words: from here on Figure 3 speaks of the distance
HEADS_PER_PATTERN = 3  # heads of each likeness

Array = NDArray[np.float64]


def compute_measures(maps_LHQK: NDArray[Any], kind: str) -> list[list[list[float | None]]]:
    """Of each layer and head the five measures; None where there is none."""
    maps = maps_LHQK.astype(np.float64)
    away_QK = np.abs(relative_offsets(maps.shape[-2], maps.shape[-1], kind))
    values = [
        entropy(maps),
        (maps * away_QK).sum(-1).mean(-1),
        (maps * (away_QK <= 0.5)).sum(-1).mean(-1),
        previous_share(maps, kind),
        maps[..., edge_index(kind)].mean(-1),
    ]
    rows = np.stack(values, -1)
    return [[[to_json_number(one) for one in head] for head in layer] for layer in rows]


def to_json_number(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")


def entropy(maps: Array) -> Array:
    logs = np.log2(maps, out=np.zeros_like(maps), where=maps > 0)  # 0 log 0 is 0
    found: Array = (0.0 - maps * logs).sum(-1).mean(-1)  # never minus zero
    return found


def previous_share(maps: Array, kind: str) -> Array:
    if kind == "cross" or maps.shape[-2] < 2:
        nothing: Array = np.full(maps.shape[:-2], np.nan)
        return nothing
    found: Array = np.trace(maps, offset=-1, axis1=-2, axis2=-1) / (maps.shape[-2] - 1)
    return found


def relative_offsets(queries: int, keys: int, kind: str) -> Array:
    """How far each place lies from each row's home, to the right positive. [Q, K]"""
    stretch = (keys - 1) / max(queries - 1, 1) if kind == "cross" else 1.0
    found: Array = np.arange(keys)[None, :] - stretch * np.arange(queries)[:, None]
    return found


def edge_index(kind: str) -> int:
    return 0 if kind == "decoder" else -1


# ---- heads like those of the figures


def find_heads_like_figures(
    maps_LHQK: NDArray[Any], kind: str, words_Q: Sequence[bool], words_K: Sequence[bool]
) -> dict[str, list[dict[str, Any]]]:
    """By likeness the best heads, best first: layer, head, score, and the row that shows it best.

    Only what words do to other words counts: `words_Q` and `words_K` say which places are words, not
    punctuation and not the begin or end sign; and within one sentence no word counts for itself. Of a weight
    counts what exceeds the mean that its word gets from all rows: a word that all look at is a place of rest,
    as the end is, and no link.

    long        Figure 3: the mean share on words that are far away, four words or half the sentence
    sharp       Figure 4: the largest single weight on a word that is no neighbor
    structural  Figure 5: how strongly rows point at one other word, times how much this word and its
                direction change from row to row (the smaller of their entropies, 1 at most): a head that
                knows positions only, such as "the word before", always points the same way and gets 0
    """
    rows, links_LHQK, offsets_QK = compute_links(maps_LHQK, kind, words_Q, words_K)
    if not len(rows):
        return {likeness: [] for likeness in FIGURE_PATTERNS}
    scores = score_heads(links_LHQK, offsets_QK)
    return {likeness: best_heads(score, by_row, rows) for likeness, (score, by_row) in scores.items()}


def compute_links(
    maps_LHQK: NDArray[Any], kind: str, words_Q: Sequence[bool], words_K: Sequence[bool]
) -> tuple[NDArray[np.intp], Array, Array]:
    """The rows that are words, what of their weights counts, and how far it leads, to the right positive.

    Where no word has another to look at, there are no rows.
    """
    rows = np.flatnonzero(words_Q)
    offsets_QK = relative_offsets(maps_LHQK.shape[-2], maps_LHQK.shape[-1], kind)[rows]
    counted = np.asarray(words_K)[None, :] & ((offsets_QK != 0) if kind != "cross" else True)
    if not counted.any():
        rows, offsets_QK, counted = rows[:0], offsets_QK[:0], counted[:0]
    maps = maps_LHQK.astype(np.float64)[:, :, rows]
    rest = maps.mean(-2, keepdims=True) if len(rows) else 0.0
    return rows, np.maximum(maps - rest, 0) * counted, offsets_QK


def score_heads(links_LHQK: Array, offsets_QK: Array) -> dict[str, tuple[Array, Array]]:
    """By likeness the score of every head, [L, H], and what each row adds to it or shows of it, [L, H, Q]."""
    away = np.abs(offsets_QK)
    far = max(2.0, min(FAR_DISTANCE, links_LHQK.shape[-1] / 2))
    long_LHQ = (links_LHQK * (away >= far)).sum(-1)
    sharp_LHQ = (links_LHQK * (away >= 2)).max(-1)
    peaks_LHQ = links_LHQK.max(-1)
    return {
        "long": (long_LHQ.mean(-1), long_LHQ),
        "sharp": (sharp_LHQ.max(-1), sharp_LHQ),
        "structural": (peaks_LHQ.mean(-1) * target_variety(links_LHQK, offsets_QK), peaks_LHQ),
    }


def target_variety(maps: Array, offsets_QK: Array) -> Array:
    """The entropy of what rows point at, or of the directions if smaller; 1 where all rows differ. [L, H]"""
    layers, heads, queries, _ = maps.shape
    found = np.zeros((layers, heads))
    if queries < 2:
        return found
    for layer, head in np.ndindex(layers, heads):
        places = maps[layer, head].argmax(-1)
        directions = np.rint(offsets_QK[np.arange(queries), places])
        found[layer, head] = min(value_entropy(places), value_entropy(directions)) / np.log2(queries)
    return found


def value_entropy(values: NDArray[Any]) -> float:
    """The entropy of how often each value occurs, in bits."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def best_heads(score_LH: Array, by_row_LHQ: Array, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    order = np.argsort(-score_LH, axis=None, kind="stable")[:HEADS_PER_PATTERN]
    places = [divmod(int(one), score_LH.shape[1]) for one in order]
    return [
        {
            "layer": layer,
            "head": head,
            "score": to_json_number(score_LH[layer, head]),
            "row": int(rows[by_row_LHQ[layer, head].argmax()]),
        }
        for layer, head in places
    ]
