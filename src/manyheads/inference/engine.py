"""The interface of every engine: what runs a model on token ids."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from manyheads.config import DecodingConfig
from manyheads.errors import RequestError
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.request_source import RequestSource

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.model.encoder_decoder import Trace

ScoreDetail = Literal["none", "total", "tokens"]  # no scores; those of sentences; those of tokens too
Feature = Literal["sampling", "forbidden_phrases", "required_phrases", "alignment", "attention"]


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do with its model."""

    sampling: bool  # a temperature, top k, top p
    forbidden_phrases: bool
    required_phrases: bool  # what a glossary needs
    alignment: bool  # which source token each target token attended to most
    attention: bool  # the attention weights of every head
    token_scores: bool
    devices: tuple[str, ...]
    max_positions: int | None  # tokens of a source or target at most; None: no limit


class Decoder(Protocol):
    """Decodes requests."""

    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each request and its hypotheses, best first, as they finish.

        Requests are those of an iterable, or of a RequestSource that other threads fill meanwhile. The engine
        groups them as it likes. It reads at most `window` of them from the oldest unfinished one on; None
        reads all of them. `scores` says which scores the caller reads: an engine may have to compute them.
        """
        ...


class Engine(Decoder, Protocol):
    """Runs a model. Sources end with the end token; targets have neither begin nor end."""

    name: str  # torch, or ctranslate2 with its compute type; results carry it
    objective: str  # what results are searched and ranked by; results carry it
    read_ahead: int  # requests of a stream that are worth holding at once

    @property
    def capabilities(self) -> Capabilities: ...

    def require(self, feature: Feature) -> None:
        """Raise a RequestError with the reason if the engine lacks a capability."""
        ...

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return log p of each token of each target, the end token last: forced decoding."""
        ...

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> "list[Tensor]":
        """Return how much each target token attends to each source token, ends included. [T + 1, S] each"""
        ...

    def trace(self, source: list[int], target: list[int]) -> "tuple[Trace, Tensor]":
        """Return all attention weights of one translation, and log p of every word at each step."""
        ...


def decode_all(
    decoder: Decoder,
    sources: Sequence[list[int]],
    constraints: Sequence[DecodingConstraints],
    config: DecodingConfig,
    *,
    scores: ScoreDetail = "total",
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first, in the order of the sources."""
    if len(sources) != len(constraints):
        raise RequestError(
            f"{len(sources)} sources, but {len(constraints)} constraints: give one for each source"
        )
    requests = [Request(source, own) for source, own in zip(sources, constraints, strict=True)]
    results: list[list[Hypothesis]] = [[] for _ in requests]
    for index, hypotheses in decoder.decode(requests, config, scores=scores):
        results[index] = hypotheses
    return results
