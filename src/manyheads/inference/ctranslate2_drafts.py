"""Hypotheses of CTranslate2 before they are ranked, and what sentences of one call share."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from manyheads.search.options import DecodingConstraints, Hypothesis, length_penalty


@dataclass(slots=True)
class Draft:
    """A hypothesis of CTranslate2, before it is ranked."""

    tokens: list[int]  # without the end token
    log_probability: float  # as the search counted it
    is_cut: bool  # whether the maximum length, and not the model, ended it
    is_exact: bool  # whether forced decoding would give the same log p
    token_scores: list[float] = field(default_factory=list)

    def set_scores(self, token_scores: list[float]) -> None:
        """Take the scores of forced decoding."""
        self.token_scores, self.log_probability, self.is_exact = token_scores, sum(token_scores), True

    def rank(self, alpha: float) -> float:
        return self.log_probability / length_penalty(len(self.tokens) + 1, alpha)

    def to_hypothesis(self, alpha: float) -> Hypothesis:
        log_probability = self.log_probability if self.is_exact else math.nan
        score = log_probability / length_penalty(len(self.tokens) + 1, alpha)
        return Hypothesis(self.tokens, self.token_scores, score, log_probability)


class CallOptions(NamedTuple):
    """What sentences must share to be searched in one call. Lengths do not count the end token."""

    max_length: int  # in this call
    min_length: int
    forbidden_phrases: tuple[tuple[int, ...], ...]
    has_prefix: bool
    uses_shortlist: bool

    @classmethod
    def for_constraints(
        cls, constraints: DecodingConstraints, max_length: int, uses_shortlist: bool = False
    ) -> "CallOptions":
        min_length = min(constraints.min_length, max_length)
        has_prefix = bool(constraints.prefix)
        return cls(max_length, min_length, constraints.forbidden_phrases, has_prefix, uses_shortlist)


def make_forced_draft(constraints: DecodingConstraints) -> Draft:
    """Return the only possible output: the prefix fills the length, or there is nothing to translate."""
    return Draft(list(constraints.prefix[: constraints.max_length]), math.nan, is_cut=True, is_exact=False)


def cut_draft(draft: Draft, max_length: int) -> Draft:
    if len(draft.tokens) <= max_length:
        return draft
    return Draft(draft.tokens[:max_length], math.nan, is_cut=True, is_exact=False)


def is_partly_cut(drafts: list[Draft]) -> bool:
    return len({draft.is_cut for draft in drafts}) == 2
