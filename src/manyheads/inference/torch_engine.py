"""The torch engine: our own models and our own search, on a CPU or a GPU."""

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from manyheads.checkpoint.adapters import Adapter, merge_adapter
from manyheads.checkpoint.shortlist import Shortlist
from manyheads.config import BOS_ID, EOS_ID, DecodingConfig
from manyheads.errors import RequestError
from manyheads.inference import torch_facts
from manyheads.inference.batch_workers import BatchWorkers, Results, limit_torch_threads
from manyheads.inference.batching import GroupQueue, RequestWindow, group_by_tokens
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, is_plain, supports_search
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.inference.search_model import replace_search_weights, to_bfloat16, to_int8
from manyheads.inference.shortlist_model import ShortlistModel
from manyheads.inference.torch_facts import describe_capabilities, require_feature
from manyheads.model.encoder_decoder import Trace
from manyheads.model.transformer import Transformer
from manyheads.ops import dispatch
from manyheads.packed import Packed
from manyheads.search.driver import check_constraints, is_branching, iterate_results
from manyheads.search.options import Hypothesis, Request, SearchLimits
from manyheads.search.request_source import RequestSource
from manyheads.search.scheduler import ListQueue, QueuedRequest, RequestQueue

MAX_ROWS = 256  # hypotheses in an eager batch
MAX_GRAPH_ROWS, MAX_GRAPH_SLOTS = 4096, 2048  # in CUDA graphs
MEMORY_FRACTION = 0.25  # of a GPU's free memory, for the keys and values of a search
MAX_GRAPH_SEARCHES = 4  # kept with their graphs
MAX_EAGER_SOURCE_TOKENS = 2**15  # of all rows in an eager batch, which bounds memory
GPU_POLL_INTERVAL = 8  # steps of an eager search on a GPU, where each poll synchronizes
SHORT_LENGTH = 64  # sources of up to so many tokens are decoded together, whatever their length
GRAPH_SHORT_LENGTH = 256  # the same in CUDA graphs
MIXED_LENGTH = 256  # sources of an eager batch that others may join, at least
SCORE_TOKENS = 4096  # of sources and targets, scored at once
MAX_WORKERS = 4  # threads with a batch each on a CPU: the interpreter's lock limits what more would do
BATCHES_PER_WORKER = 2  # in work or queued: a thread that is done finds the next batch
MIN_PARALLEL_REQUESTS = 32  # for several threads: fewer are one batch
MIN_WAITING, GPU_MIN_WAITING = 64, MAX_GRAPH_SLOTS  # requests of a stream, for the slots that become free

Precision = Literal["auto", "float32", "bfloat16", "int8"]


def free_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that are free, or that torch's allocator holds unused."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


class GroupKey(NamedTuple):
    """What requests must share to be decoded together."""

    beam: int
    uses_graphs: bool
    uses_shortlist: bool = False


class TorchEngine:
    """Runs a model that is loaded. Several threads may use it at once."""

    name = torch_facts.NAME
    objective = torch_facts.OBJECTIVE

    def __init__(
        self,
        model: nn.Module,
        device: torch.device | str = "cpu",
        precision: Precision = "auto",
        shortlist: Shortlist | None = None,
    ) -> None:
        """Run a model. Its shortlist serves decoding on a CPU, where no scores are read."""
        self.device = torch.device(device)
        self.shortlist = shortlist if self.device.type == "cpu" else None
        self.model: Any = model.to(self.device).eval()
        is_fast = dispatch.has_decode_kernels(self.device)
        self.uses_bfloat16 = precision == "bfloat16" or (precision == "auto" and is_fast)
        self.uses_bfloat16 &= any(isinstance(part, Transformer) for part in self.model.modules())
        self.search_model: Any = to_bfloat16(self.model) if self.uses_bfloat16 else self.model
        if precision == "int8":
            self.search_model = to_int8(self.model, self.device)
        self.read_ahead = torch_facts.GPU_READ_AHEAD if self.runs_on_gpu else torch_facts.READ_AHEAD
        self.graph_searches: dict[SearchSize, CudaGraphSearch] = {}  # not in use; the latest is last
        self.searches_in_use: list[CudaGraphSearch] = []
        self.graph_lock = threading.RLock()

    def with_adapter(self, adapter: Adapter) -> "TorchEngine":
        """Return an engine of the model with an adapter. All weights that it leaves alone are shared.

        It has no shortlist: that of the model was learned from other text than the adapter's.
        """
        adapted = copy.copy(self)
        num_threads = min(torch.get_num_threads(), MAX_WORKERS) if self.device.type == "cpu" else 1
        with limit_torch_threads(1) if num_threads > 1 else nullcontext():
            adapted.model = adapted.search_model = merge_adapter(self.model, adapter, num_threads)
        if self.search_model is not self.model:
            adapted.search_model = replace_search_weights(
                self.search_model, adapted.model, adapter.factors.keys()
            )
        adapted.shortlist = None
        adapted.graph_searches, adapted.searches_in_use = {}, []
        adapted.graph_lock = threading.RLock()
        return adapted

    @property
    def runs_on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def num_graphs(self) -> int:
        """How many CUDA graphs are captured now."""
        return sum(search.num_graphs for search in [*self.graph_searches.values(), *self.searches_in_use])

    def refresh_weights(self) -> None:
        """Follow a change of the model's weights."""
        self.model.eval()
        if self.uses_bfloat16:
            for name in ("parameters", "buffers"):
                rounded, exact = getattr(self.search_model, name)(), getattr(self.model, name)()
                for own, other in zip(rounded, exact, strict=True):
                    own.data.copy_(other.data)

    @property
    def capabilities(self) -> Capabilities:
        return describe_capabilities(self.model.config, self.model.position_limit)

    def require(self, feature: Feature) -> None:
        """Raise a RequestError that names the model's key if the model lacks attention."""
        require_feature(self.model.config, feature)

    # ---- decoding

    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each request and its hypotheses, best first, as they finish.

        Requests of a RequestSource join those that are being decoded as soon as there is a free slot. Scores
        cost nothing, but on a GPU those of tokens take time to be read.
        """
        for results in self.decode_batches(requests, config, scores=scores, window=window):
            yield from results

    def decode_batches(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[Results]:
        """Yield what `decode` does, the results that are found at the same time together."""
        can_capture = dispatch.has_decode_kernels(self.device) and supports_search(self.search_model, config)
        plain = GroupKey(config.beam, can_capture)

        can_restrict = config.shortlist and config.temperature is None and scores == "none"
        shortlist = self.shortlist if can_restrict else None

        def key(request: Request) -> GroupKey:
            own = request.constraints
            if shortlist is not None and shortlist.covers(request.source):
                return GroupKey(own.widen_beam(config.beam), False, uses_shortlist=True)
            return plain if is_plain(own) else GroupKey(own.widen_beam(config.beam), False)

        min_waiting = GPU_MIN_WAITING if self.runs_on_gpu else MIN_WAITING
        check = self._create_check(config)
        pending = RequestWindow(requests, window, key, check=check, min_waiting=min_waiting)
        num_workers = self._count_workers(pending)
        if num_workers > 1:
            return self._decode_in_threads(pending, config, num_workers)
        return self._decode_groups(pending, config, token_scores=scores == "tokens")

    def _count_workers(self, pending: RequestWindow) -> int:
        """Return how many threads decode batches of their own. One batch needs one."""
        is_small = pending.num_waiting < MIN_PARALLEL_REQUESTS
        if self.device.type != "cpu" or is_small or pending.source.starts_at_once:
            return 1
        return min(torch.get_num_threads(), MAX_WORKERS)

    def _decode_in_threads(
        self, pending: RequestWindow, config: DecodingConfig, num_workers: int
    ) -> Iterator[Results]:
        """Decode batches of similar lengths, one in each thread."""

        def max_sentences(max_source_length: int) -> int:
            return self._max_rows(max_source_length) // config.num_hypotheses

        with limit_torch_threads(torch.get_num_threads() // num_workers):
            workers = BatchWorkers(num_workers)
            try:
                while True:
                    while workers.num_batches < BATCHES_PER_WORKER * num_workers:
                        key, batch = pending.take_batch(max_sentences, num_workers)
                        if not batch:
                            break
                        assert isinstance(key, GroupKey)
                        own_config = replace(config, beam=key.beam)
                        decode = partial(self._decode_batch, batch, own_config, key.uses_shortlist)
                        workers.submit(partial(decode, workers.check_stopped))
                    if workers.num_batches:
                        if results := workers.wait():
                            yield results
                            pending.finish([index for index, _ in results])
                    elif pending.has_ended:
                        return
                    else:
                        pending.source.wait()
                        pending.read()
            finally:
                workers.stop()

    @torch.inference_mode()
    def _decode_batch(
        self,
        batch: list[QueuedRequest],
        config: DecodingConfig,
        uses_shortlist: bool,
        check_stopped: Callable[[], None],
    ) -> Iterator[Results]:
        requests = [request for _, request in batch]
        queue = ListQueue(requests)
        for results in self._search_eagerly(queue, requests, config, uses_shortlist, check_stopped):
            yield [(batch[number].request_index, hypotheses) for number, hypotheses in results]

    @torch.inference_mode()
    def _decode_groups(
        self, pending: RequestWindow, config: DecodingConfig, token_scores: bool
    ) -> Iterator[Results]:
        """Yield indices and hypotheses, some at a time: entering inference mode for each would cost more."""
        while (group := self._next_group(pending)) is not None:
            queue = pending.open_group(group, GRAPH_SHORT_LENGTH if group.uses_graphs else SHORT_LENGTH)
            own_config = replace(config, beam=group.beam)
            if group.uses_graphs:
                finished = self._decode_with_graphs(queue, own_config, token_scores)
            else:
                finished = self._search_eagerly(queue, queue.peek(), own_config, group.uses_shortlist)
            for results in finished:
                yield results
                self._read_on(pending, [index for index, _ in results])

    @staticmethod
    def _next_group(pending: RequestWindow) -> GroupKey | None:
        """Return what is decoded next. Where nothing is left, wait for what a source may still have."""
        with torch.inference_mode(False):
            while (key := pending.next_key()) is None and not pending.has_ended:
                pending.source.wait()
                pending.read()
        assert key is None or isinstance(key, GroupKey)
        return key

    @staticmethod
    def _read_on(pending: RequestWindow, finished: list[int]) -> None:
        """Read the caller's iterator outside inference mode and without a lock: it may use torch, or wait."""
        with torch.inference_mode(False):
            pending.finish(finished)

    def _create_check(self, config: DecodingConfig) -> Callable[[Request], Request] | None:
        """Return what checks a request against the model and the kind of search, if anything is to check."""
        max_positions = self.capabilities.max_positions
        if max_positions is None and config.temperature is None:
            return None

        def check(request: Request) -> Request:
            check_constraints(request.constraints, config)
            return request if max_positions is None else limit_to_positions(request, max_positions)

        return check

    def _max_rows(self, max_source_length: int) -> int:
        """Return how many hypotheses an eager batch holds."""
        return min(MAX_ROWS, MAX_EAGER_SOURCE_TOKENS // max(1, max_source_length))

    def _search_eagerly(
        self,
        queue: RequestQueue,
        waiting: list[Request],
        config: DecodingConfig,
        uses_shortlist: bool = False,
        before_step: Callable[[], None] | None = None,
    ) -> Iterator[Results]:
        """Decode the requests of a queue, of which some are known."""
        model = self.search_model
        if uses_shortlist and self.shortlist is not None:
            model = ShortlistModel(model, self.shortlist)

        def admit(new: list[QueuedRequest], state: Any) -> Any:
            if isinstance(model, ShortlistModel):
                model.admit([request for _, request in new], is_first=state is None)
            memory = model.encode(Packed.of([request.source for _, request in new]).to(self.device))
            return model.start(memory, config.num_hypotheses) if state is None else state.append(memory)

        def step(tokens_R: Tensor, state: Any) -> Any:
            if before_step is not None:
                before_step()
            return model.step(tokens_R, state)

        longest = max(len(request.source) for request in waiting)
        limits = SearchLimits(max_rows=max(config.num_hypotheses, self._max_rows(longest)))
        if self.device.type == "cuda":
            limits = replace(limits, poll_interval=GPU_POLL_INTERVAL)
        if queue.starts_at_once:  # longer ones may join
            max_rows = max(config.num_hypotheses, self._max_rows(max(longest, MIXED_LENGTH)))
            limits = replace(limits, max_rows=max_rows, refill_fraction=0.0, retire_fraction=0.0)
            limits = replace(limits, yields_every_poll=True)
        branching = is_branching(config, any(request.constraints.required_phrases for request in waiting))
        return iterate_results(step, admit, queue, config, branching, self.device, limits)

    def _decode_with_graphs(
        self, queue: GroupQueue, config: DecodingConfig, token_scores: bool
    ) -> Iterator[Results]:
        """Decode in CUDA graphs, one thread at a time between two results."""
        waiting = queue.peek()
        longest = max(len(request.source) for request in waiting)
        max_rows = min(MAX_GRAPH_ROWS, MAX_GRAPH_SLOTS * config.num_hypotheses)
        size = SearchSize.for_requests(waiting, config, max_rows)
        if not queue.window.has_ended:
            size = SearchSize.for_stream(waiting, config, max_rows, GRAPH_SHORT_LENGTH)
        with self.graph_lock:
            search = self.graph_searches.pop(size, None)
            if search is None or search.size.source_tokens < longest:  # it was shrunk to fit into memory
                search = self._create_graph_search(size, longest)
            self.searches_in_use.append(search)
        if not queue.window.has_ended:
            queue.accepts = search.size.fits  # of the requests to come
        finished = search.run(queue, token_scores)
        try:
            while True:
                with self.graph_lock:
                    results = next(finished, None)
                if results is None:
                    return
                yield results
        finally:
            with self.graph_lock:
                self.searches_in_use.remove(search)
                self.graph_searches[size] = search

    def _create_graph_search(self, size: SearchSize, max_source_length: int) -> CudaGraphSearch:
        """Create a search, smaller where memory is short. The oldest ones are dropped first."""
        for old in list(self.graph_searches)[: max(0, len(self.graph_searches) + 1 - MAX_GRAPH_SEARCHES)]:
            del self.graph_searches[old]
        dtype = next(self.search_model.encoder.parameters()).dtype
        max_bytes = MEMORY_FRACTION * free_memory(self.device)
        size = size.shrink_to_fit(self.model.config, dtype.itemsize, max_bytes, max_source_length)
        return CudaGraphSearch(self.search_model, size, dtype, self.device)

    # ---- forced decoding

    @torch.inference_mode()
    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return log p of each token of each target, the end token last: forced decoding."""
        results: list[list[float]] = [[] for _ in targets]
        for indices in group_pairs(sources, targets):
            source = Packed.of([sources[index] for index in indices]).to(self.device)
            inputs = Packed.of([[BOS_ID, *targets[index]] for index in indices]).to(self.device)
            labels = Packed.of([[*targets[index], EOS_ID] for index in indices]).to(self.device)
            log_p_T = label_log_probs(self.model(source, inputs), labels.tokens)
            for index, scores in zip(indices, labels.split(log_p_T), strict=True):
                results[index] = scores.tolist()
        return results

    @torch.inference_mode()
    def trace(self, source: list[int], target: list[int]) -> tuple[Trace, Tensor]:
        """Return all attention weights of a translation, and log p of every word at each step. [T + 1, K]"""
        self.require("attention")
        trace = Trace()
        inputs = Packed.of([[BOS_ID, *target]]).to(self.device)
        logits_TK = self.model(Packed.of([source]).to(self.device), inputs, trace=trace)
        return trace, logits_TK.float().log_softmax(-1)

    @torch.inference_mode()
    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Tensor]:
        """Return the last layer's attention over the source, its heads averaged. [T + 1, S] each"""
        self.require("alignment")
        results: list[Tensor] = [torch.empty(0)] * len(sources)
        for indices in group_pairs(sources, targets):
            trace = Trace()
            source = Packed.of([sources[index] for index in indices]).to(self.device)
            inputs = Packed.of([[BOS_ID, *targets[index]] for index in indices]).to(self.device)
            self.model(source, inputs, trace=trace)
            for index, heads_HTS in zip(indices, trace.cross[-1], strict=True):
                results[index] = heads_HTS.mean(0).float().cpu()
        return results


def limit_to_positions(request: Request, max_positions: int) -> Request:
    """Return the request with a maximum length that the model's positions allow."""
    if len(request.source) > max_positions:
        raise RequestError(
            f"a sentence of {len(request.source)} tokens, but the model has {max_positions} learned "
            f"positions: split it"
        )
    own = request.constraints
    max_length = min(own.max_length, max_positions - 1)
    return Request(request.source, replace(own, max_length=max_length))


def group_pairs(sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Iterator[list[int]]:
    lengths = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
    return group_by_tokens(lengths, SCORE_TOKENS)


def label_log_probs(logits_TK: Tensor, labels_T: Tensor) -> Tensor:
    """Return log p of each label. [T]"""
    label_logits_T = logits_TK.gather(1, labels_T[:, None]).squeeze(1)
    return label_logits_T.float() - logits_TK.float().logsumexp(-1)
