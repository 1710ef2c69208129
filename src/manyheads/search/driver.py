"""The eager search: decoding over a step function. It knows no model, no vocabulary and no text.

    step(tokens_R, state) -> logits_RK, state      reads one more token of every row
    admit(requests, state) -> state                appends new sentences to the state, or starts one

A sentence's result does not depend on the others in the batch: each has its own length, limits and random
numbers. Finished sentences leave, and waiting ones take their slots.

Shapes: B sentences in the batch, W hypotheses of each, R = B W rows in that order; K vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from manyheads.config import DecodingConfig
from manyheads.errors import RequestError
from manyheads.ops.topk import logsumexp
from manyheads.search.beam import (
    BeamState,
    Candidates,
    beam_step,
    greedy_step,
    read_hypotheses,
    row_candidates,
)
from manyheads.search.constraints import mask_logits, revise_required
from manyheads.search.options import DecodingConstraints, Hypothesis, Request, SearchLimits
from manyheads.search.sampling import pick_tokens
from manyheads.search.scheduler import (
    ActiveSentence,
    DynamicSchedule,
    ListQueue,
    QueuedRequest,
    RequestQueue,
)


class DecoderState(Protocol):
    """What a model's state must be able to do."""

    def reorder(self, rows: Tensor) -> Self: ...
    def remove(self, sentences: Tensor) -> Self: ...


StateT = TypeVar("StateT", bound=DecoderState)
StepFunction = Callable[[Tensor, StateT], tuple[Tensor, StateT]]
AdmitFunction = Callable[[list[QueuedRequest], StateT | None], StateT]


def search(
    step: StepFunction[StateT],
    admit: Callable[[list[int], StateT | None], StateT],
    constraints: Sequence[DecodingConstraints],
    config: DecodingConfig,
    device: torch.device,
    limits: SearchLimits | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first. With sampling there are nbest of them.

    `admit` gets the indices of sentences.
    """

    def admit_requests(new: list[QueuedRequest], state: StateT | None) -> StateT:
        return admit([index for index, _ in new], state)

    for own in constraints:
        check_constraints(own, config)
    branching = is_branching(config, any(own.required_phrases for own in constraints))
    queue = ListQueue([Request([], own) for own in constraints])
    results: list[list[Hypothesis]] = [[] for _ in constraints]
    for finished in iterate_results(step, admit_requests, queue, config, branching, device, limits):
        for index, hypotheses in finished:
            results[index] = hypotheses
    return results


def greedy_search(
    step: StepFunction[StateT], state: StateT, max_lengths: Sequence[int], device: torch.device
) -> list[list[int]]:
    """Return the likeliest token at each step for all sentences of a state, without begin and end."""
    constraints = [DecodingConstraints(max_length) for max_length in max_lengths]
    limits = SearchLimits(max_rows=max(1, len(constraints)))
    results = search(step, lambda indices, _: state, constraints, DecodingConfig(beam=1), device, limits)
    return [hypotheses[0].tokens for hypotheses in results]


def is_branching(config: DecodingConfig, has_required: bool) -> bool:
    """Return whether rows compete, as in a beam, or are independent, as in greedy search and sampling."""
    return config.temperature is None and (config.beam > 1 or has_required)


def check_constraints(constraints: DecodingConstraints, config: DecodingConfig) -> None:
    if constraints.required_phrases and config.temperature is not None:
        raise RequestError(
            "required phrases need a search and cannot be sampled: leave out decoding.temperature"
        )


@torch.no_grad()
def iterate_results(
    step: StepFunction[StateT],
    admit: AdmitFunction[StateT],
    queue: RequestQueue,
    config: DecodingConfig,
    branching: bool,
    device: torch.device,
    limits: SearchLimits | None = None,
) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
    """Yield the indices and results of sentences as they finish, some at a time."""
    limits = limits or SearchLimits()
    schedule = DynamicSchedule(queue, max(1, limits.max_rows // config.num_hypotheses), limits)
    beams: BeamState | None = None
    state: StateT | None = None
    num_steps = 0
    while True:
        if new := schedule.admit():
            state = admit(new, state if beams else None)
            begun = begin_sentences(new, config, branching, device)
            beams = beams.concat(begun) if beams else begun
        if not schedule.active:
            return
        assert beams is not None
        assert state is not None
        if canceled := schedule.find_canceled():
            state, beams = remove_sentences(canceled, schedule, state, beams)
            continue
        logits_RK, state = step(beams.last_tokens.flatten(), state)
        rows_R = extend_hypotheses(beams, logits_RK.float(), schedule.active, config, branching)
        if rows_R is not None:
            state = state.reorder(rows_R)
        num_steps += 1
        if num_steps % limits.poll_interval == 0:
            done = beams.done.nonzero().flatten()
            if schedule.should_retire(len(done)):
                indices = [schedule.active[slot].index for slot in done.tolist()]
                yield list(zip(indices, read_finished(beams.select(done), config.alpha), strict=True))
                state, beams = remove_sentences(done.tolist(), schedule, state, beams)
            elif limits.yields_every_poll:
                yield []


def remove_sentences(
    slots: list[int], schedule: DynamicSchedule, state: StateT, beams: BeamState
) -> tuple[StateT, BeamState]:
    """Remove sentences from the batch. Return the model's state and the hypotheses of those that stay."""
    kept = schedule.retire(slots)
    gone, stay = (torch.tensor(part, dtype=torch.int64, device=beams.done.device) for part in (slots, kept))
    return state.remove(gone), beams.select(stay)


def begin_sentences(
    new: list[QueuedRequest], config: DecodingConfig, branching: bool, device: torch.device
) -> BeamState:
    constraints = [request.constraints for _, request in new]
    max_lengths, min_lengths = (
        torch.tensor(lengths, dtype=torch.int64, device=device)
        for lengths in ([own.max_length for own in constraints], [own.min_length for own in constraints])
    )
    nbest = config.nbest if branching else config.num_hypotheses
    max_tokens = 2 + max(own.max_length for own in constraints)  # the end, and one beyond it
    beams = BeamState.allocate(len(new), config.num_hypotheses, nbest, max_tokens, device)
    beams.begin(torch.arange(len(new), device=device), max_lengths, min_lengths, branching)
    return beams


def extend_hypotheses(
    beams: BeamState,
    logits_RK: Tensor,
    active: Sequence[ActiveSentence],
    config: DecodingConfig,
    branching: bool,
) -> Tensor | None:
    """Extend every hypothesis by one token. Return the row that each row continues, if rows branch. [R]"""
    num_sentences, width = beams.scores.shape
    log_total_BW = logsumexp(logits_RK).view(num_sentences, width)
    logits_BWK = logits_RK.view(num_sentences, width, -1)
    constraints, lengths = [item.constraints for item in active], [item.length for item in active]
    mask_logits(logits_BWK, beams.tokens, constraints, lengths, config.no_repeat_ngram)
    for item in active:  # those that are done stay for a while, and count no further than there is room
        item.length = min(item.length + 1, beams.tokens.shape[2] - 1)
    if not branching:
        tokens_BW = pick_tokens(logits_BWK, config, [item.generator for item in active])
        log_p_BW = logits_BWK.gather(2, tokens_BW[..., None]).squeeze(2) - log_total_BW
        greedy_step(beams, tokens_BW, log_p_BW, config.alpha)
        return None
    tokens_BWC, log_p_BWC = row_candidates(logits_BWK, log_total_BW, 2 * width)
    has_required = [bool(own.required_phrases) for own in constraints]
    may_finish_B, revise = None, None
    if any(has_required):
        may_finish_B = ~torch.tensor(has_required, device=logits_RK.device)
        revise = partial(
            revise_sentences, beams, logits_BWK, log_total_BW, constraints, lengths, config.alpha
        )
    parents_BW = beam_step(beams, tokens_BWC, log_p_BWC, config.alpha, may_finish_B, revise)
    first_B1 = torch.arange(num_sentences, device=parents_BW.device)[:, None] * width
    return (first_B1 + parents_BW).flatten()


def revise_sentences(
    beams: BeamState,
    logits_BWK: Tensor,
    log_total_BW: Tensor,
    constraints: Sequence[DecodingConstraints],
    lengths: Sequence[int],
    alpha: float,
    chosen: Candidates,
) -> None:
    for sentence, (own, length) in enumerate(zip(constraints, lengths, strict=True)):
        if own.required_phrases:
            log_p_WK = logits_BWK[sentence] - log_total_BW[sentence, :, None]
            revise_required(chosen, beams, sentence, length, log_p_WK, own, alpha)


def read_finished(beams: BeamState, alpha: float) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence."""
    return read_hypotheses(
        beams.finished_scores.cpu(),
        beams.finished_lengths.cpu(),
        beams.finished_tokens.cpu(),
        beams.finished_token_scores.cpu(),
        alpha,
    )
