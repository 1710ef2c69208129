"""Beam and greedy search that stays on the GPU: what search.py does, without Python between the steps.

A fixed number of places, each with a sentence; a step of all of them is one captured graph. Every few steps
Python looks which are over, takes their results and gives their places to sentences that wait. It sees what
was over some steps ago: the next steps are under way by then, so that the GPU need not wait for it. When
none waits and few are left, these move to the first places, and a step takes only those. search.py is the
definition: the tests hold this to it, and whatever else is wished for (sampling, words that must or must
not come out, prefixes) is done there.

Shapes: B places, W hypotheses of each, R = B W rows; N results of a sentence, T tokens that there is room
        for, C continuations, K words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config import BOS_ID, EOS_ID, DecodingConfig, TransformerConfig
from manyheads.cuda.graphs import capture
from manyheads.cuda.transfer import EMPTY_COPY, AsyncCopy, IntArray, to_device
from manyheads.inference.prefill import SourcePrefill
from manyheads.model.static_cache import StaticKVCache
from manyheads.model.transformer import Transformer
from manyheads.ops import dispatch
from manyheads.ops.topk import topk_logsumexp
from manyheads.packed import Packed, round_up
from manyheads.search.beam import NEG_INF, DecodingConstraints, Hypothesis, length_penalty

WIDEST = 32  # beam that it serves
LOOK_EVERY = 4  # steps between looks at what is over
CAPTURE_AFTER = 32  # steps that are done as they are before a graph is worth its making
READ_TOKENS = 2**14  # of sources, at once
MOST_SOURCE_TOKENS, LEAST_SOURCE_TOKENS = 2**17, 2**13  # of sentences that are encoded and wait
WRITTEN_BYTES = 24  # of a token and its score, under way and ended
ROOM_STEP = 64  # tokens: outputs have room for a multiple of it
SHRINK = 4  # times fewer places, where these suffice for what is left
FEWEST_ROWS = 64  # a step of fewer takes as long
NOBODY = -1  # in a place


def supports(model: Any, wishes: Sequence[DecodingConstraints], how: DecodingConfig) -> bool:
    """Whether nothing is wished for but the best translations of some length."""
    plain = all(not (one.prefix or one.required_phrases or one.forbidden_phrases) for one in wishes)
    ours = isinstance(model, Transformer) and model.config.attention != "additive"
    ours = ours and model.config.experts is None
    ours = ours and model.config.positions != "learned" and dispatch.has_triton()
    return ours and plain and how.temperature is None and how.no_repeat_ngram is None and how.beam <= WIDEST


@dataclass(frozen=True)
class SearchSize:
    """What a graph is made for."""

    slots: int  # B
    beam: int  # W
    nbest: int  # N
    max_tokens: int  # T, two more than the tokens of an output: the end, and one beyond it
    source_tokens: int
    alpha: float

    @classmethod
    def for_requests(
        cls,
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        most_rows: int,
    ) -> "SearchSize":
        """One of a few that holds these sentences: graphs are made anew for each."""
        limit, tokens = max(wish.max_length for wish in wishes), sum(map(len, sources))
        places = min(next_power_of_two(len(sources)), max(1, most_rows // how.num_hypotheses))
        return cls(
            places,
            how.num_hypotheses,
            how.nbest,
            round_up(limit + 2, ROOM_STEP),
            max(
                next_power_of_two(max(map(len, sources))), min(next_power_of_two(tokens), MOST_SOURCE_TOKENS)
            ),
            how.alpha,
        )

    @property
    def prefill_tokens(self) -> int:
        return min(READ_TOKENS, self.source_tokens)

    @property
    def source_capacity(self) -> int:
        """What only fills up needs room too."""
        return self.source_tokens + self.prefill_tokens

    def memory_bytes(self, config: TransformerConfig, each: int) -> int:
        """Of all keys and values, and of what is written."""
        tokens = self.slots * self.beam * self.max_tokens
        keys = config.decoder_layers * config.heads * (config.head_dim_k + config.head_dim_v) * each
        return (tokens + self.source_capacity) * keys + WRITTEN_BYTES * tokens

    def shrink_to_fit(self, config: TransformerConfig, each: int, most: float, longest: int) -> "SearchSize":
        """With less ahead, then with fewer places, until it takes no more bytes; or the least there is."""
        size, least = self, max(LEAST_SOURCE_TOKENS, next_power_of_two(longest))
        while size.memory_bytes(config, each) > most and size.source_tokens > least:
            size = replace(size, source_tokens=size.source_tokens // 2)
        while size.memory_bytes(config, each) > most and size.slots > 1:
            size = replace(size, slots=size.slots // 2)
        return size


def next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


@dataclass(eq=False)
class BatchSlots:
    """What is known of the sentence in each place, and of its hypotheses. Everything is changed in place."""

    done: Tensor  # [B] bool: searched to the end, or without a sentence
    lengths: Tensor  # [B] tokens written so far
    max_lengths: Tensor  # [B] the most of them
    min_lengths: Tensor  # [B]
    scores: Tensor  # [B, W] log p
    last_tokens: Tensor  # [B, W] the newest token
    tokens: Tensor  # [B, W, T]
    token_scores: Tensor  # [B, W, T]
    finished_scores: Tensor  # [B, N] penalized scores of what has ended
    finished_lengths: Tensor  # [B, N]
    finished_tokens: Tensor  # [B, N, T]
    finished_token_scores: Tensor  # [B, N, T]

    @classmethod
    def allocate(cls, size: SearchSize, device: torch.device) -> "BatchSlots":
        places, width, results, room = size.slots, size.beam, size.nbest, size.max_tokens

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def real(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        return cls(
            done=torch.ones(places, dtype=torch.bool, device=device),
            lengths=whole(places),
            max_lengths=whole(places),
            min_lengths=whole(places),
            scores=real(places, width).fill_(NEG_INF),
            last_tokens=whole(places, width),
            tokens=whole(places, width, room),
            token_scores=real(places, width, room),
            finished_scores=real(places, results).fill_(NEG_INF),
            finished_lengths=whole(places, results),
            finished_tokens=whole(places, results, room),
            finished_token_scores=real(places, results, room),
        )

    def first(self, places: int) -> "BatchSlots":
        """The first of them, in the same memory."""
        return BatchSlots(*(getattr(self, one.name)[:places] for one in fields(self)))

    def move(self, old: Tensor, new: Tensor) -> None:
        for one in fields(self):
            kept = getattr(self, one.name)
            kept[new] = kept[old]


class CudaGraphSearch:
    """Searches of one size, for one model."""

    def __init__(
        self, model: Transformer, size: SearchSize, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.model, self.size, self.device = model, size, device
        self.state = StaticKVCache.allocate(
            model.config, size.slots, size.beam, size.max_tokens + 1, size.source_capacity, dtype, device
        )
        self.prefill = SourcePrefill(model, self.state, size.prefill_tokens)
        self.slots = BatchSlots.allocate(size, device)
        self.steps: dict[int, CapturedStep] = {}  # by the places that one takes
        self.active_slots = size.slots  # of them, now

    # ---- the sentences

    def run(
        self, sources: Sequence[list[int]], wishes: Sequence[DecodingConstraints], token_scores: bool = True
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first; token scores if somebody reads them."""
        found: list[list[Hypothesis]] = []
        for part in group_in_order(sources, self.size.source_tokens):
            found += self._search(sources[part], wishes[part], token_scores)
        return found

    def _search(
        self, sources: Sequence[list[int]], wishes: Sequence[DecodingConstraints], token_scores: bool
    ) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sources]
        firsts = self._encode(sources)
        asked = np.array(
            [
                (first, len(source), wish.max_length, wish.min_length)
                for first, source, wish in zip(firsts, sources, wishes, strict=True)
            ]
        )
        inside = np.full(self.size.slots, NOBODY)  # which of the sentences each place has
        admitted, self.active_slots = 0, self.size.slots
        look, ended = self._look(inside), PendingResults(inside[:0], EMPTY_COPY, self.size.alpha)
        while admitted < len(sources) or (inside != NOBODY).any():
            free = np.flatnonzero(inside[: self.active_slots] == NOBODY)[: len(sources) - admitted]
            if len(free):
                inside[free] = range(admitted, admitted + len(free))
                self._admit(free, asked[inside[free]])
                admitted += len(free)
            if admitted == len(sources):
                self._shrink(inside)
            self._steps().take(LOOK_EVERY)
            before, look = look, self._look(inside)
            ended.read(found)
            done = before.done(inside)
            ended = self._leave(done, inside[done], token_scores)
            inside[done] = NOBODY
        ended.read(found)
        return found

    def _shrink(self, inside: IntArray) -> None:
        """Few that are left move to the first places, so that a step takes those only.

        Their past stays where it lies: the places that they leave are not used before all are done.
        """
        left, fewer = np.count_nonzero(inside != NOBODY), self.active_slots
        while left * SHRINK <= fewer and fewer * self.size.beam >= FEWEST_ROWS * SHRINK:
            fewer //= SHRINK
        old = fewer + np.flatnonzero(inside[fewer:] != NOBODY)
        if len(old):
            new = np.flatnonzero(inside[:fewer] == NOBODY)[: len(old)]
            inside[new], inside[old] = inside[old], NOBODY
            from_B, to_B = to_device(np.stack((old, new)), self.device)
            self.slots.move(from_B, to_B)
            self.state.move_slots(from_B, to_B)
        self.active_slots = fewer

    def _steps(self) -> "CapturedStep":
        if self.active_slots not in self.steps:
            size = replace(self.size, slots=self.active_slots)
            state, places = self.state.first_slots(self.active_slots), self.slots.first(self.active_slots)
            eager = 0 if self.steps else CAPTURE_AFTER  # a step of another size has made all kernels ready
            self.steps[self.active_slots] = CapturedStep(self.model, size, state, places, eager)
        return self.steps[self.active_slots]

    def _encode(self, sources: Sequence[list[int]]) -> list[int]:
        """The sources' keys and values put into the state; where each source begins in them."""
        firsts, start = [], 0
        for part in group_in_order(sources, self.prefill.tokens):
            packed = Packed.of(sources[part])
            firsts += (start + packed.offsets[:-1]).tolist()
            self.prefill.encode(packed, start)
            start += len(packed.tokens)
        return firsts

    def _admit(self, free: IntArray, asked: IntArray) -> None:
        """New sentences into free places: where each source begins, its length, the limit and the least."""
        numbers = np.concatenate((free[:, None], asked), 1)
        places, firsts, lengths, limits, least = to_device(numbers, self.device).unbind(1)
        state, here, width = self.state, self.slots, self.size.beam
        state.source_starts[places], state.source_lengths[places] = firsts, lengths
        here.max_lengths[places], here.min_lengths[places] = limits, least
        for room, number in (
            (state.lengths.view(-1, width), 0),
            (here.lengths, 0),
            (here.scores, NEG_INF),
            (here.scores[:, 0], 0.0),
            (here.last_tokens, BOS_ID),
            (here.finished_scores, NEG_INF),
            (here.done, False),
        ):
            room.index_fill_(0, places, number)  # an assignment would copy the number there, and wait

    def _look(self, inside: IntArray) -> "DonePoll":
        return DonePoll(inside.copy(), AsyncCopy.to_host([self.slots.done[: self.active_slots]]))

    def _leave(self, places: IntArray, numbers: IntArray, token_scores: bool) -> "PendingResults":
        """The results of these sentences, which are in these places."""
        if not len(places):
            return PendingResults(numbers, EMPTY_COPY, self.size.alpha)
        here, chosen = self.slots, to_device(places, self.device)
        kept = [here.finished_scores, here.finished_lengths, here.finished_tokens]
        kept += [here.finished_token_scores] if token_scores else []
        return PendingResults(numbers, AsyncCopy.to_host([one[chosen] for one in kept]), self.size.alpha)


@dataclass(frozen=True)
class DonePoll:
    """Which places were over, and who was there."""

    inside: IntArray
    over: AsyncCopy

    def done(self, inside: IntArray) -> IntArray:
        """The places whose sentence was over, and is there still: others have come or moved since."""
        over = self.over.wait()[0].numpy()
        then, now = self.inside[: len(over)], inside[: len(over)]
        return np.flatnonzero(over & (then == now) & (now != NOBODY))


@dataclass(frozen=True)
class PendingResults:
    """Sentences that are over, and what was found for each."""

    numbers: IntArray
    results: AsyncCopy  # scores, lengths, tokens, and scores of tokens if somebody reads them
    alpha: float

    def read(self, found: list[list[Hypothesis]]) -> None:
        """The hypotheses of each, best first, into their sentence's place."""
        if not len(self.numbers):
            return
        scores, lengths, *written = self.results.wait()
        log_p = scores * length_penalty(lengths, self.alpha)
        written = [one[..., : lengths.max()] for one in written]
        lists = [one.numpy().tolist() for one in (scores, lengths, log_p, *written)]
        for number, *own in zip(self.numbers.tolist(), *lists, strict=True):
            results = [
                Hypothesis(tokens[: length - 1], token_scores[0][:length], score)
                if token_scores
                else Hypothesis(tokens[: length - 1], [], score, total)
                for score, length, total, tokens, *token_scores in zip(*own, strict=True)
                if score > NEG_INF
            ]
            results.sort(key=lambda one: -one.score)
            found[number] = results


class CapturedStep:
    """A step of so many places, one graph after the first few."""

    def __init__(
        self, model: Transformer, size: SearchSize, state: StaticKVCache, places: BatchSlots, eager: int
    ) -> None:
        self.model, self.size, self.state, self.places = model, size, state, places
        self.eager = eager  # steps that are done as they are before a graph is worth its making
        self.device = places.done.device
        self.first_rows = torch.arange(size.slots, device=self.device)[:, None] * size.beam  # [B, 1]
        self.graph: torch.cuda.CUDAGraph | None = None

    def take(self, steps: int) -> None:
        for _ in range(steps):
            if self.device.type != "cuda" or self.eager:
                self.eager = max(0, self.eager - 1)
                self._step()
            else:
                self.graph = self.graph or capture(self._step)[0]
                self.graph.replay()

    def _step(self) -> None:
        """One token more for every hypothesis; nothing here waits for the GPU."""
        logits_RK, _ = self.model.step(self.places.last_tokens.flatten(), self.state)
        words_BWC, log_p_BWC = self._continuations(logits_RK)
        if self.size.beam == 1:
            self._pick(words_BWC[:, 0], log_p_BWC[:, 0])
        else:
            self._branch(words_BWC, log_p_BWC)
        self.places.lengths.add_(1).clamp_(max=self.size.max_tokens - 1)
        self._see_what_is_over()

    def _continuations(self, logits_RK: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest words of each row and their log p, with NEVER where one may not come."""
        here = self.places
        count, shape = min(2 * self.size.beam + 1, logits_RK.shape[1]), (self.size.slots, self.size.beam)
        values, words, log_total = topk_logsumexp(logits_RK, count)
        words_BWC = words.view(*shape, count)
        log_p_BWC = (values - log_total[:, None]).view(*shape, count)
        end_BW = (logits_RK[:, EOS_ID].float() - log_total).view(shape)
        early_B = here.lengths < torch.minimum(here.min_lengths, here.max_lengths)
        log_p_BWC = log_p_BWC.masked_fill((words_BWC == EOS_ID) & early_B[:, None, None], NEG_INF)
        last_BW1 = (here.lengths >= here.max_lengths)[:, None, None].expand(*shape, 1)  # only the end is left
        first_C = torch.arange(count, device=self.device) == 0
        only_end = torch.where(first_C, end_BW[..., None], NEG_INF)
        return words_BWC.masked_fill(last_BW1, EOS_ID), torch.where(last_BW1, only_end, log_p_BWC)

    def _pick(self, words_BC: Tensor, log_p_BC: Tensor) -> None:
        """The likeliest word of each sentence."""
        here = self.places
        log_p_B1, place_B1 = log_p_BC.max(1, keepdim=True)
        word_B1 = words_BC.gather(1, place_B1)
        scores_B1 = here.scores + log_p_B1
        self._write(word_B1, log_p_B1)
        ends_B1 = (word_B1 == EOS_ID) & (scores_B1 > NEG_INF) & ~here.done[:, None]
        length_B1 = here.lengths[:, None] + 1
        here.finished_scores.copy_(
            torch.where(ends_B1, scores_B1 / length_penalty(length_B1, self.size.alpha), here.finished_scores)
        )
        here.finished_lengths.copy_(torch.where(ends_B1, length_B1, here.finished_lengths))
        here.finished_tokens.copy_(torch.where(ends_B1[..., None], here.tokens, here.finished_tokens))
        here.finished_token_scores.copy_(
            torch.where(ends_B1[..., None], here.token_scores, here.finished_token_scores)
        )
        here.scores.copy_(scores_B1.masked_fill(word_B1 == EOS_ID, NEG_INF))
        here.last_tokens.copy_(word_B1)

    def _branch(self, words_BWC: Tensor, log_p_BWC: Tensor) -> None:
        """Of the 2 W best continuations those that end are finished, and the W best of the others go on."""
        here = self.places
        width, count = words_BWC.shape[1:]
        all_BX = (here.scores[..., None] + log_p_BWC).flatten(1)
        top_BC, place_BC = all_BX.topk(min(2 * width, all_BX.shape[1]), dim=1)
        parents_BC = place_BC // count
        words_BC, log_p_BC = (one.flatten(1).gather(1, place_BC) for one in (words_BWC, log_p_BWC))
        ends_BC = words_BC == EOS_ID
        among_the_first = torch.arange(top_BC.shape[1], device=self.device) < width
        self._finish(top_BC, parents_BC, log_p_BC, ends_BC & among_the_first & ~here.done[:, None])
        scores_BW, chosen_BW = top_BC.masked_fill(ends_BC, NEG_INF).topk(width, dim=1)
        parents_BW, words_BW, log_p_BW = (
            one.gather(1, chosen_BW) for one in (parents_BC, words_BC, log_p_BC)
        )
        index = parents_BW[..., None].expand_as(here.tokens)
        here.tokens.copy_(here.tokens.gather(1, index))
        here.token_scores.copy_(here.token_scores.gather(1, index))
        self._write(words_BW, log_p_BW)
        here.scores.copy_(scores_BW)
        here.last_tokens.copy_(words_BW)
        self.state.reorder((self.first_rows + parents_BW).flatten())

    def _finish(self, top_BC: Tensor, parents_BC: Tensor, log_p_BC: Tensor, ends_BC: Tensor) -> None:
        """The N best of what was finished before and what is now."""
        here = self.places
        length_B1, results = here.lengths[:, None] + 1, self.size.nbest
        now_BC = (top_BC / length_penalty(length_B1, self.size.alpha)).masked_fill(~ends_BC, NEG_INF)
        best_BN, place_BN = torch.cat((here.finished_scores, now_BC), 1).topk(results, dim=1)
        old_BN, new_BN = place_BN.clamp(max=results - 1), (place_BN - results).clamp(min=0)
        is_new_BN = place_BN >= results
        parents_BN = parents_BC.gather(1, new_BN)
        here_BN1 = here.lengths[:, None, None].expand(-1, results, 1)

        def merge(ended_BNT: Tensor, written_BWT: Tensor, last_BN: Tensor) -> None:
            before = ended_BNT.gather(1, old_BN[..., None].expand_as(ended_BNT))
            now = written_BWT.gather(1, parents_BN[..., None].expand_as(ended_BNT))
            now = now.scatter(2, here_BN1, last_BN[..., None])
            ended_BNT.copy_(torch.where(is_new_BN[..., None], now, before))

        merge(here.finished_tokens, here.tokens, torch.full_like(parents_BN, EOS_ID))
        merge(here.finished_token_scores, here.token_scores, log_p_BC.gather(1, new_BN))
        here.finished_lengths.copy_(
            torch.where(is_new_BN, length_B1, here.finished_lengths.gather(1, old_BN))
        )
        here.finished_scores.copy_(best_BN)

    def _write(self, words_BW: Tensor, log_p_BW: Tensor) -> None:
        """The next token of every row, and its log p."""
        here = self.places
        here_BW1 = here.lengths[:, None, None].expand(*words_BW.shape, 1)
        here.tokens.scatter_(2, here_BW1, words_BW[..., None])
        here.token_scores.scatter_(2, here_BW1, log_p_BW[..., None])

    def _see_what_is_over(self) -> None:
        """Where nothing that goes on can become a result (see search.over_now)."""
        here = self.places
        best_B = here.scores.amax(1)
        if self.size.beam == 1:
            over_B = best_B == NEG_INF
        else:
            most_B = best_B / length_penalty(here.max_lengths + 1, self.size.alpha)
            over_B = here.finished_scores.amin(1) >= most_B
        here.done.logical_or_(over_B | (here.lengths > here.max_lengths))


def group_in_order(sources: Sequence[list[int]], tokens: int) -> Iterator[slice]:
    """Sentences in their order, of at most so many tokens together."""
    offsets, start = np.cumsum([0, *map(len, sources)]), 0
    while start < len(sources):
        end = int(np.searchsorted(offsets, offsets[start] + tokens, "right")) - 1
        end = max(start + 1, end)  # one that is longer goes alone
        yield slice(start, end)
        start = end
