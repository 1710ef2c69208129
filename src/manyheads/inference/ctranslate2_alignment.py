"""Alignments by CTranslate2: the attention of the last layer over the source, its heads averaged."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyheads.inference.batching import group_by_tokens

ALIGNED_TOKENS = 1024  # of sources or targets at once


def align_pieces(translator: Any, sources: Sequence[list[str]], targets: Sequence[list[str]]) -> list[Any]:
    """Return an array [T + 1, S] for each pair of a source with its end and a target without.

    The target is a prefix that the search must begin with, so that every step is forced but the last.
    """
    sizes = [(len(target) + 1, len(source)) for source, target in zip(sources, targets, strict=True)]
    results = [np.zeros(size, np.float32) for size in sizes]
    for indices in group_by_tokens(list(map(max, sizes)), ALIGNED_TOKENS):
        aligned = translator.translate_batch(
            [sources[n] for n in indices],
            [targets[n] for n in indices],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(len(targets[n]) for n in indices) + 1,
            return_end_token=True,
            return_attention=True,
        )
        for index, result in zip(indices, aligned, strict=True):
            rows = result.attention[0][: len(results[index])]
            if rows:  # none for an empty source, for which CTranslate2 does not run the model
                results[index][: len(rows)] = rows
    return results
