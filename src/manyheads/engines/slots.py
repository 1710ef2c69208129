"""Beam and greedy search that stays on the GPU: what search.py does, without Python between the steps.

A fixed number of places, each with a sentence; a step of all of them is one captured graph. Every few steps
Python looks which are over, takes their results and gives their places to sentences that wait. search.py is
the definition: the tests hold this to it, and whatever else is wished for (sampling, words that must or must
not come out, prefixes) is done there.

Shapes: B places, W hypotheses of each, R = B W rows; N results of a sentence, T tokens that there is room
        for, C continuations, K words.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from manyheads import kernels
from manyheads.config import BEGIN, END, ModelConfig, SearchConfig
from manyheads.model.slots import SlotState
from manyheads.model.transformer import Transformer
from manyheads.packed import Packed
from manyheads.search import NEVER, Hypothesis, Wish, penalty

WIDEST = 32  # beam that it serves
LOOK_EVERY = 8  # steps between looks at what is over
CAPTURE_AFTER = 32  # steps that are done as they are before a graph is worth its making
ENCODED_TOKENS = 2**14  # that the encoder reads at once
MOST_SOURCE_TOKENS, LEAST_SOURCE_TOKENS = 2**17, 2**13  # of sentences that are encoded and wait
WRITTEN_BYTES = 24  # of a token and its score, under way and ended
ROOM_STEP = 64  # tokens: outputs have room for a multiple of it


def can_serve(model: Any, wishes: Sequence[Wish], how: SearchConfig) -> bool:
    """Whether nothing is wished for but the best translations of some length."""
    plain = all(not (one.prefix or one.required or one.forbidden) for one in wishes)
    ours = isinstance(model, Transformer) and model.config.attention != "additive"
    ours = ours and model.config.experts is None
    ours = ours and model.config.positions != "learned" and kernels.there_is_triton()
    return ours and plain and how.temperature is None and how.no_repeat is None and how.beam <= WIDEST


@dataclass(frozen=True)
class SearchSize:
    """What a graph is made for."""

    places: int  # B
    width: int  # W
    results: int  # N
    room: int  # T, two more than the tokens of an output: the end, and one beyond it
    source_tokens: int
    alpha: float

    @classmethod
    def of(
        cls, sources: Sequence[list[int]], wishes: Sequence[Wish], how: SearchConfig, most_rows: int
    ) -> "SearchSize":
        """One of a few that holds these sentences: graphs are made anew for each."""
        limit, tokens = max(wish.limit for wish in wishes), sum(map(len, sources))
        places = min(power_of_two(len(sources)), max(1, most_rows // how.width))
        return cls(
            places,
            how.width,
            how.nbest,
            -(-(limit + 2) // ROOM_STEP) * ROOM_STEP,
            max(power_of_two(max(map(len, sources))), min(power_of_two(tokens), MOST_SOURCE_TOKENS)),
            how.alpha,
        )

    def bytes(self, config: ModelConfig, each: int) -> int:
        """Of all keys and values, and of what is written."""
        tokens = self.places * self.width * self.room
        keys = config.layers * config.heads * (config.key_width + config.value_width) * each
        return (tokens + self.source_tokens) * keys + WRITTEN_BYTES * tokens

    def that_fits(self, config: ModelConfig, each: int, most: float, longest: int) -> "SearchSize":
        """With less ahead, then with fewer places, until it takes no more bytes; or the least there is."""
        size, least = self, max(LEAST_SOURCE_TOKENS, power_of_two(longest))
        while size.bytes(config, each) > most and size.source_tokens > least:
            size = replace(size, source_tokens=size.source_tokens // 2)
        while size.bytes(config, each) > most and size.places > 1:
            size = replace(size, places=size.places // 2)
        return size


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class SlotSearch:
    """Searches of one size, for one model."""

    def __init__(
        self, model: Transformer, size: SearchSize, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.model, self.size, self.device = model, size, device
        places, width, results, room = size.places, size.width, size.results, size.room
        self.state = SlotState.make(model.config, places, width, room + 1, size.source_tokens, dtype, device)

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def real(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        self.over = torch.ones(places, dtype=torch.bool, device=device)  # or without a sentence
        self.lengths, self.limits, self.least = whole(places), whole(places), whole(places)
        self.scores, self.last = real(places, width).fill_(NEVER), whole(places, width)
        self.tokens, self.token_scores = whole(places, width, room), real(places, width, room)
        self.ended, self.ended_lengths = real(places, results).fill_(NEVER), whole(places, results)
        self.ended_tokens, self.ended_token_scores = whole(places, results, room), real(places, results, room)
        self.first_rows = torch.arange(places, device=device)[:, None] * width  # [B, 1]
        self.steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    # ---- the sentences

    def run(self, sources: Sequence[list[int]], wishes: Sequence[Wish]) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for group in groups_of(sources, self.size.source_tokens):
            self._search(group, sources, wishes, found)
        return found

    def _search(
        self,
        group: list[int],
        sources: Sequence[list[int]],
        wishes: Sequence[Wish],
        found: list[list[Hypothesis]],
    ) -> None:
        firsts = self._encode([sources[number] for number in group])
        waiting = deque(zip(group, firsts, strict=True))
        inside: dict[int, int] = {}  # place -> number of the sentence
        while waiting or inside:
            free = [place for place in range(self.size.places) if place not in inside]
            chosen = [(place, *waiting.popleft()) for place in free[: len(waiting)]]
            if chosen:
                self._admit(chosen, sources, wishes)
                inside |= {place: number for place, number, _ in chosen}
            for _ in range(LOOK_EVERY):
                self._step()
            done = [place for place, over in enumerate(self.over.tolist()) if over and place in inside]
            for place, results in zip(done, self._results(done), strict=True):
                found[inside.pop(place)] = results

    def _encode(self, sources: list[list[int]]) -> list[int]:
        """The sources' keys and values put into the state; where each source begins in them."""
        firsts, start = [], 0
        for part in groups_of(sources, ENCODED_TOKENS):
            packed = Packed.of([sources[number] for number in part]).to(self.device)
            memory = self.model.encode(packed)
            end = start + len(packed.tokens)
            for layer, (keys, values) in enumerate(self.model.keys_of_source(memory)):
                self.state.source_keys[layer, start:end] = keys
                self.state.source_values[layer, start:end] = values
            firsts += (start + packed.offsets[:-1]).tolist()
            start = end
        return firsts

    def _admit(
        self, chosen: list[tuple[int, int, int]], sources: Sequence[list[int]], wishes: Sequence[Wish]
    ) -> None:
        """New sentences into free places."""
        numbers = [
            (place, first, len(sources[number]), wishes[number].limit, wishes[number].least)
            for place, number, first in chosen
        ]
        places, firsts, lengths, limits, least = torch.tensor(numbers).to(self.device).unbind(1)
        state, width = self.state, self.size.width
        state.source_first[places], state.source_lengths[places] = firsts, lengths
        state.lengths.view(-1, width)[places] = 0
        self.limits[places], self.least[places], self.lengths[places] = limits, least, 0
        self.scores[places] = torch.tensor([0.0, *[NEVER] * (width - 1)], device=self.device)
        self.last[places], self.ended[places], self.over[places] = BEGIN, NEVER, False

    def _results(self, places: list[int]) -> list[list[Hypothesis]]:
        if not places:
            return []
        chosen = torch.tensor(places, dtype=torch.int64, device=self.device)
        lengths = self.ended_lengths[chosen]
        longest = int(lengths.max())
        texts = (one[chosen, :, :longest] for one in (self.ended_tokens, self.ended_token_scores))
        kept = self.ended[chosen], lengths, *texts
        found = []
        for results in zip(*(one.cpu().numpy() for one in kept), strict=True):
            own = [
                Hypothesis(tokens[: length - 1].tolist(), scores[:length].tolist(), float(score))
                for score, length, tokens, scores in zip(*results, strict=True)
                if score > NEVER
            ]
            found.append(sorted(own, key=lambda one: -one.score))
        return found

    # ---- a step

    def _step(self) -> None:
        self.steps += 1
        if self.device.type != "cuda" or self.steps <= CAPTURE_AFTER:
            self._step_now()
            return
        if self.graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._step_now()
            self.graph = graph
        self.graph.replay()

    def _step_now(self) -> None:
        """One token more for every hypothesis; nothing here waits for the GPU."""
        logits_RK, _ = self.model.step(self.last.flatten(), self.state)
        words_BWC, log_p_BWC = self._continuations(logits_RK)
        if self.size.width == 1:
            self._pick(words_BWC[:, 0], log_p_BWC[:, 0])
        else:
            self._branch(words_BWC, log_p_BWC)
        self.lengths.add_(1).clamp_(max=self.size.room - 1)
        self._see_what_is_over()

    def _continuations(self, logits_RK: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest words of each row and their log p, with NEVER where one may not come."""
        from manyheads.kernels.summary import best_words

        count, shape = min(2 * self.size.width + 1, logits_RK.shape[1]), (self.size.places, self.size.width)
        values, words, log_total = best_words(logits_RK, count)
        words_BWC = words.view(*shape, count)
        log_p_BWC = (values - log_total[:, None]).view(*shape, count)
        end_BW = (logits_RK[:, END].float() - log_total).view(shape)
        early_B = self.lengths < torch.minimum(self.least, self.limits)
        log_p_BWC = log_p_BWC.masked_fill((words_BWC == END) & early_B[:, None, None], NEVER)
        last_BW1 = (self.lengths >= self.limits)[:, None, None].expand(*shape, 1)  # only the end is left
        first_C = torch.arange(count, device=self.device) == 0
        only_end = torch.where(first_C, end_BW[..., None], NEVER)
        return words_BWC.masked_fill(last_BW1, END), torch.where(last_BW1, only_end, log_p_BWC)

    def _pick(self, words_BC: Tensor, log_p_BC: Tensor) -> None:
        """The likeliest word of each sentence."""
        log_p_B1, place_B1 = log_p_BC.max(1, keepdim=True)
        word_B1 = words_BC.gather(1, place_B1)
        scores_B1 = self.scores + log_p_B1
        self._write(word_B1, log_p_B1)
        ends_B1 = (word_B1 == END) & (scores_B1 > NEVER) & ~self.over[:, None]
        length_B1 = self.lengths[:, None] + 1
        self.ended.copy_(torch.where(ends_B1, scores_B1 / penalty(length_B1, self.size.alpha), self.ended))
        self.ended_lengths.copy_(torch.where(ends_B1, length_B1, self.ended_lengths))
        self.ended_tokens.copy_(torch.where(ends_B1[..., None], self.tokens, self.ended_tokens))
        self.ended_token_scores.copy_(
            torch.where(ends_B1[..., None], self.token_scores, self.ended_token_scores)
        )
        self.scores.copy_(scores_B1.masked_fill(word_B1 == END, NEVER))
        self.last.copy_(word_B1)

    def _branch(self, words_BWC: Tensor, log_p_BWC: Tensor) -> None:
        """Of the 2 W best continuations those that end are finished, and the W best of the others go on."""
        width, count = words_BWC.shape[1:]
        all_BX = (self.scores[..., None] + log_p_BWC).flatten(1)
        top_BC, place_BC = all_BX.topk(min(2 * width, all_BX.shape[1]), dim=1)
        parents_BC = place_BC // count
        words_BC, log_p_BC = (one.flatten(1).gather(1, place_BC) for one in (words_BWC, log_p_BWC))
        ends_BC = words_BC == END
        among_the_first = torch.arange(top_BC.shape[1], device=self.device) < width
        self._finish(top_BC, parents_BC, log_p_BC, ends_BC & among_the_first & ~self.over[:, None])
        scores_BW, chosen_BW = top_BC.masked_fill(ends_BC, NEVER).topk(width, dim=1)
        parents_BW, words_BW, log_p_BW = (
            one.gather(1, chosen_BW) for one in (parents_BC, words_BC, log_p_BC)
        )
        index = parents_BW[..., None].expand_as(self.tokens)
        self.tokens.copy_(self.tokens.gather(1, index))
        self.token_scores.copy_(self.token_scores.gather(1, index))
        self._write(words_BW, log_p_BW)
        self.scores.copy_(scores_BW)
        self.last.copy_(words_BW)
        self.state.continue_rows((self.first_rows + parents_BW).flatten())

    def _finish(self, top_BC: Tensor, parents_BC: Tensor, log_p_BC: Tensor, ends_BC: Tensor) -> None:
        """The N best of what was finished before and what is now."""
        length_B1, results = self.lengths[:, None] + 1, self.size.results
        now_BC = (top_BC / penalty(length_B1, self.size.alpha)).masked_fill(~ends_BC, NEVER)
        best_BN, place_BN = torch.cat((self.ended, now_BC), 1).topk(results, dim=1)
        old_BN, new_BN = place_BN.clamp(max=results - 1), (place_BN - results).clamp(min=0)
        is_new_BN = place_BN >= results
        parents_BN = parents_BC.gather(1, new_BN)
        here_BN1 = self.lengths[:, None, None].expand(-1, results, 1)

        def merge(ended_BNT: Tensor, written_BWT: Tensor, last_BN: Tensor) -> None:
            before = ended_BNT.gather(1, old_BN[..., None].expand_as(ended_BNT))
            now = written_BWT.gather(1, parents_BN[..., None].expand_as(ended_BNT))
            now = now.scatter(2, here_BN1, last_BN[..., None])
            ended_BNT.copy_(torch.where(is_new_BN[..., None], now, before))

        merge(self.ended_tokens, self.tokens, torch.full_like(parents_BN, END))
        merge(self.ended_token_scores, self.token_scores, log_p_BC.gather(1, new_BN))
        self.ended_lengths.copy_(torch.where(is_new_BN, length_B1, self.ended_lengths.gather(1, old_BN)))
        self.ended.copy_(best_BN)

    def _write(self, words_BW: Tensor, log_p_BW: Tensor) -> None:
        """The next token of every row, and its log p."""
        here_BW1 = self.lengths[:, None, None].expand(*words_BW.shape, 1)
        self.tokens.scatter_(2, here_BW1, words_BW[..., None])
        self.token_scores.scatter_(2, here_BW1, log_p_BW[..., None])

    def _see_what_is_over(self) -> None:
        """Where nothing that goes on can become a result (see search.over_now)."""
        best_B = self.scores.amax(1)
        if self.size.width == 1:
            over_B = best_B == NEVER
        else:
            most_B = best_B / penalty(self.limits + 1, self.size.alpha)
            over_B = self.ended.amin(1) >= most_B
        self.over.logical_or_(over_B | (self.lengths > self.limits))


def groups_of(sources: Sequence[list[int]], tokens: int) -> list[list[int]]:
    """Numbers of sentences in their order, in groups of at most so many tokens together."""
    groups: list[list[int]] = []
    inside = tokens
    for number, source in enumerate(sources):
        if not groups or inside + len(source) > tokens:
            groups.append([])
            inside = 0
        groups[-1].append(number)
        inside += len(source)
    return groups
