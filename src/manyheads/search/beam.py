"""Looking for translations (6.1) over a step function. It knows no model, no vocabulary and no text.

    step(tokens_R, state) -> logits_RK, state      reads one more token of every row
    open(numbers, state) -> state                  the state of these sentences, behind those of another

A state can reorder its rows and drop sentences. What a sentence gets does not depend on the others: each has
its own length, limit and random numbers. Those that are over leave, and waiting ones take their place.

Beam search keeps W hypotheses of a sentence. Of the 2 W likeliest continuations those that end, and are among
the first W, are finished (so that a beam of 1 is greedy search); the W best of the others go on. What is
finished is compared by log p / ((5 + L) / 6)^alpha, L with the end token; the search is over when nothing
that goes on can still be better than the results that are asked for.

Shapes: B sentences under way, W hypotheses of each, R = B W rows in that order; N results of a sentence,
        T tokens that there is room for, K words.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from manyheads.config import BOS_ID, EOS_ID, DecodingConfig
from manyheads.errors import RequestError
from manyheads.ops.topk import logsumexp

NEG_INF = -math.inf  # the score of what must not be


class DecoderState(Protocol):
    """What a state must be able to do."""

    def reorder(self, rows: Tensor) -> Self: ...
    def remove(self, sentences: Tensor) -> Self: ...


StateT = TypeVar("StateT", bound=DecoderState)
StepFunction = Callable[[Tensor, StateT], tuple[Tensor, StateT]]
AdmitFunction = Callable[[list[int], StateT | None], StateT]


@dataclass(frozen=True)
class DecodingConstraints:
    """What one sentence is asked for; lengths do not count the end token."""

    max_length: int  # tokens at most: then it must end
    min_length: int = 0  # tokens at least
    prefix: tuple[int, ...] = ()  # how it must begin
    required_phrases: tuple[tuple[int, ...], ...] = ()  # what must stand in it, each as often as it is named
    forbidden_phrases: tuple[tuple[int, ...], ...] = ()  # what must not
    whole_word_phrases: tuple[tuple[int, ...], ...] = ()  # of what is required: what no word may go on from
    word_start_ids: frozenset[int] = frozenset()  # what may follow those, beside the end
    seed: int = 0  # of its random numbers


@dataclass(frozen=True)
class Hypothesis:
    """A result: tokens without begin and end, and what the model thinks of them."""

    tokens: list[int]
    token_scores: list[float]  # log p of each token, the end token's last; empty where nobody asked
    score: float  # their sum, divided by the length penalty
    known_log_probability: float | None = None  # their sum, where they are not known one by one

    @property
    def log_probability(self) -> float:
        """log p of the whole: what forced decoding gives."""
        return sum(self.token_scores) if self.known_log_probability is None else self.known_log_probability


Length = TypeVar("Length", float, Tensor)


def length_penalty(length: Length, alpha: float) -> Length:
    """((5 + L) / 6)^alpha (6.1), the end token counted in L."""
    grown: Length = ((5 + length) / 6) ** alpha
    return grown


# ---- what is under way


@dataclass(eq=False)
class Beams:
    """Sentences under way. Each has its own length, since they do not all begin at once."""

    numbers: list[int]  # [B] which of those asked for
    lengths: list[int]  # [B] tokens that each of its hypotheses has
    wishes: list[DecodingConstraints]  # [B]
    generators: list[torch.Generator]  # [B]
    scores: Tensor  # [B, W] log p so far; NEVER where there is no hypothesis
    last: Tensor  # [B, W] the token that each reads next
    tokens: Tensor  # [B, W, T]
    token_scores: Tensor  # [B, W, T]
    ended: Tensor  # [B, N] the score of what is finished; NEVER where nothing is
    ended_lengths: Tensor  # [B, N] with the end token
    ended_tokens: Tensor  # [B, N, T] with the end token
    ended_token_scores: Tensor  # [B, N, T]

    @classmethod
    def begin(
        cls,
        numbers: list[int],
        wishes: list[DecodingConstraints],
        how: DecodingConfig,
        branching: bool,
        device: torch.device,
    ) -> Self:
        count, width, results = (
            len(numbers),
            how.num_hypotheses,
            how.nbest if branching else how.num_hypotheses,
        )
        room = 1 + max(wish.max_length for wish in wishes)
        scores = torch.full((count, width), NEG_INF if branching else 0.0, device=device)
        scores[:, 0] = 0.0  # in a beam all begin alike, so one stands for all
        return cls(
            numbers,
            [0] * count,
            wishes,
            [torch.Generator().manual_seed(wish.seed) for wish in wishes],
            scores,
            torch.full((count, width), BOS_ID, device=device),
            torch.zeros(count, width, room, dtype=torch.int64, device=device),
            torch.zeros(count, width, room, device=device),
            torch.full((count, results), NEG_INF, device=device),
            torch.zeros(count, results, dtype=torch.int64, device=device),
            torch.zeros(count, results, room, dtype=torch.int64, device=device),
            torch.zeros(count, results, room, device=device),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def joined(self, other: "Beams") -> "Beams":
        """With other sentences behind these."""
        room = max(self.tokens.shape[2], other.tokens.shape[2])

        def join(mine: Any, theirs: Any) -> Any:
            return (
                mine + theirs if isinstance(mine, list) else torch.cat((fit(mine, room), fit(theirs, room)))
            )

        return self._each(lambda name: join(getattr(self, name), getattr(other, name)))

    def kept(self, sentences: list[int]) -> "Beams":
        """These sentences alone."""
        chosen = torch.tensor(sentences, dtype=torch.int64, device=self.scores.device)

        def keep(values: Any) -> Any:
            return [values[one] for one in sentences] if isinstance(values, list) else values[chosen]

        return self._each(lambda name: keep(getattr(self, name)))

    def _each(self, change: Callable[[str], Any]) -> "Beams":
        return Beams(**{one.name: change(one.name) for one in fields(self)})

    def places(self) -> Tensor:
        """Where each sentence's next token is written. [B, 1, 1]"""
        return torch.tensor(self.lengths, device=self.scores.device)[:, None, None]

    def results(self, sentence: int) -> list[Hypothesis]:
        """What is finished of a sentence, best first."""
        found = []
        for score, length, ids, scores in zip(
            self.ended[sentence].tolist(),
            self.ended_lengths[sentence].tolist(),
            self.ended_tokens[sentence].tolist(),
            self.ended_token_scores[sentence].tolist(),
            strict=True,
        ):
            if score > NEG_INF:
                found.append(Hypothesis(ids[: length - 1], scores[:length], score))
        return sorted(found, key=lambda one: -one.score)


def fit(values: Tensor, room: int) -> Tensor:
    """[B, W, T] with room for so many tokens; others as they are."""
    if values.dim() < 3:
        return values
    return torch.nn.functional.pad(values, (0, room - values.shape[2]))


# ---- the search


@dataclass
class SearchLimits:
    """How much is done at once."""

    max_rows: int = 256  # hypotheses under way
    poll_interval: int = 1  # steps between looks at what is over: on a GPU each look waits for it
    refill_fraction: float = 0.25  # share of the places that must be free before waiting sentences take them
    retire_fraction: float = 0.125  # share of the sentences that must be over before they leave


def search(
    step: StepFunction[StateT],
    admit: AdmitFunction[StateT],
    constraints: Sequence[DecodingConstraints],
    config: DecodingConfig,
    device: torch.device,
    limits: SearchLimits | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first. Those drawn at random are as many as nbest."""
    required = any(wish.required_phrases for wish in constraints)
    if required and config.temperature is not None:
        raise RequestError(
            "words that must come out are looked for, not drawn: leave decoding.temperature out"
        )
    branching = config.temperature is None and (config.beam > 1 or required)
    found: list[list[Hypothesis]] = [[] for _ in constraints]
    for number, results in iterate_results(
        step, admit, constraints, config, branching, device, limits or SearchLimits()
    ):
        found[number] = results
    return found


@torch.no_grad()
def iterate_results(
    step: StepFunction[StateT],
    admit: AdmitFunction[StateT],
    constraints: Sequence[DecodingConstraints],
    config: DecodingConfig,
    branching: bool,
    device: torch.device,
    limits: SearchLimits,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Each sentence's number and results, as they come."""
    places = max(1, limits.max_rows // config.num_hypotheses)
    waiting, steps = list(range(len(constraints))), 0
    beams: Beams | None = None
    state: StateT | None = None
    while waiting or beams:
        free = places - (len(beams) if beams else 0)
        if waiting and (not beams or free >= limits.refill_fraction * places):
            new, waiting = waiting[:free], waiting[free:]
            state = admit(new, state if beams else None)
            begun = Beams.begin(new, [constraints[number] for number in new], config, branching, device)
            beams = beams.joined(begun) if beams else begun
        assert beams is not None
        assert state is not None
        logits_RK, state = step(beams.last.flatten(), state)
        rows_R = advance(beams, logits_RK.float(), config, branching)
        if rows_R is not None:
            state = state.reorder(rows_R)
        steps += 1
        if steps % limits.poll_interval == 0:
            over = over_now(beams, config.alpha, branching)
            if len(over) > limits.retire_fraction * len(beams) or len(over) == len(beams):
                for sentence in over:
                    yield beams.numbers[sentence], beams.results(sentence)
                state = state.remove(torch.tensor(over, device=device))
                gone = set(over)
                beams = beams.kept([one for one in range(len(beams)) if one not in gone])


def over_now(beams: Beams, alpha: float, branching: bool) -> list[int]:
    """The sentences of which nothing that goes on can become a result.

    A score can only fall; divided by the penalty of the greatest length it is the most that can come of it.
    """
    best_B = beams.scores.max(1).values
    passed = [length > wish.max_length for wish, length in zip(beams.wishes, beams.lengths, strict=True)]
    passed_B = torch.tensor(passed, device=best_B.device)  # also where a score is not a number
    if not branching:
        return (passed_B | (best_B == NEG_INF)).nonzero().flatten().tolist()
    longest = torch.tensor([wish.max_length + 1 for wish in beams.wishes], device=best_B.device)
    most_B = best_B / length_penalty(longest, alpha)
    return (passed_B | (beams.ended.min(1).values >= most_B)).nonzero().flatten().tolist()


def advance(beams: Beams, logits_RK: Tensor, how: DecodingConfig, branching: bool) -> Tensor | None:
    """One token more for every hypothesis, in place; which row each continues, where that may be another."""
    log_total_BW = logsumexp(logits_RK).view(beams.scores.shape)
    logits_BWK = forbid(beams, logits_RK.view(*beams.scores.shape, -1), how)
    rows = None
    if branching:
        rows = branch(beams, logits_BWK, log_total_BW, how)
    else:
        pick(beams, logits_BWK, log_total_BW, how)
    beams.lengths = [length + 1 for length in beams.lengths]
    return rows


# ---- what may be written


def forbid(beams: Beams, logits_BWK: Tensor, how: DecodingConfig) -> Tensor:
    """Logits with NEVER for what the wishes rule out. What is left keeps its probability."""
    for sentence, (wish, length) in enumerate(zip(beams.wishes, beams.lengths, strict=True)):
        if length >= wish.max_length:
            leave_only(logits_BWK[sentence], EOS_ID)
        elif length < len(wish.prefix):
            leave_only(logits_BWK[sentence], wish.prefix[length])
        elif wish.forbidden_phrases or how.no_repeat_ngram:
            for row, written in enumerate(beams.tokens[sentence, :, :length].tolist()):
                logits_BWK[sentence, row, banned(written, wish, how.no_repeat_ngram)] = NEG_INF
    early = [one for one in range(len(beams)) if must_go_on(beams.wishes[one], beams.lengths[one])]
    if early:
        chosen = slice(None) if len(early) == len(beams) else early
        logits_BWK[chosen, :, EOS_ID] = NEG_INF
    return logits_BWK


def must_go_on(wish: DecodingConstraints, length: int) -> bool:
    return length < min(wish.max_length, max(wish.min_length, len(wish.prefix)))


def leave_only(logits_WK: Tensor, token: int) -> None:
    kept_W = logits_WK[:, token].clone()
    logits_WK.fill_(NEG_INF)
    logits_WK[:, token] = kept_W


def banned(written: list[int], wish: DecodingConstraints, no_repeat_ngram: int | None) -> list[int]:
    """Tokens that would complete a forbidden phrase, or a run of tokens that was there before."""
    found = {phrase[-1] for phrase in wish.forbidden_phrases if ends_with(written, phrase[:-1])}
    if no_repeat_ngram:
        begun = written[len(written) - no_repeat_ngram + 1 :] if no_repeat_ngram > 1 else []
        for first in range(len(written) - no_repeat_ngram + 1):
            if written[first : first + no_repeat_ngram - 1] == begun:
                found.add(written[first + no_repeat_ngram - 1])
    return sorted(found)


def ends_with(written: Sequence[int], phrase: Sequence[int]) -> bool:
    return len(phrase) <= len(written) and list(phrase) == list(written[len(written) - len(phrase) :])


# ---- greedy search and sampling: every row goes its own way


def pick(beams: Beams, logits_BWK: Tensor, log_total_BW: Tensor, how: DecodingConfig) -> None:
    """The likeliest token of each row, or one at random; result w is what row w ends as."""
    chosen_BW = logits_BWK.argmax(-1) if how.temperature is None else draw(beams, logits_BWK, how)
    log_p_BW = logits_BWK.gather(2, chosen_BW[..., None]).squeeze(2) - log_total_BW
    write(beams, chosen_BW, log_p_BW)
    beams.scores = beams.scores + log_p_BW
    ends_BW = (chosen_BW == EOS_ID) & (beams.scores > NEG_INF)
    finish(beams, ends_BW, how.alpha)
    beams.scores = beams.scores.masked_fill(chosen_BW == EOS_ID, NEG_INF)
    beams.last = chosen_BW


def finish(beams: Beams, ends_BW: Tensor, alpha: float) -> None:
    """Rows that have just ended become results, each in the place of its own."""
    lengths_B1 = torch.tensor(beams.lengths, device=ends_BW.device)[:, None] + 1
    scores_BW = beams.scores / length_penalty(lengths_B1, alpha)
    beams.ended = torch.where(ends_BW, scores_BW, beams.ended)
    beams.ended_lengths = torch.where(ends_BW, lengths_B1, beams.ended_lengths)
    beams.ended_tokens = torch.where(ends_BW[..., None], beams.tokens, beams.ended_tokens)
    beams.ended_token_scores = torch.where(ends_BW[..., None], beams.token_scores, beams.ended_token_scores)


def write(beams: Beams, tokens_BW: Tensor, log_p_BW: Tensor) -> None:
    """The next token of every row, and its log p."""
    places = beams.places().expand(*tokens_BW.shape, 1).clamp(max=beams.tokens.shape[2] - 1)
    beams.tokens.scatter_(2, places, tokens_BW[..., None])
    beams.token_scores.scatter_(2, places, log_p_BW[..., None])


def draw(beams: Beams, logits_BWK: Tensor, how: DecodingConfig) -> Tensor:
    """At random, by each sentence's own numbers, out of the top k and the top share p."""
    assert how.temperature is not None
    most = logits_BWK.shape[2] if how.top_k is None else min(how.top_k, logits_BWK.shape[2])
    values_BWk, words_BWk = (logits_BWK / how.temperature).topk(most, dim=-1)
    reached_BWk = values_BWk.softmax(-1).cumsum(-1)
    if how.top_p is not None:
        before = reached_BWk.roll(1, -1)
        before[..., 0] = 0
        inside = before < how.top_p  # the word that reaches the share is still in it
        reached_BWk = reached_BWk.minimum((reached_BWk * inside).amax(-1, keepdim=True))
    width = logits_BWK.shape[1]
    chance = torch.stack([torch.rand(width, generator=one) for one in beams.generators])
    aim_BW1 = chance.to(logits_BWK.device)[..., None] * reached_BWk[..., -1:]
    place = (reached_BWk <= aim_BW1).sum(-1, keepdim=True).clamp(max=most - 1)
    return words_BWk.gather(2, place).squeeze(2)


# ---- beam search


@dataclass
class Candidates:
    """Continuations of each sentence's hypotheses, best first. C of them."""

    scores: Tensor  # [B, C]
    parents: Tensor  # [B, C] the hypothesis that each continues
    tokens: Tensor  # [B, C]
    log_p: Tensor  # [B, C] of the token alone


def branch(beams: Beams, logits_BWK: Tensor, log_total_BW: Tensor, how: DecodingConfig) -> Tensor:
    """The best continuations; those that end are finished. Returns the row that each row continues. [R]"""
    width = beams.scores.shape[1]
    found = best_candidates(beams.scores, logits_BWK, log_total_BW, 2 * width)
    ends_BC = found.tokens == EOS_ID
    keep_finished(beams, found, ends_BC & (torch.arange(2 * width, device=ends_BC.device) < width), how)
    live_BC = found.scores.masked_fill(ends_BC, NEG_INF)
    scores_BW, chosen_BW = live_BC.topk(width, dim=1)
    parents_BW, tokens_BW, log_p_BW = (
        values.gather(1, chosen_BW) for values in (found.parents, found.tokens, found.log_p)
    )
    for sentence, wish in enumerate(beams.wishes):
        if wish.required_phrases:
            with_required(
                beams, sentence, logits_BWK[sentence], log_total_BW[sentence], how,
                (scores_BW, parents_BW, tokens_BW, log_p_BW),
            )  # fmt: skip
    continue_rows(beams, parents_BW)
    write(beams, tokens_BW, log_p_BW)
    beams.scores, beams.last = scores_BW, tokens_BW
    first_B1 = torch.arange(len(beams), device=parents_BW.device)[:, None] * width
    return (first_B1 + parents_BW).flatten()


def best_candidates(scores_BW: Tensor, logits_BWK: Tensor, log_total_BW: Tensor, count: int) -> Candidates:
    """A row's best are found among its logits, so that no log-probability is computed that nobody needs."""
    each = min(count, logits_BWK.shape[2])
    values_BWe, words_BWe = logits_BWK.topk(each, dim=-1)
    log_p_BWe = values_BWe - log_total_BW[..., None]
    all_BWe = (scores_BW[..., None] + log_p_BWe).flatten(1)
    missing = count - all_BWe.shape[1]
    if missing > 0:  # fewer words than the beam is wide
        all_BWe = torch.nn.functional.pad(all_BWe, (0, missing), value=NEG_INF)
    top_BC, place_BC = all_BWe.topk(count, dim=1)
    place_BC = place_BC.clamp(max=words_BWe[0].numel() - 1)
    return Candidates(
        top_BC,
        place_BC // each,
        words_BWe.flatten(1).gather(1, place_BC),
        log_p_BWe.flatten(1).gather(1, place_BC),
    )


def keep_finished(beams: Beams, found: Candidates, ends_BC: Tensor, how: DecodingConfig) -> None:
    """The N best of what was finished before and what is now."""
    for sentence, wish in enumerate(beams.wishes):
        if wish.required_phrases:
            ends_BC[sentence] = False  # these have a way of their own
    lengths_B1 = torch.tensor(beams.lengths, device=ends_BC.device)[:, None] + 1
    now_BC = (found.scores / length_penalty(lengths_B1, how.alpha)).masked_fill(~ends_BC, NEG_INF)
    results = beams.ended.shape[1]
    best_BN, place_BN = torch.cat((beams.ended, now_BC), 1).topk(results, dim=1)
    old_BN, new_BN = place_BN.clamp(max=results - 1), (place_BN - results).clamp(min=0)
    is_new_BN = place_BN >= results
    parents_BN = found.parents.gather(1, new_BN)

    def merged(ended_BNT: Tensor, written_BWT: Tensor, last_BC: Tensor) -> Tensor:
        room = ended_BNT.shape[2]
        before = ended_BNT.gather(1, old_BN[..., None].expand(-1, -1, room))
        now = written_BWT.gather(1, parents_BN[..., None].expand(-1, -1, room))
        places = beams.places().expand(-1, results, 1).clamp(max=room - 1)
        now = now.scatter(2, places, last_BC.gather(1, new_BN)[..., None])
        return torch.where(is_new_BN[..., None], now, before)

    beams.ended_tokens = merged(beams.ended_tokens, beams.tokens, found.tokens)
    beams.ended_token_scores = merged(beams.ended_token_scores, beams.token_scores, found.log_p)
    beams.ended_lengths = torch.where(is_new_BN, lengths_B1, beams.ended_lengths.gather(1, old_BN))
    beams.ended = best_BN


def continue_rows(beams: Beams, parents_BW: Tensor) -> None:
    """Every row takes over what its parent has written."""
    index = parents_BW[..., None].expand_as(beams.tokens)
    beams.tokens = beams.tokens.gather(1, index)
    beams.token_scores = beams.token_scores.gather(1, index)


# ---- what must stand in the output


@dataclass
class Continuation:
    """One way to go on, of a sentence that something is required in."""

    score: float
    parent: int
    token: int
    log_p: float
    met: int = field(default=0)  # tokens of what is required that stand in it


def with_required(
    beams: Beams,
    sentence: int,
    logits_WK: Tensor,
    log_total_W: Tensor,
    how: DecodingConfig,
    chosen: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """The beam shared out among hypotheses by how much of what is required they have (Post and Vilar, 2018).

    Beside the likeliest continuations, each hypothesis is offered the next token of what it still lacks; it
    may end when nothing is lacking, and has no other choice when no more room is left than that takes.
    """
    wish, length = beams.wishes[sentence], beams.lengths[sentence]
    log_p_WK = logits_WK - log_total_W[:, None]
    options: list[Continuation] = []
    all_tokens = sum(map(len, wish.required_phrases))
    for row, score in enumerate(beams.scores[sentence].tolist()):
        if score == NEG_INF:
            continue
        written = beams.tokens[sentence, row, :length].tolist()
        tokens = (
            next_required(written, wish.required_phrases) | {EOS_ID} | likely(log_p_WK[row], len(log_p_WK))
        )
        if any(ends_with(written, phrase) for phrase in wish.whole_word_phrases):
            kept = torch.tensor(sorted(wish.word_start_ids), device=log_p_WK.device)
            tokens = tokens & wish.word_start_ids | {EOS_ID}
            tokens |= {int(kept[place]) for place in likely(log_p_WK[row, kept], len(log_p_WK))}
        for token in {wish.prefix[length]} if length < len(wish.prefix) else tokens:
            log_p = float(log_p_WK[row, token])
            met = met_tokens(written if token == EOS_ID else [*written, token], wish.required_phrases)
            room = 0 if token == EOS_ID else wish.max_length - length - 1  # for what it then still lacks
            if log_p > NEG_INF and all_tokens - met <= room:
                options.append(Continuation(score + log_p, row, token, log_p, met))
    options.sort(key=lambda one: -one.score)
    ending = [one for one in options if one.token == EOS_ID]
    take_finished(beams, sentence, ending, how)
    shared = share_out([one for one in options if one.token != EOS_ID], beams.scores.shape[1])
    for place in range(beams.scores.shape[1]):
        one = shared[place] if place < len(shared) else Continuation(NEG_INF, 0, EOS_ID, 0.0)
        for values, value in zip(chosen, (one.score, one.parent, one.token, one.log_p), strict=True):
            values[sentence, place] = value


def likely(log_p_K: Tensor, count: int) -> set[int]:
    """The places of the so many greatest."""
    return set(log_p_K.topk(min(count, len(log_p_K))).indices.tolist())


def met_tokens(written: list[int], required: Sequence[Sequence[int]]) -> int:
    """How many tokens of what is required stand in it; of a phrase that its end begins, those that do."""
    met, lacking = 0, []
    free = [True] * len(written)
    for phrase in sorted(required, key=len, reverse=True):
        for first in range(len(written)):
            part = written[first : first + len(phrase)]
            if part == list(phrase) and all(free[first : first + len(phrase)]):
                free[first : first + len(phrase)] = [False] * len(phrase)
                met += len(phrase)
                break
        else:
            lacking.append(phrase)
    unused = written[len(written) - next((n for n, one in enumerate(reversed(free)) if not one), len(free)) :]
    return met + max((overlap(unused, phrase) for phrase in lacking), default=0)


def overlap(written: Sequence[int], phrase: Sequence[int]) -> int:
    """How much of the phrase's beginning it ends with."""
    return next(size for size in range(len(phrase) - 1, -1, -1) if ends_with(written, phrase[:size]))


def next_required(written: list[int], required: Sequence[Sequence[int]]) -> set[int]:
    """The tokens that bring it nearer to what is required."""
    now = met_tokens(written, required)
    offered = {phrase[overlap(written, phrase)] for phrase in required} | {phrase[0] for phrase in required}
    return {token for token in offered if met_tokens([*written, token], required) > now} or offered


def share_out(options: list[Continuation], width: int) -> list[Continuation]:
    """By turns: the best of those that have most, the best of those that have one less, and so on."""
    banks = [
        [one for one in options if one.met == met]
        for met in sorted({one.met for one in options}, reverse=True)
    ]
    shared: list[Continuation] = []
    while len(shared) < width and any(banks):
        shared += [bank.pop(0) for bank in banks if bank][: width - len(shared)]
    return sorted(shared, key=lambda one: -one.score)


def take_finished(beams: Beams, sentence: int, ending: list[Continuation], how: DecodingConfig) -> None:
    length = beams.lengths[sentence]
    for one in ending:
        score = one.score / length_penalty(length + 1, how.alpha)
        worst = int(beams.ended[sentence].argmin())
        if score > float(beams.ended[sentence, worst]):
            beams.ended[sentence, worst] = score
            beams.ended_lengths[sentence, worst] = length + 1
            beams.ended_tokens[sentence, worst] = beams.tokens[sentence, one.parent]
            beams.ended_token_scores[sentence, worst] = beams.token_scores[sentence, one.parent]
            beams.ended_tokens[sentence, worst, length] = EOS_ID
            beams.ended_token_scores[sentence, worst, length] = one.log_p


# ---- the simplest use


def greedy_search(
    step: StepFunction[StateT], state: StateT, limits: Sequence[int], device: torch.device
) -> list[list[int]]:
    """The likeliest token each time, of all the sentences of a state at once. Without begin and end."""
    how = DecodingConfig(beam=1)
    wishes = [DecodingConstraints(limit) for limit in limits]
    together = SearchLimits(max_rows=max(1, len(wishes)))
    found: Any = search(step, lambda numbers, _: state, wishes, how, device, together)
    return [results[0].tokens for results in found]
