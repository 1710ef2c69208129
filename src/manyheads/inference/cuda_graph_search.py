"""Beam and greedy search in CUDA graphs, with continuous batching.

The batch has a fixed number of slots, and one step of all of them (search/beam.py) is a captured graph. Every
few steps the host polls which sentences are done, reads their results and gives their slots to waiting
sentences. It sees the state of some steps ago: the next steps are queued by then, so the GPU never waits for
the host. When nothing waits and few sentences are left, they move to the first slots, and a step computes
those alone. Sampling and constraints other than lengths and repeated n-grams are left to the eager driver
(search/driver.py).

Shapes: B slots, W hypotheses of each, R = B W rows; N results of a sentence, T tokens of an output at most,
        C candidates, K vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyheads.config import EOS_ID, DecodingConfig, TransformerConfig
from manyheads.cuda.graphs import capture
from manyheads.cuda.transfer import EMPTY_COPY, AsyncCopy, IntArray, to_device
from manyheads.inference.prefill import EncodedRequest, PrefillQueue, SourcePrefill
from manyheads.model.static_cache import StaticKVCache
from manyheads.model.transformer import Transformer
from manyheads.ops.topk import topk_logsumexp
from manyheads.packed import round_up
from manyheads.search.beam import BeamState, beam_step, greedy_step, read_hypotheses
from manyheads.search.constraints import limit_candidate_lengths, mask_repeated_ngrams
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.scheduler import EMPTY, RequestQueue, SlotTable

MAX_BEAM = 32
POLL_INTERVAL = 4  # steps between polls for finished sentences
EAGER_STEPS = 32  # before the first graph is captured: few steps are not worth one
PREFILL_TOKENS = 2**14  # source tokens encoded at once
MAX_SOURCE_TOKENS, MIN_SOURCE_TOKENS = 2**19, 2**13  # of sentences that are encoded and wait or are decoded
TOKEN_BYTES = 24  # of a token and its score, unfinished and finished
MAX_TOKENS_STEP = 64  # T is a multiple of it
COMPACT_FACTOR = 4  # fewer slots, where these suffice for the sentences that are left
MIN_ROWS = 64  # a step of fewer rows takes as long


def supports_search(model: Any, config: DecodingConfig) -> bool:
    """Return whether the static cache serves this model, and the graphs this kind of search."""
    has_static_cache = isinstance(model, Transformer) and model.config.attention != "additive"
    has_static_cache = has_static_cache and model.config.experts is None
    has_static_cache = has_static_cache and model.config.positions != "learned"
    return has_static_cache and config.temperature is None and config.beam <= MAX_BEAM


def is_plain(constraints: DecodingConstraints) -> bool:
    """Return whether only the length of an output is constrained."""
    return not (constraints.prefix or constraints.required_phrases or constraints.forbidden_phrases)


@dataclass(frozen=True)
class SearchSize:
    """The fixed shapes that graphs are captured for."""

    slots: int  # B
    beam: int  # W
    nbest: int  # N
    max_tokens: int  # T, two more than the tokens of an output: the end, and one beyond it
    source_tokens: int
    alpha: float
    no_repeat_ngram: int | None = None

    @classmethod
    def for_requests(cls, requests: Sequence[Request], config: DecodingConfig, max_rows: int) -> "SearchSize":
        """Return one of a few sizes that holds these requests: each size has its own graphs."""
        max_length = max(request.constraints.max_length for request in requests)
        lengths = [len(request.source) for request in requests]
        return cls(
            min(next_power_of_two(len(requests)), max(1, max_rows // config.num_hypotheses)),
            config.num_hypotheses,
            config.nbest,
            round_up(max_length + 2, MAX_TOKENS_STEP),
            max(next_power_of_two(max(lengths)), min(next_power_of_two(sum(lengths)), MAX_SOURCE_TOKENS)),
            config.alpha,
            config.no_repeat_ngram,
        )

    @classmethod
    def for_stream(
        cls, requests: Sequence[Request], config: DecodingConfig, max_rows: int, max_length: int
    ) -> "SearchSize":
        """Return the size for the first requests of a stream and for sources of up to `max_length`."""
        max_extra = max(0, *(own.max_length - len(source) for source, own in requests))
        filler = Request([EOS_ID] * max_length, DecodingConstraints(max_length + max_extra))
        num_slots = max(1, max_rows // config.num_hypotheses)
        size = cls.for_requests([*requests, filler], config, max_rows)
        source_tokens = min(MAX_SOURCE_TOKENS, next_power_of_two(num_slots * max_length))
        return replace(size, slots=num_slots, source_tokens=source_tokens)

    def fits(self, request: Request) -> bool:
        is_short = len(request.source) <= self.source_tokens
        return is_short and request.constraints.max_length + 2 <= self.max_tokens

    @property
    def prefill_tokens(self) -> int:
        return min(PREFILL_TOKENS, self.source_tokens)

    @property
    def source_capacity(self) -> int:
        """Source tokens that memory is allocated for: a padded prefill may write beyond the last sentence."""
        return self.source_tokens + self.prefill_tokens

    def memory_bytes(self, config: TransformerConfig, itemsize: int) -> int:
        """Return the bytes of all keys, values and tokens."""
        num_tokens = self.slots * self.beam * self.max_tokens
        per_token = config.decoder_layers * config.heads * (config.head_dim_k + config.head_dim_v) * itemsize
        return (num_tokens + self.source_capacity) * per_token + TOKEN_BYTES * num_tokens

    def shrink_to_fit(
        self, config: TransformerConfig, itemsize: int, max_bytes: float, max_source_length: int
    ) -> "SearchSize":
        """Return a size with fewer source tokens, then fewer slots, that fits; or the smallest there is."""
        size, min_tokens = self, max(MIN_SOURCE_TOKENS, next_power_of_two(max_source_length))
        while size.memory_bytes(config, itemsize) > max_bytes and size.source_tokens > min_tokens:
            size = replace(size, source_tokens=size.source_tokens // 2)
        while size.memory_bytes(config, itemsize) > max_bytes and size.slots > 1:
            size = replace(size, slots=size.slots // 2)
        return size


def next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class CudaGraphSearch:
    """Searches of one size, for one model."""

    def __init__(
        self, model: Transformer, size: SearchSize, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.model, self.size, self.device = model, size, device
        self.cache = StaticKVCache.allocate(
            model.config, size.slots, size.beam, size.max_tokens + 1, size.source_capacity, dtype, device
        )
        self.prefill = SourcePrefill(model, self.cache, size.prefill_tokens)
        self.beams = BeamState.allocate(size.slots, size.beam, size.nbest, size.max_tokens, device)
        self.steps: dict[int, CapturedDecodingStep] = {}  # by the number of slots that one computes
        self.min_slots = -(-MIN_ROWS // size.beam)
        self.num_steps = 0  # of all runs

    @property
    def num_graphs(self) -> int:
        """How many graphs were captured."""
        return self.prefill.num_graphs + sum(step.graph is not None for step in self.steps.values())

    def run(
        self, queue: RequestQueue, token_scores: bool = True
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Yield the indices and results of sentences as they finish, some at a time.

        The host reads a poll and results while the steps that it has queued behind them run.
        """
        table = SlotTable(self.size.slots)
        sources = PrefillQueue(self.prefill, queue, self.size.source_capacity)
        no_results = PendingResults(table.occupants[:0], EMPTY_COPY, self.size.alpha)
        poll, pending = self._poll(table), no_results
        canceled: set[int] = set()
        while True:
            canceled.update(queue.take_canceled())
            if canceled:
                self._release_canceled(table, sources, canceled)
            free = table.free_slots()
            sources.fill(len(free))
            self._admit(table, free, sources.take(len(free)))
            if table.is_empty:
                if not len(pending.indices):
                    return
                yield pending.read(canceled)  # after which the queue may have more
                pending = no_results
                continue
            if sources.is_exhausted:
                self._compact(table)
            else:
                table.fit(COMPACT_FACTOR, self.min_slots)
            self._step_of(table.num_active).run(POLL_INTERVAL)
            self.num_steps += POLL_INTERVAL
            previous, poll = poll, self._poll(table)
            finished = pending.read(canceled)
            done = previous.find_done(table.occupants)
            pending = self._collect(done, table.occupants[done], token_scores)
            sources.release(table.occupants[done].tolist())
            table.release(done)
            if finished or queue.starts_at_once:
                yield finished

    def _release_canceled(self, table: SlotTable, sources: PrefillQueue, canceled: set[int]) -> None:
        """Free the slots of sentences whose results nobody needs. What they still compute is not read."""
        slots = np.flatnonzero(np.isin(table.occupants, list(canceled)))
        if len(slots):
            indices = table.occupants[slots].tolist()
            sources.release(indices)
            table.release(slots)
            canceled.difference_update(indices)
            self.beams.done.index_fill_(0, to_device(slots, self.device), True)

    def _admit(self, table: SlotTable, free: IntArray, new: Sequence[EncodedRequest]) -> None:
        """Start waiting sentences in free slots."""
        if not new:
            return
        slots = free[: len(new)]
        table.occupants[slots] = [queued.request_index for queued, _ in new]
        numbers = np.array([(start, *describe_request(request)) for (_, request), start in new])
        columns = to_device(np.concatenate((slots[:, None], numbers), 1), self.device)
        slots_B, starts, lengths, max_lengths, min_lengths = columns.unbind(1)
        self.cache.source_starts[slots_B], self.cache.source_lengths[slots_B] = starts, lengths
        self.cache.lengths.view(-1, self.size.beam).index_fill_(0, slots_B, 0)
        self.beams.begin(slots_B, max_lengths, min_lengths)

    def _compact(self, table: SlotTable) -> None:
        """Let a step compute fewer slots when few sentences are left."""
        old, new = table.compact(COMPACT_FACTOR, self.min_slots)
        if len(old):
            old_B, new_B = to_device(np.stack((old, new)), self.device)
            self.beams.move(old_B, new_B)
            self.cache.move_slots(old_B, new_B)

    def _step_of(self, num_slots: int) -> "CapturedDecodingStep":
        if num_slots not in self.steps:
            cache, beams = self.cache.first_slots(num_slots), self.beams.first(num_slots)
            eager_steps = 1 if self.steps else EAGER_STEPS  # kernels are compiled before they are captured
            self.steps[num_slots] = CapturedDecodingStep(self.model, cache, beams, self.size, eager_steps)
        return self.steps[num_slots]

    def _poll(self, table: SlotTable) -> "DonePoll":
        return DonePoll(table.occupants.copy(), AsyncCopy.to_host([self.beams.done[: table.num_active]]))

    def _collect(self, slots: IntArray, indices: IntArray, token_scores: bool) -> "PendingResults":
        """Start to copy the results of the sentences in these slots to the host."""
        if not len(slots):
            return PendingResults(indices, EMPTY_COPY, self.size.alpha)
        beams, chosen = self.beams, to_device(slots, self.device)
        copied = [beams.finished_scores, beams.finished_lengths, beams.finished_tokens]
        copied += [beams.finished_token_scores] if token_scores else []
        results = AsyncCopy.to_host([values[chosen] for values in copied])
        return PendingResults(indices, results, self.size.alpha)


def describe_request(request: Request) -> tuple[int, int, int]:
    """Return the length of the source and the maximum and minimum lengths of the output."""
    source, own = request
    return len(source), own.max_length, own.min_length


@dataclass(frozen=True)
class DonePoll:
    """Which slots were done, and which sentences were in them."""

    occupants: IntArray
    done: AsyncCopy

    def find_done(self, occupants: IntArray) -> IntArray:
        """Return the slots whose sentence was done and is still there: others have come or moved since."""
        done = self.done.wait()[0].numpy()
        then, now = self.occupants[: len(done)], occupants[: len(done)]
        return np.flatnonzero(done & (then == now) & (now != EMPTY))


@dataclass(frozen=True)
class PendingResults:
    """Sentences that are done, and their results on the way to the host."""

    indices: IntArray
    results: AsyncCopy  # scores, lengths, tokens, and scores of tokens if they are read
    alpha: float

    def read(self, canceled: set[int]) -> list[tuple[int, list[Hypothesis]]]:
        """Return the indices and results of sentences, but for those that were canceled meanwhile."""
        if not len(self.indices):
            return []
        scores, lengths, tokens, *token_scores = self.results.wait()
        results = read_hypotheses(
            scores, lengths, tokens, token_scores[0] if token_scores else None, self.alpha
        )
        pairs = zip(self.indices.tolist(), results, strict=True)
        needed = [(index, own) for index, own in pairs if index not in canceled]
        canceled.difference_update(self.indices.tolist())
        return needed


class CapturedDecodingStep:
    """One step of so many slots: eager at first, then a CUDA graph. Nothing in it waits for the GPU."""

    def __init__(
        self, model: Transformer, cache: StaticKVCache, beams: BeamState, size: SearchSize, eager_steps: int
    ) -> None:
        self.model, self.cache, self.beams = model, cache, beams
        self.alpha, self.no_repeat_ngram = size.alpha, size.no_repeat_ngram
        self.eager_steps = eager_steps  # to do before the graph is captured
        self.device, (num_slots, self.beam) = beams.done.device, beams.scores.shape
        self.first_rows = torch.arange(num_slots, device=self.device)[:, None] * self.beam  # [B, 1]
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.device.type != "cuda" or self.eager_steps:
                self.eager_steps = max(0, self.eager_steps - 1)
                self._step()
            else:
                self.graph = self.graph or capture(self._step)[0]
                self.graph.replay()

    def _step(self) -> None:
        """Extend every hypothesis by one token."""
        logits_RK, _ = self.model.step(self.beams.last_tokens.flatten(), self.cache)
        tokens_BWC, log_p_BWC = self._candidates(logits_RK)
        if self.beam == 1:
            log_p_B1, index_B1 = log_p_BWC[:, 0].max(1, keepdim=True)
            greedy_step(self.beams, tokens_BWC[:, 0].gather(1, index_B1), log_p_B1, self.alpha)
        else:
            parents_BW = beam_step(self.beams, tokens_BWC, log_p_BWC, self.alpha)
            self.cache.reorder((self.first_rows + parents_BW).flatten())

    def _candidates(self, logits_RK: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens of each row and their log p, within length limits. [B, W, C] each"""
        shape = self.beams.scores.shape
        count = min(2 * self.beam + 1, logits_RK.shape[1])
        values, tokens, log_total = topk_logsumexp(logits_RK, count)
        if self.no_repeat_ngram:  # what is left keeps its probability: log_total is that of all tokens
            logits_BWK = logits_RK.view(*shape, -1)
            mask_repeated_ngrams(logits_BWK, self.beams.tokens, self.beams.lengths, self.no_repeat_ngram)
            values, tokens, _ = topk_logsumexp(logits_RK, count)
        log_p_BWC = (values - log_total[:, None]).view(*shape, count)
        end_log_p_BW = (logits_RK[:, EOS_ID].float() - log_total).view(shape)
        return limit_candidate_lengths(self.beams, tokens.view(*shape, count), log_p_BWC, end_log_p_BW)
