"""What is decoded, and what comes of it, as JSON for another process."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.config import DecodingConfig
from manyheads.search.options import DecodingConstraints, Hypothesis, Request

DEFAULTS = {
    field.name: field.default for field in fields(DecodingConstraints) if field.default is not MISSING
}


@lru_cache(maxsize=256)
def encode_config(config: DecodingConfig) -> str:
    return json.dumps(asdict(config))


@lru_cache(maxsize=256)
def decode_config(text: str) -> DecodingConfig:
    return DecodingConfig(**json.loads(text))


def encode_request(request: Request) -> list[Any]:
    """Return the source, and of the constraints only those that are set."""
    own = request.constraints
    extra = {name: getattr(own, name) for name, default in DEFAULTS.items() if getattr(own, name) != default}
    if "word_start_ids" in extra:
        extra["word_start_ids"] = sorted(own.word_start_ids)
    return [request.source, own.max_length, extra] if extra else [request.source, own.max_length]


def decode_request(source: list[int], max_length: int, extra: dict[str, Any] | None = None) -> Request:
    if not extra:
        return Request(source, create_plain_constraints(max_length))
    values = {name: freeze(value) for name, value in extra.items()}
    if "word_start_ids" in values:
        values["word_start_ids"] = frozenset(values["word_start_ids"])
    return Request(source, DecodingConstraints(max_length, **values))


@lru_cache(maxsize=4096)
def create_plain_constraints(max_length: int) -> DecodingConstraints:
    return DecodingConstraints(max_length)


def freeze(value: Any) -> Any:
    return tuple(map(freeze, value)) if isinstance(value, list) else value


def encode_hypotheses(hypotheses: list[Hypothesis]) -> list[Any]:
    return [[own.tokens, own.token_scores, own.score, own.known_log_probability] for own in hypotheses]


def decode_hypotheses(rows: list[list[Any]]) -> list[Hypothesis]:
    return [Hypothesis(*row) for row in rows]


def decode_alignments(
    rows: Sequence[list[list[float]]], sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[NDArray[np.float32]]:
    """Return arrays of NumPy, which is all that a process without the engine has. [T + 1, S] each"""
    return [
        np.array(own, np.float32).reshape(len(target) + 1, len(source))
        for own, source, target in zip(rows, sources, targets, strict=True)
    ]
