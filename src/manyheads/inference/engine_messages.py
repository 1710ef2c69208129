"""What processes send each other about an engine: requests and results as JSON, and what an engine can do."""

import json
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from typing import Any, get_args

from manyheads.config import DecodingConfig
from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities, Engine, Feature
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


# ---- the engine


def describe_engine(engine: Engine) -> dict[str, Any]:
    """Return what a DescribedEngine needs to know."""
    reasons = {}
    for feature in get_args(Feature):
        try:
            engine.require(feature)
        except RequestError as error:
            reasons[feature] = str(error)
    return {
        "name": engine.name,
        "objective": engine.objective,
        "read_ahead": engine.read_ahead,
        "capabilities": asdict(engine.capabilities),
        "reasons": reasons,
    }


class DescribedEngine:
    """What is known here of an engine that runs in another process."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.name: str = description["name"]
        self.objective: str = description["objective"]
        self.read_ahead: int = description["read_ahead"]
        capabilities = {**description["capabilities"]}
        self.capabilities = Capabilities(**capabilities | {"devices": tuple(capabilities["devices"])})
        self._reasons: dict[str, str] = description["reasons"]  # by feature that is missing

    def require(self, feature: Feature) -> None:
        if feature in self._reasons:
            raise RequestError(self._reasons[feature])
