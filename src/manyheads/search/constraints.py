"""Constraints on the output: lengths, prefix, forbidden and required phrases, no repeated n-grams.

Most of them rule out tokens: their logits become -inf, and what is left keeps its probability. Required
phrases need more: the beam is divided among hypotheses by how much of them they contain (Post and Vilar,
2018).

Shapes: B sentences, W hypotheses of each; C candidates of a row, K vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyheads.config import EOS_ID
from manyheads.search.beam import BeamState, Candidates
from manyheads.search.options import NEG_INF, DecodingConstraints, length_penalty

# ---- tokens that are ruled out


def mask_logits(
    logits_BWK: Tensor,
    tokens_BWT: Tensor,
    constraints: Sequence[DecodingConstraints],
    lengths: Sequence[int],
    no_repeat_ngram: int | None,
) -> None:
    """Set the logits of tokens that the constraints rule out to -inf, in place."""
    if no_repeat_ngram:
        free = [length >= len(own.prefix) for own, length in zip(constraints, lengths, strict=True)]
        counted = [length if is_free else 0 for length, is_free in zip(lengths, free, strict=True)]
        lengths_B = torch.tensor(counted, dtype=torch.int64, device=logits_BWK.device)
        mask_repeated_ngrams(logits_BWK, tokens_BWT, lengths_B, no_repeat_ngram)
    for sentence, (own, length) in enumerate(zip(constraints, lengths, strict=True)):
        if length >= own.max_length:
            keep_only(logits_BWK[sentence], EOS_ID)
        elif length < len(own.prefix):
            keep_only(logits_BWK[sentence], own.prefix[length])
        elif own.forbidden_phrases:
            for row, written in enumerate(tokens_BWT[sentence, :, :length].tolist()):
                banned = find_banned_tokens(written, own.forbidden_phrases)
                logits_BWK[sentence, row, banned] = NEG_INF
    unfinished = [n for n, own in enumerate(constraints) if must_continue(own, lengths[n])]
    if unfinished:
        chosen = slice(None) if len(unfinished) == len(constraints) else unfinished
        logits_BWK[chosen, :, EOS_ID] = NEG_INF


def must_continue(constraints: DecodingConstraints, length: int) -> bool:
    """Return whether an output of this length is still too short to end."""
    return length < min(constraints.max_length, max(constraints.min_length, len(constraints.prefix)))


def keep_only(logits_WK: Tensor, token: int) -> None:
    kept_W = logits_WK[:, token].clone()
    logits_WK.fill_(NEG_INF)
    logits_WK[:, token] = kept_W


def find_banned_tokens(written: list[int], forbidden_phrases: Sequence[Sequence[int]]) -> list[int]:
    """Return the tokens that would complete a forbidden phrase."""
    return sorted({phrase[-1] for phrase in forbidden_phrases if ends_with(written, phrase[:-1])})


def mask_repeated_ngrams(logits_BWK: Tensor, tokens_BWT: Tensor, lengths_B: Tensor, size: int) -> None:
    """Set the logits of tokens that would repeat an n-gram of this size to -inf, in place.

    A token is ruled out if it was written after the same `size` - 1 tokens as the last ones. The shapes are
    fixed and nothing is read from the device, so that a CUDA graph can hold it.
    """
    positions_T = torch.arange(tokens_BWT.shape[2], device=tokens_BWT.device)
    is_repeated_BWT = (positions_T >= size - 1) & (positions_T < lengths_B[:, None, None])
    for back in range(1, size):
        last_B11 = (lengths_B - back).clamp(min=0)[:, None, None]
        last_BW1 = tokens_BWT.gather(2, last_B11.expand(*tokens_BWT.shape[:2], 1))
        is_repeated_BWT = is_repeated_BWT & (tokens_BWT.roll(back, 2) == last_BW1)
    penalty_BWT = torch.zeros_like(tokens_BWT, dtype=logits_BWK.dtype).masked_fill(is_repeated_BWT, NEG_INF)
    logits_BWK.scatter_add_(2, tokens_BWT, penalty_BWT)


def ends_with(written: Sequence[int], phrase: Sequence[int]) -> bool:
    return len(phrase) <= len(written) and list(phrase) == list(written[len(written) - len(phrase) :])


def limit_candidate_lengths(
    state: BeamState, tokens_BWC: Tensor, log_p_BWC: Tensor, end_log_p_BW: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply the minimum and maximum lengths to candidates that were chosen without them.

    This is mask_logits for lengths alone, on the device. It needs one candidate more of each row than
    without limits, since the end token may be ruled out.
    """
    too_short_B = state.lengths < torch.minimum(state.min_lengths, state.max_lengths)
    log_p_BWC = log_p_BWC.masked_fill((tokens_BWC == EOS_ID) & too_short_B[:, None, None], NEG_INF)
    full_BW1 = (state.lengths >= state.max_lengths)[:, None, None].expand(*end_log_p_BW.shape, 1)
    is_first_C = torch.arange(tokens_BWC.shape[2], device=tokens_BWC.device) == 0
    only_end = torch.where(is_first_C, end_log_p_BW[..., None], NEG_INF)
    return tokens_BWC.masked_fill(full_BW1, EOS_ID), torch.where(full_BW1, only_end, log_p_BWC)


# ---- required phrases


@dataclass(frozen=True)
class Continuation:
    """One way to continue a sentence that has required phrases."""

    score: float
    parent: int
    token: int
    log_p: float
    num_met: int = 0  # tokens of the required phrases that it contains


def revise_required(
    chosen: Candidates,
    state: BeamState,
    sentence: int,
    length: int,
    log_p_WK: Tensor,
    constraints: DecodingConstraints,
    alpha: float,
) -> None:
    """Replace a sentence's chosen continuations by ones that lead to its required phrases, in place.

    Besides the likeliest continuations, each hypothesis is offered the next token of a phrase that it lacks.
    It may end when it lacks none, and has no other choice when the remaining length allows none.
    """
    options = list_continuations(state, sentence, length, log_p_WK, constraints)
    options.sort(key=lambda option: -option.score)
    beam = state.scores.shape[1]
    add_finished(state, sentence, length, [option for option in options if option.token == EOS_ID], alpha)
    shared = divide_beam([option for option in options if option.token != EOS_ID], beam)
    shared += [Continuation(NEG_INF, 0, EOS_ID, 0.0)] * (beam - len(shared))
    for rank, option in enumerate(shared):
        chosen.scores[sentence, rank] = option.score
        chosen.parents[sentence, rank] = option.parent
        chosen.tokens[sentence, rank] = option.token
        chosen.log_p[sentence, rank] = option.log_p


def list_continuations(
    state: BeamState, sentence: int, length: int, log_p_WK: Tensor, constraints: DecodingConstraints
) -> list[Continuation]:
    required, prefix = constraints.required_phrases, constraints.prefix
    num_required = constraints.num_required
    required_tokens = {token for phrase in required for token in phrase}
    options = []
    for row, score in enumerate(state.scores[sentence].tolist()):
        if score == NEG_INF:
            continue
        written = state.tokens[sentence, row, :length].tolist()
        tokens = [*offer_tokens(written, log_p_WK[row], len(log_p_WK), constraints)]
        if length < len(prefix):
            tokens = [prefix[length]]
        num_met_at_end = count_met_tokens(written, required)
        num_met_otherwise = count_met_tokens([*written, EOS_ID], required)  # with a token of no phrase
        for token, log_p in zip(tokens, log_p_WK[row, tokens].tolist(), strict=True):
            num_met = num_met_at_end if token == EOS_ID else num_met_otherwise
            if token in required_tokens:
                num_met = count_met_tokens([*written, token], required)
            remaining = 0 if token == EOS_ID else constraints.max_length - length - 1
            if log_p > NEG_INF and num_required - num_met <= remaining:
                options.append(Continuation(score + log_p, row, token, log_p, num_met))
    return options


def offer_tokens(
    written: list[int], log_p_K: Tensor, count: int, constraints: DecodingConstraints
) -> set[int]:
    """Return the tokens that a hypothesis may continue with: likely ones, the end, and required ones."""
    tokens = (
        find_next_required(written, constraints.required_phrases) | {EOS_ID} | find_likeliest(log_p_K, count)
    )
    if any(ends_with(written, phrase) for phrase in constraints.whole_word_phrases):
        starts = torch.tensor(sorted(constraints.word_start_ids), device=log_p_K.device)
        tokens = tokens & constraints.word_start_ids | {EOS_ID}
        tokens |= {int(starts[index]) for index in find_likeliest(log_p_K[starts], count)}
    return tokens


def find_likeliest(log_p_K: Tensor, count: int) -> set[int]:
    """Return the indices of the greatest values."""
    return set(log_p_K.topk(min(count, len(log_p_K))).indices.tolist())


def count_met_tokens(written: list[int], required: Sequence[Sequence[int]]) -> int:
    """Count the tokens of required phrases in a hypothesis, including a phrase that its end begins."""
    num_met, missing = 0, []
    is_free = [True] * len(written)
    for phrase in sorted(required, key=len, reverse=True):
        wanted = list(phrase)
        for first in range(len(written) - len(phrase) + 1):
            part = slice(first, first + len(phrase))
            if written[first] == wanted[0] and written[part] == wanted and all(is_free[part]):
                is_free[part] = [False] * len(phrase)
                num_met += len(phrase)
                break
        else:
            missing.append(phrase)
    num_unused = next((n for n, free in enumerate(reversed(is_free)) if not free), len(is_free))
    unused = written[len(written) - num_unused :]
    return num_met + max((count_overlap(unused, phrase) for phrase in missing), default=0)


def count_overlap(written: Sequence[int], phrase: Sequence[int]) -> int:
    """Count the first tokens of the phrase that a hypothesis ends with."""
    for size in range(min(len(phrase) - 1, len(written)), 0, -1):
        if written[-1] == phrase[size - 1] and ends_with(written, phrase[:size]):
            return size
    return 0


def find_next_required(written: list[int], required: Sequence[Sequence[int]]) -> set[int]:
    """Return the tokens that bring a hypothesis closer to its required phrases."""
    num_met = count_met_tokens(written, required)
    offered = {phrase[count_overlap(written, phrase)] for phrase in required}
    offered |= {phrase[0] for phrase in required}
    return {token for token in offered if count_met_tokens([*written, token], required) > num_met} or offered


def divide_beam(options: list[Continuation], beam: int) -> list[Continuation]:
    """Choose by turns: the best of those with most tokens met, the best of those with one less, and so on."""
    banks = [
        [option for option in options if option.num_met == num_met]
        for num_met in sorted({option.num_met for option in options}, reverse=True)
    ]
    chosen: list[Continuation] = []
    while len(chosen) < beam and any(banks):
        chosen += [bank.pop(0) for bank in banks if bank][: beam - len(chosen)]
    return sorted(chosen, key=lambda option: -option.score)


def add_finished(
    state: BeamState, sentence: int, length: int, ending: list[Continuation], alpha: float
) -> None:
    """Put these into a sentence's finished hypotheses where they are better than the worst."""
    for option in ending:
        score = option.score / length_penalty(length + 1, alpha)
        worst = int(state.finished_scores[sentence].argmin())
        if score > float(state.finished_scores[sentence, worst]):
            state.finished_scores[sentence, worst] = score
            state.finished_lengths[sentence, worst] = length + 1
            state.finished_tokens[sentence, worst] = state.tokens[sentence, option.parent]
            state.finished_token_scores[sentence, worst] = state.token_scores[sentence, option.parent]
            state.finished_tokens[sentence, worst, length] = EOS_ID
            state.finished_token_scores[sentence, worst, length] = option.log_p
