"""What a search is asked for, what it returns, and how much of it runs at once."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

NEG_INF = -math.inf  # the score of what must not come out

Length = TypeVar("Length", float, "Tensor")


def length_penalty(length: Length, alpha: float) -> Length:
    """Return ((5 + L) / 6)^alpha (6.1), the end token counted in L."""
    penalty: Length = ((5 + length) / 6) ** alpha
    return penalty


@dataclass(frozen=True)
class DecodingConstraints:
    """What the output of one sentence must satisfy. Lengths do not count the end token."""

    max_length: int
    min_length: int = 0
    prefix: tuple[int, ...] = ()  # the first tokens
    required_phrases: tuple[tuple[int, ...], ...] = ()  # each must occur, as often as it is listed
    forbidden_phrases: tuple[tuple[int, ...], ...] = ()
    whole_word_phrases: tuple[tuple[int, ...], ...] = ()  # required phrases that end a word
    word_start_ids: frozenset[int] = frozenset()  # tokens that may follow those, besides the end token
    seed: int = 0  # of this sentence's random numbers

    @property
    def num_required(self) -> int:
        """How many tokens the required phrases have."""
        return sum(map(len, self.required_phrases))

    def widen_beam(self, beam: int) -> int:
        """Return a beam with a hypothesis for each required token and one without, or wider."""
        return max(beam, 1 + self.num_required) if self.required_phrases else beam


class Request(NamedTuple):
    """A source sentence, which ends with the end token, and the constraints on its output."""

    source: list[int]
    constraints: DecodingConstraints

    def count_beam_tokens(self, num_hypotheses: int) -> int:
        """Return the cost of decoding: tokens of the source and of what is forced, times the hypotheses."""
        own = self.constraints
        num_tokens = len(self.source) + len(own.prefix) + own.num_required
        return num_tokens * own.widen_beam(num_hypotheses)


@dataclass(frozen=True)
class Hypothesis:
    """A result: its tokens without begin and end, and their scores."""

    tokens: list[int]
    token_scores: list[float]  # log p of each token, the end token last; empty if not requested
    score: float  # log p of the whole, divided by the length penalty
    known_log_probability: float | None = None  # log p of the whole, where token_scores is empty

    @property
    def log_probability(self) -> float:
        """Log p of the whole sequence: what forced decoding gives."""
        if self.known_log_probability is None:
            return sum(self.token_scores)
        return self.known_log_probability


@dataclass(frozen=True)
class SearchLimits:
    """How much an eager search does at once."""

    max_rows: int = 256  # hypotheses in the batch
    poll_interval: int = 1  # steps between checks for finished sentences; on a GPU each check synchronizes
    refill_fraction: float = 1.0  # of the batch that must be free before waiting sentences are admitted
    retire_fraction: float = 0.25  # of the batch that must be done before finished sentences leave
    yields_every_poll: bool = False  # even without results, so that the caller can run something else
