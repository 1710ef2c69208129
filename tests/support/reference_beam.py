"""Beam search over one sentence in plain Python, written from its description and not from the package."""

from collections.abc import Callable, Sequence
from typing import Any


def reference_beam(
    next_log_p: Callable[[Sequence[int]], list[float]],
    end: int,
    max_length: int,
    beam: int,
    alpha: float,
    nbest: int = 1,
) -> tuple[list[dict[str, Any]], int]:
    """Return the best outputs as {"tokens", "score"}, best first, and the number of steps.

    `next_log_p` gets the tokens of a hypothesis. A beam of 1 is greedy search: it stops at the first end.
    """

    def penalty(length: int) -> float:
        return ((5 + length) / 6) ** alpha

    unfinished: list[dict[str, Any]] = [{"tokens": [], "log_p": 0.0}]
    finished: list[dict[str, Any]] = []
    for length in range(max_length + 1):
        continuations = []
        for hypothesis in unfinished:
            for token, log_p in enumerate(next_log_p(hypothesis["tokens"])):
                if token == end or length < max_length:
                    tokens = [*hypothesis["tokens"], token]
                    continuations.append({"tokens": tokens, "log_p": hypothesis["log_p"] + log_p})
        continuations.sort(key=lambda item: -item["log_p"])
        for item in continuations[:beam]:
            if item["tokens"][-1] == end:
                score = item["log_p"] / penalty(length + 1)
                finished.append({"tokens": item["tokens"][:-1], "score": score})
        finished = sorted(finished, key=lambda item: -item["score"])[:nbest]
        unfinished = [item for item in continuations[: 2 * beam] if item["tokens"][-1] != end][:beam]
        if len(finished) == nbest:
            bounds = [item["log_p"] / penalty(max_length + 1) for item in unfinished]
            if beam == 1 or all(finished[-1]["score"] >= bound for bound in bounds):
                break
    return finished, length + 1
