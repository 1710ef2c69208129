"""Measures of attention heads.

Every measure is a mean over the queries (the rows of a map). The reference position of a query is its own;
in cross-attention it is the position as far into the source as the query is into the target.

entropy    -sum p log2 p, in bits: 0 if all weight is on one key, log2 K if it is uniform
distance   sum p |key - reference|, in tokens or words
diagonal   the share within half a position of the reference
previous   the share on the previous position, without the first query; undefined for cross-attention
edge       the share on the end of the sentence, where idle heads put their weight; the decoder cannot see
           its end, and uses its beginning

Shapes: L layers, H heads, Q queries, K keys.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MEASURES = ["entropy", "distance", "diagonal", "previous", "edge"]

Array = NDArray[np.float64]


def compute_measures(maps_LHQK: NDArray[Any], attention_type: str) -> list[list[list[float | None]]]:
    """Return the five measures by layer and head; None where a measure is undefined."""
    maps = maps_LHQK.astype(np.float64)
    distances_QK = np.abs(relative_offsets(maps.shape[-2], maps.shape[-1], attention_type))
    values = [
        entropy(maps),
        (maps * distances_QK).sum(-1).mean(-1),
        (maps * (distances_QK <= 0.5)).sum(-1).mean(-1),
        previous_share(maps, attention_type),
        maps[..., edge_index(attention_type)].mean(-1),
    ]
    rows = np.stack(values, -1)
    return [[[to_json_number(value) for value in head] for head in layer] for layer in rows]


def to_json_number(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")


def entropy(maps: Array) -> Array:
    logs = np.log2(maps, out=np.zeros_like(maps), where=maps > 0)  # 0 log 0 is 0
    mean: Array = (0.0 - maps * logs).sum(-1).mean(-1)  # 0.0 minus: never -0.0
    return mean


def previous_share(maps: Array, attention_type: str) -> Array:
    if attention_type == "cross" or maps.shape[-2] < 2:
        undefined: Array = np.full(maps.shape[:-2], np.nan)
        return undefined
    share: Array = np.trace(maps, offset=-1, axis1=-2, axis2=-1) / (maps.shape[-2] - 1)
    return share


def relative_offsets(queries: int, keys: int, attention_type: str) -> Array:
    """Return the signed distance of each key from the reference position of each query. [Q, K]"""
    ratio = (keys - 1) / max(queries - 1, 1) if attention_type == "cross" else 1.0
    offsets: Array = np.arange(keys)[None, :] - ratio * np.arange(queries)[:, None]
    return offsets


def edge_index(attention_type: str) -> int:
    return 0 if attention_type == "decoder" else -1
