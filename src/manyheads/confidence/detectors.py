"""Detectors of failed translations: loops, empty outputs, and outputs that no source explains.

A loop is an n-gram of up to MAX_PERIOD tokens that the output repeats at least MIN_REPEATS times in a row,
over at least MIN_LOOP tokens, and clearly more often than the source repeats one; or four tokens that occur
MIN_OCCURRENCES times more often than any four of the source.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyheads.confidence.ragged import Ragged, count_repeats

MAX_PERIOD, MIN_REPEATS, MIN_LOOP = 8, 4, 8
EXTRA_REPEATS = 2  # of the output beyond the source
GRAM, MIN_OCCURRENCES = 4, 5
MAX_RATIO, MIN_RATIO = 3.0, 0.25  # of the output's length to the expected one
MIN_ABSURD_LENGTH = 20  # tokens of what is too long for its counterpart


class Repetition(NamedTuple):
    """An n-gram that is repeated in a row."""

    start: int
    period: int  # n
    repeats: int  # times that it occurs

    @property
    def length(self) -> int:
        return self.period * self.repeats


def find_repetition(tokens: Sequence[object]) -> Repetition:
    """Return the n-gram that is repeated most often in a row; of equally frequent ones the shortest."""
    best = Repetition(0, len(tokens), 1)
    for period in range(1, min(MAX_PERIOD, len(tokens) // 2) + 1):
        run = 0
        for index in range(period, len(tokens)):
            run = run + 1 if tokens[index] == tokens[index - period] else 0
            repeats = run // period + 1
            if repeats > best.repeats and repeats > 1:
                best = Repetition(index + 1 - repeats * period, period, repeats)
    return best


def find_loop(output: Sequence[object], source: Sequence[object]) -> Repetition | None:
    """Return the loop of an output, if it has one that its source does not explain."""
    repetition = find_repetition(output)
    is_long = repetition.repeats >= MIN_REPEATS and repetition.length >= MIN_LOOP
    if is_long and repetition.repeats > find_repetition(source).repeats + EXTRA_REPEATS:
        return repetition
    positions, occurrences = find_frequent_gram(output)
    if occurrences >= MIN_OCCURRENCES + find_frequent_gram(source)[1]:
        return Repetition(positions[0], positions[1] - positions[0], occurrences)
    return None


def find_loop_spans(output: Sequence[object], source: Sequence[object]) -> list[tuple[int, int]]:
    """Return where the tokens of the output's loop are; nothing if it has none."""
    loop = find_loop(output, source)
    if loop is None:
        return []
    if find_repetition(output) == loop:
        return [(loop.start, loop.start + loop.length)]
    return [(start, start + GRAM) for start in find_frequent_gram(output)[0]]


def find_frequent_gram(tokens: Sequence[object]) -> tuple[list[int], int]:
    """Return the positions of the most frequent GRAM tokens in a row, and their number."""
    grams = [tuple(tokens[n : n + GRAM]) for n in range(len(tokens) - GRAM + 1)]
    if not grams:
        return [], 0
    gram, count = Counter(grams).most_common(1)[0]
    return [n for n, other in enumerate(grams) if other == gram], count


def cut_loop(output: list[int], source: Sequence[int]) -> list[int]:
    """Return the output with each loop reduced to its first n-gram."""
    while (loop := find_loop(output, source)) is not None:
        is_periodic = find_repetition(output) == loop
        end = loop.start + loop.length if is_periodic else len(output)
        output = output[: loop.start + loop.period] + output[end:]
    return output


def has_repetition(outputs: Ragged) -> NDArray[np.bool_]:
    """Return which outputs may hold a loop: a fast check that misses none."""
    ids, owners, lengths = outputs.ids, outputs.owners, outputs.lengths
    suspected = count_repeats(outputs, GRAM) >= MIN_OCCURRENCES - 1
    if not (lengths >= MIN_LOOP).any():
        return suspected
    for period in range(1, MAX_PERIOD + 1):
        run = max(MIN_REPEATS * period, MIN_LOOP) - period  # tokens that equal the one a period before
        if len(ids) < run + period:
            break
        is_equal = (ids[period:] == ids[:-period]) & (owners[period:] == owners[:-period])
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_equal)))
        suspected[owners[period:][run - 1 :][total[run:] - total[:-run] == run]] = True
    return suspected


def find_failure(
    source: Sequence[int], output: Sequence[int], max_length: int, log_length_ratio: float
) -> str | None:
    """Return what is wrong with an output, or None. The source ends with the end token.

    `max_length` is the limit at which the search would have cut the output.
    """
    plain = source[:-1]
    if not output:
        return "empty" if plain else None
    if find_loop(output, plain) is not None:
        return "loop"
    if len(output) >= max_length:
        return "cut at the length limit"
    ratio = (len(output) + 1) / len(source) / math.exp(log_length_ratio)
    if ratio > MAX_RATIO and len(output) >= MIN_ABSURD_LENGTH:
        return "too long"
    if ratio < MIN_RATIO and len(plain) >= MIN_ABSURD_LENGTH:
        return "too short"
    return None


def find_failures(
    sources: Sequence[list[int]],
    outputs: Sequence[list[int]],
    max_lengths: Sequence[int],
    log_length_ratio: float,
) -> list[str | None]:
    """Return what is wrong with each output. Only suspicious ones are looked at closely."""
    output, lengths = Ragged.of(outputs), np.fromiter(map(len, sources), np.int64, len(sources))
    ratio = (output.lengths + 1) / np.maximum(1, lengths) / math.exp(log_length_ratio)
    suspected = has_repetition(output) | (output.lengths == 0) | (output.lengths >= np.asarray(max_lengths))
    suspected |= (ratio > MAX_RATIO) | (ratio < MIN_RATIO)
    failures: list[str | None] = [None] * len(sources)
    for n in np.flatnonzero(suspected).tolist():
        failures[n] = find_failure(sources[n], outputs[n], max_lengths[n], log_length_ratio)
    return failures
