"""Beam search (6.1) as functions over tensors of fixed shapes.

A beam keeps W hypotheses of each sentence. Of the 2 W best continuations, those that end and rank among the
first W are finished, so that a beam of 1 is greedy search. The W best of the others go on. Finished
hypotheses are ranked by log p / ((5 + L) / 6)^alpha, where L counts the end token. A sentence is done when no
unfinished hypothesis can still beat its worst finished one.

A step updates a BeamState in place, without dynamic shapes and without waiting for the device.
search/driver.py runs it eagerly; inference/cuda_graph_search.py captures it in CUDA graphs.

Shapes: B sentences, W hypotheses of each, R = B W rows in that order; N results of a sentence, T tokens of an
        output at most, C candidates, K vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyheads.config import BOS_ID, EOS_ID
from manyheads.search.options import NEG_INF, Hypothesis, length_penalty


@dataclass(eq=False)
class BeamState:
    """Hypotheses of B sentences, unfinished and finished. Sentences may have different lengths."""

    done: Tensor  # [B] bool: nothing can improve the results, or there is no sentence
    lengths: Tensor  # [B] tokens that each unfinished hypothesis has
    max_lengths: Tensor  # [B]
    min_lengths: Tensor  # [B]
    scores: Tensor  # [B, W] log p so far; -inf where there is no hypothesis
    last_tokens: Tensor  # [B, W] what the model reads next
    tokens: Tensor  # [B, W, T]
    token_scores: Tensor  # [B, W, T]
    finished_scores: Tensor  # [B, N] with the length penalty; -inf where there is none
    finished_lengths: Tensor  # [B, N] with the end token
    finished_tokens: Tensor  # [B, N, T] with the end token
    finished_token_scores: Tensor  # [B, N, T]

    @classmethod
    def allocate(
        cls, sentences: int, beam: int, nbest: int, max_tokens: int, device: torch.device
    ) -> "BeamState":
        """Allocate a state without sentences. `max_tokens` is at least two more than any max_length."""

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        return cls(
            done=torch.ones(sentences, dtype=torch.bool, device=device),
            lengths=integers(sentences),
            max_lengths=integers(sentences),
            min_lengths=integers(sentences),
            scores=floats(sentences, beam).fill_(NEG_INF),
            last_tokens=integers(sentences, beam),
            tokens=integers(sentences, beam, max_tokens),
            token_scores=floats(sentences, beam, max_tokens),
            finished_scores=floats(sentences, nbest).fill_(NEG_INF),
            finished_lengths=integers(sentences, nbest),
            finished_tokens=integers(sentences, nbest, max_tokens),
            finished_token_scores=floats(sentences, nbest, max_tokens),
        )

    def begin(self, slots: Tensor, max_lengths: Tensor, min_lengths: Tensor, branching: bool = True) -> None:
        """Start new sentences in these slots. A beam starts alike, so its first hypothesis stands for all."""
        self.max_lengths[slots], self.min_lengths[slots] = max_lengths, min_lengths
        for values, value in (
            (self.lengths, 0),
            (self.scores, NEG_INF if branching else 0.0),
            (self.scores[:, 0], 0.0),
            (self.last_tokens, BOS_ID),
            (self.finished_scores, NEG_INF),
            (self.done, False),
        ):
            values.index_fill_(0, slots, value)  # an assignment would copy the number to the device, and wait

    def __len__(self) -> int:
        return len(self.done)

    def first(self, sentences: int) -> "BeamState":
        """Return the first sentences, in the same memory."""
        return BeamState(*(values[:sentences] for values in self._tensors()))

    def move(self, old: Tensor, new: Tensor) -> None:
        """Copy the sentences of some slots to others."""
        for values in self._tensors():
            values[new] = values[old]

    def concat(self, other: "BeamState") -> "BeamState":
        """Return these sentences followed by those of another state."""
        max_tokens = max(self.tokens.shape[2], other.tokens.shape[2])
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        return BeamState(*(torch.cat([pad_tokens(part, max_tokens) for part in pair]) for pair in pairs))

    def select(self, sentences: Tensor) -> "BeamState":
        """Return these sentences only."""
        return BeamState(*(values[sentences] for values in self._tensors()))

    def _tensors(self) -> Iterator[Tensor]:
        return (getattr(self, field.name) for field in fields(self))


def pad_tokens(values: Tensor, max_tokens: int) -> Tensor:
    """Return [B, W, T] with this T; other shapes as they are."""
    return values if values.dim() < 3 else F.pad(values, (0, max_tokens - values.shape[2]))


# ---- the step


@dataclass
class Candidates:
    """Continuations of each sentence's hypotheses, best first."""

    scores: Tensor  # [B, C]
    parents: Tensor  # [B, C] the hypothesis that each continues
    tokens: Tensor  # [B, C]
    log_p: Tensor  # [B, C] of the token alone

    def choose(self, scores_BW: Tensor, index_BW: Tensor) -> "Candidates":
        parents, tokens, log_p = (
            values.gather(1, index_BW) for values in (self.parents, self.tokens, self.log_p)
        )
        return Candidates(scores_BW, parents, tokens, log_p)


def beam_step(
    state: BeamState,
    tokens_BWC: Tensor,
    log_p_BWC: Tensor,
    alpha: float,
    may_finish_B: Tensor | None = None,
    revise: Callable[[Candidates], None] | None = None,
) -> Tensor:
    """Extend every hypothesis by one of its candidate tokens. Return the parent of each. [B, W]

    Sentences with required phrases finish and choose their hypotheses elsewhere: `may_finish_B` excludes them
    here, and `revise` replaces what was chosen for them.
    """
    beam = state.scores.shape[1]
    candidates = top_candidates(state.scores, tokens_BWC, log_p_BWC, 2 * beam)
    ends_BC = candidates.tokens == EOS_ID
    in_beam_C = torch.arange(2 * beam, device=ends_BC.device) < beam
    finishing_BC = ends_BC & in_beam_C & ~state.done[:, None]
    if may_finish_B is not None:
        finishing_BC = finishing_BC & may_finish_B[:, None]
    merge_finished(state, candidates, finishing_BC, alpha)
    chosen = candidates.choose(*candidates.scores.masked_fill(ends_BC, NEG_INF).topk(beam, dim=1))
    if revise is not None:
        revise(chosen)
    continue_rows(state, chosen.parents)
    write_tokens(state, chosen.tokens, chosen.log_p)
    state.scores.copy_(chosen.scores)
    state.last_tokens.copy_(chosen.tokens)
    update_done(state, alpha, branching=True)
    return chosen.parents


def top_candidates(scores_BW: Tensor, tokens_BWC: Tensor, log_p_BWC: Tensor, count: int) -> Candidates:
    """Return the best continuations of each sentence, which are among the best of its rows."""
    all_BX = (scores_BW[..., None] + log_p_BWC).flatten(1)
    available = all_BX.shape[1]
    if available < count:  # the vocabulary is smaller than the beam
        all_BX = F.pad(all_BX, (0, count - available), value=NEG_INF)
    top_BC, index_BC = all_BX.topk(count, dim=1)
    if available < count:
        index_BC = index_BC.clamp(max=available - 1)
    return Candidates(
        top_BC,
        index_BC // tokens_BWC.shape[2],
        tokens_BWC.flatten(1).gather(1, index_BC),
        log_p_BWC.flatten(1).gather(1, index_BC),
    )


def merge_finished(state: BeamState, candidates: Candidates, finishing_BC: Tensor, alpha: float) -> None:
    """Keep the N best of what was finished before and what finishes now."""
    length_B1, nbest = state.lengths[:, None] + 1, state.finished_scores.shape[1]
    now_BC = (candidates.scores / length_penalty(length_B1, alpha)).masked_fill(~finishing_BC, NEG_INF)
    best_BN, index_BN = torch.cat((state.finished_scores, now_BC), 1).topk(nbest, dim=1)
    old_BN, new_BN = index_BN.clamp(max=nbest - 1), (index_BN - nbest).clamp(min=0)
    is_new_BN = index_BN >= nbest
    parents_BN = candidates.parents.gather(1, new_BN)
    position_BN1 = state.lengths[:, None, None].expand(-1, nbest, 1)

    def merge(finished_BNT: Tensor, unfinished_BWT: Tensor, last_BN: Tensor) -> None:
        before = finished_BNT.gather(1, old_BN[..., None].expand_as(finished_BNT))
        now = unfinished_BWT.gather(1, parents_BN[..., None].expand_as(finished_BNT))
        now = now.scatter(2, position_BN1, last_BN[..., None])
        finished_BNT.copy_(torch.where(is_new_BN[..., None], now, before))

    merge(state.finished_tokens, state.tokens, torch.full_like(parents_BN, EOS_ID))
    merge(state.finished_token_scores, state.token_scores, candidates.log_p.gather(1, new_BN))
    state.finished_lengths.copy_(torch.where(is_new_BN, length_B1, state.finished_lengths.gather(1, old_BN)))
    state.finished_scores.copy_(best_BN)


def continue_rows(state: BeamState, parents_BW: Tensor) -> None:
    """Give every row what its parent has written."""
    index = parents_BW[..., None].expand_as(state.tokens)
    state.tokens.copy_(state.tokens.gather(1, index))
    state.token_scores.copy_(state.token_scores.gather(1, index))


def write_tokens(state: BeamState, tokens_BW: Tensor, log_p_BW: Tensor) -> None:
    """Append a token and its log p to every row."""
    position_BW1 = state.lengths[:, None, None].expand(*tokens_BW.shape, 1)
    state.tokens.scatter_(2, position_BW1, tokens_BW[..., None])
    state.token_scores.scatter_(2, position_BW1, log_p_BW[..., None])


def greedy_step(state: BeamState, tokens_BW: Tensor, log_p_BW: Tensor, alpha: float) -> None:
    """Extend every row by the token picked for it. Rows are independent: result w is what row w ends as."""
    scores_BW = state.scores + log_p_BW
    write_tokens(state, tokens_BW, log_p_BW)
    ends_BW = (tokens_BW == EOS_ID) & (scores_BW > NEG_INF) & ~state.done[:, None]
    length_B1 = state.lengths[:, None] + 1
    for finished, now in (
        (state.finished_scores, scores_BW / length_penalty(length_B1, alpha)),
        (state.finished_lengths, length_B1),
    ):
        finished.copy_(torch.where(ends_BW, now, finished))
    for finished, now in (
        (state.finished_tokens, state.tokens),
        (state.finished_token_scores, state.token_scores),
    ):
        finished.copy_(torch.where(ends_BW[..., None], now, finished))
    state.scores.copy_(scores_BW.masked_fill(tokens_BW == EOS_ID, NEG_INF))
    state.last_tokens.copy_(tokens_BW)
    update_done(state, alpha, branching=False)


def update_done(state: BeamState, alpha: float, branching: bool) -> None:
    """Count the new token and mark the sentences whose results are final.

    A score can only fall, so divided by the penalty of the maximum length it bounds what can come of it.
    """
    state.lengths.add_(1).clamp_(max=state.tokens.shape[2] - 1)
    best_B = state.scores.amax(1)
    if branching:
        bound_B = best_B / length_penalty(state.max_lengths + 1, alpha)
        done_B = state.finished_scores.amin(1) >= bound_B
    else:
        done_B = best_B == NEG_INF
    state.done.logical_or_(done_B | (state.lengths > state.max_lengths))  # also where a score is NaN


# ---- candidates and results


def row_candidates(logits_BWK: Tensor, log_total_BW: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the likeliest tokens of each row and their log p. [B, W, C] each"""
    values_BWC, tokens_BWC = logits_BWK.topk(min(count, logits_BWK.shape[2]), dim=-1)
    return tokens_BWC, values_BWC - log_total_BW[..., None]


def read_hypotheses(
    scores: Tensor, lengths: Tensor, tokens: Tensor, token_scores: Tensor | None, alpha: float
) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence, best first, from the state's tensors on the host."""
    log_p = (scores * length_penalty(lengths, alpha)).flatten().tolist()
    values = scores.flatten().tolist()
    ids = split_rows(tokens, lengths - 1)
    own_scores = split_rows(token_scores, lengths) if token_scores is not None else None
    hypotheses = [
        Hypothesis(ids[row], own_scores[row], value)
        if own_scores
        else Hypothesis(ids[row], [], value, log_p[row])
        for row, value in enumerate(values)
    ]
    width = scores.shape[1]
    if width == 1:
        return [[own] if own.score > NEG_INF else [] for own in hypotheses]
    results = []
    for start in range(0, len(hypotheses), width):
        finished = [own for own in hypotheses[start : start + width] if own.score > NEG_INF]
        results.append(sorted(finished, key=lambda hypothesis: -hypothesis.score))
    return results


def split_rows(values_BNT: Tensor, lengths_BN: Tensor) -> list[list[Any]]:
    """Return the first so many values of each row. Only these are converted: most rows are far from full."""
    rows, lengths = values_BNT.flatten(0, 1).numpy(), lengths_BN.flatten().clamp(min=0).numpy()
    max_length = int(lengths.max()) if len(lengths) else 0
    is_kept = np.arange(max_length) < lengths[:, None]
    flat = rows[:, :max_length][is_kept].tolist()
    ends = np.cumsum(lengths).tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
