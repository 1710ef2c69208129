"""The CTranslate2 engine: models converted by export/ctranslate2.py, run by a C++ library that is fast on
CPUs.

Its search differs from ours, and results carry the engine's name:

- While searching it compares hypotheses by log p / L^alpha, and it stops when `beam` of them are finished. We
  rank the results by our log p / ((5 + L) / 6)^alpha. At alpha 0 both searches are the same.
- With forbidden phrases, a minimum length or a prefix it renormalizes the probabilities of the allowed tokens
  and searches by those. The scores that we return are always the model's own.
- A hypothesis that reaches the maximum length is cut. It gets the end token that our search would force.
- With a shortlist (checkpoint/shortlist.py) the probabilities of the candidates add up to 1 while searching.

An n-best list is ranked by the model's own scores. A single result is the best by CTranslate2's count; only
if some hypotheses were cut and others were not are they compared with their end tokens.
"""

import math
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.checkpoint.shortlist import read_shortlist
from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import CheckpointError, DataError, RequestError, install_command, is_out_of_memory
from manyheads.inference.batching import RequestWindow, group_by_tokens
from manyheads.inference.conversion import VOCABULARY_MAP, read_conversion, read_pieces
from manyheads.inference.ctranslate2_alignment import align_pieces
from manyheads.inference.ctranslate2_drafts import (
    CallOptions,
    Draft,
    cut_draft,
    is_partly_cut,
    make_forced_draft,
)
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.search.options import Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.text.subwords import count_cpus

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.model.encoder_decoder import Trace

COMPUTE_TYPES = ("float32", "int8", "int8_float32")
BATCH_TOKENS, BEAM_BATCH_TOKENS = 3072, 1024  # of sources, padding counted, translated at once by a thread
SHORTLIST_BATCH_TOKENS = 512  # the same with a shortlist: more sentences have more candidates
SCORE_TOKENS = 1024  # of sources or targets, scored at once: all their logits are held
READ_AHEAD = 4096  # requests of a stream, which are sorted by length
BATCHES_PER_THREAD = 2  # in work or queued: a thread that is done finds the next batch
MAX_RESCORED_SENTENCES = 8  # of a greedy batch with a shortlist whose scores are read: computed afterwards
MIN_SEARCH_LENGTH = 64  # maximum lengths up to this share a search, and then powers of two
MIN_LOG_PROBABILITY = -1e9  # CTranslate2 marks invalid hypotheses by a log p below this

Search = Generator[None, None, list[list[Hypothesis]]]
SearchCall = tuple[CallOptions, list[int], list[Any]]  # the sentences of a call, and their future results
ScoreCall = tuple[list[int], list[Any]]


def import_ctranslate2() -> Any:
    """Return the package ctranslate2, which only this engine needs."""
    try:
        import ctranslate2
    except ImportError:
        raise RequestError(
            f"the ctranslate2 engine needs the package ctranslate2: {install_command('ctranslate2')}"
        ) from None
    return ctranslate2


class CTranslate2Engine:
    """Runs a converted model. Several threads may use it at once."""

    objective = "found by CTranslate2's log p / L^alpha, ranked by log p / ((5 + L) / 6)^alpha"
    read_ahead = READ_AHEAD

    def __init__(self, folder: Path, compute_type: str = "float32", threads: int | None = None) -> None:
        """Open a conversion. `threads` is by default the number of cores.

        Each thread translates batches of its own: several threads in one batch wait for each other at every
        operation, which is slower for a file as for a single sentence, and much slower on busy cores.
        """
        check_compute_type(compute_type)
        self.name = f"ctranslate2 {compute_type}"
        self.threads = threads or count_cpus()
        self.max_positions = int(
            read_conversion(folder)["max_positions"]
        )  # of a source or target, end included
        self._source_pieces = read_pieces(folder, "source")
        self._target_pieces = read_pieces(folder, "target")
        self._target_ids = {piece: token for token, piece in enumerate(self._target_pieces)}
        self._shortlist = None
        if (folder / VOCABULARY_MAP).exists():
            vocab_sizes = len(self._source_pieces), len(self._target_pieces)
            self._shortlist = read_shortlist(folder, *vocab_sizes)
        try:
            self._translator = import_ctranslate2().Translator(
                os.fspath(folder),
                device="cpu",
                compute_type=compute_type,
                inter_threads=self.threads,
                intra_threads=1,
                max_queued_batches=-1,  # as many as the calls bring
            )
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(
                f"{folder}: CTranslate2 cannot load it ({error}): use --engine torch"
            ) from None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            sampling=False,
            forbidden_phrases=True,
            required_phrases=False,
            alignment=True,
            attention=False,
            token_scores=True,
            devices=("cpu",),
            max_positions=self.max_positions,
        )

    def require(self, feature: Feature) -> None:
        """Raise a RequestError if CTranslate2 lacks a capability."""
        if not getattr(self.capabilities, feature):
            name = feature.replace("_", " ")
            raise RequestError(f"the engine {self.name} does not support {name}: use the torch engine")

    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each request and its hypotheses, best first, as they finish.

        All threads are busy from the first sentence to the last: the next batches are queued before the
        results of a batch are read. The total score costs nothing where nothing bends the search; after a
        cut, a prefix and the like it is computed by forced decoding, as token scores always are. With "none"
        what costs something is NaN. A source that holds the end token alone comes out empty: CTranslate2 does
        not run the model.
        """
        check_sampling(config)
        key_of = partial(self._call_options, uses_shortlist=config.shortlist and self._shortlist is not None)
        pending = RequestWindow(requests, window, key_of, check=self._check)
        max_tokens = BATCH_TOKENS if config.beam == 1 else BEAM_BATCH_TOKENS
        if config.shortlist and self._shortlist is not None and scores == "none":
            max_tokens = min(max_tokens, SHORTLIST_BATCH_TOKENS)
        active: deque[tuple[list[int], Search]] = deque()  # the oldest first
        while True:
            while len(active) < BATCHES_PER_THREAD * self.threads + 1:
                key, batch = pending.take_batch(lambda max_length: max_tokens // max_length, self.threads)
                if not batch:
                    break
                assert isinstance(key, CallOptions)
                search = self._search([queued.request for queued in batch], key, config, scores)
                next(search)
                active.append(([queued.request_index for queued in batch], search))
            if not active:
                if pending.has_ended:
                    return
                pending.source.wait()  # for what others may still bring
                pending.read()
                continue
            indices, search = active.popleft()
            try:
                next(search)
            except StopIteration as end:
                pending.finish(indices)
                yield from zip(indices, end.value, strict=True)
            else:  # it has started another call
                active.append((indices, search))

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return log p of each token of each target, the end token last: forced decoding."""
        for source, target in zip(sources, targets, strict=True):
            self._check_lengths(source, len(target))
        calls = self._start_scores(sources, targets)
        return self._read_scores(calls, len(targets))

    def _start_scores(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[ScoreCall]:
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        return [
            (
                indices,
                self._translator.score_batch(
                    [self._to_pieces(sources[n], self._source_pieces) for n in indices],
                    [self._to_pieces(targets[n], self._target_pieces) for n in indices],
                    max_input_length=0,
                    asynchronous=True,
                ),
            )
            for indices in group_by_tokens(lengths, SCORE_TOKENS)
        ]

    def _read_scores(self, calls: list[ScoreCall], count: int) -> list[list[float]]:
        results: list[list[float]] = [[] for _ in range(count)]
        for indices, scored in calls:
            for index, result in zip(indices, scored, strict=True):
                results[index] = list(result.result().log_probs)
        return results

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Any:
        """Return the last layer's attention over the source, its heads averaged: arrays [T + 1, S]."""
        for source, target in zip(sources, targets, strict=True):
            self._check_lengths(source, len(target))
        return align_pieces(
            self._translator,
            [self._to_pieces(source, self._source_pieces) for source in sources],
            [self._to_pieces(target, self._target_pieces) for target in targets],
        )

    def trace(self, source: list[int], target: list[int]) -> "tuple[Trace, Tensor]":
        """Refuse: of a converted model only the attention of the last layer is known."""
        self.require("attention")
        raise AssertionError

    # ---- what is refused

    def _check(self, request: Request) -> Request:
        """Refuse what CTranslate2 cannot do, and limit the length to the positions."""
        self._check_lengths(request.source)
        if request.constraints.required_phrases:
            raise RequestError(
                "phrases are required in the output (a glossary), which CTranslate2 cannot guarantee: "
                "use the torch engine"
            )
        return limit_length(request, self.max_positions - 1)

    def _check_lengths(self, source: list[int], target_length: int = 0) -> None:
        """Refuse what CTranslate2 would cut or fail on halfway."""
        if not source:
            raise RequestError("a source without a token, but each must end with the end token")
        longest = max(len(source), target_length + 1)
        if longest > self.max_positions:
            raise RequestError(
                f"{'a source' if longest == len(source) else 'a target'} of {longest} tokens, end included, "
                f"but this model has {self.max_positions} positions in CTranslate2: split it, or use the "
                f"torch engine"
            )

    # ---- the search

    def _search(
        self, requests: Sequence[Request], options: CallOptions, config: DecodingConfig, scores: ScoreDetail
    ) -> Search:
        """Return the hypotheses of each sentence. It yields whenever it has started calls and would wait.

        Where scores are read, those of a shortlist cost another call: it must save more than that.
        """
        saves_time = scores == "none" or config.beam > 1 or len(requests) <= MAX_RESCORED_SENTENCES
        options = options._replace(uses_shortlist=options.uses_shortlist and saves_time)
        drafts = yield from self._find_drafts(requests, options, config, with_scores=scores != "none")
        uncertain = [
            (n, draft)
            for n, own in enumerate(drafts)
            if config.nbest > 1 or is_partly_cut(own)
            for draft in own
        ]
        yield from self._make_exact(requests, [(n, draft) for n, draft in uncertain if not draft.is_exact])
        for own in drafts:
            own.sort(key=lambda draft: -draft.rank(config.alpha))
            del own[config.nbest :]
        if scores != "none":
            known = "token_scores" if scores == "tokens" else "is_exact"
            kept = [(n, draft) for n, own in enumerate(drafts) for draft in own]
            yield from self._make_exact(
                requests, [(n, draft) for n, draft in kept if not getattr(draft, known)]
            )
        return [[draft.to_hypothesis(config.alpha) for draft in own] for own in drafts]

    def _find_drafts(
        self, requests: Sequence[Request], options: CallOptions, config: DecodingConfig, with_scores: bool
    ) -> Generator[None, None, list[list[Draft]]]:
        """Return what CTranslate2 finds for each sentence, within its maximum length."""
        drafts: list[list[Draft]] = [[] for _ in requests]
        searched = []
        for index, request in enumerate(requests):
            own = request.constraints
            if len(own.prefix) >= own.max_length:
                drafts[index] = [make_forced_draft(own)]
            else:
                searched.append(index)
        started = self._start_calls({options: searched} if searched else {}, requests, config, with_scores)
        yield
        too_long: dict[CallOptions, list[int]] = {}
        for index, results in self._read_calls(started, requests, config):
            own = requests[index].constraints
            if config.beam > 1 and any(len(draft.tokens) > own.max_length for draft in results):
                longer = CallOptions.for_constraints(own, own.max_length, options.uses_shortlist)
                too_long.setdefault(longer, []).append(index)
            else:  # greedy search does not look ahead: its first tokens would be the same
                drafts[index] = [cut_draft(draft, own.max_length) for draft in results]
        if too_long:
            started = self._start_calls(too_long, requests, config, with_scores)
            yield
            for index, results in self._read_calls(started, requests, config):
                drafts[index] = results
        return drafts

    def _call_options(self, request: Request, uses_shortlist: bool) -> CallOptions:
        """Return what a sentence must share with others; its length is rounded up, and cut afterwards."""
        own = request.constraints
        max_length = own.max_length
        if own.min_length < max_length:
            max_length = min(self.max_positions, max(MIN_SEARCH_LENGTH, 1 << (max_length - 1).bit_length()))
        is_covered = uses_shortlist and self._shortlist is not None and self._shortlist.covers(request.source)
        return CallOptions.for_constraints(own, max_length, is_covered)

    def _start_calls(
        self,
        calls: dict[CallOptions, list[int]],
        requests: Sequence[Request],
        config: DecodingConfig,
        with_scores: bool,
    ) -> list[SearchCall]:
        """Start to translate sentences, those of the same options in one batch."""
        started = []
        for options, indices in calls.items():
            prefixes = None
            if options.has_prefix:
                prefixes = [
                    self._to_pieces(requests[n].constraints.prefix, self._target_pieces) for n in indices
                ]
            results = self._translator.translate_batch(
                [self._to_pieces(requests[n].source, self._source_pieces) for n in indices],
                prefixes,
                asynchronous=True,
                **self._call_arguments(options, config, with_scores),
            )
            started.append((options, indices, results))
        return started

    def _read_calls(
        self, calls: list[SearchCall], requests: Sequence[Request], config: DecodingConfig
    ) -> Iterator[tuple[int, list[Draft]]]:
        """Yield each sentence's index and drafts, once they are found."""
        for options, indices, results in calls:
            bends = options.min_length or options.forbidden_phrases or options.has_prefix
            is_exact = not (bends or config.no_repeat_ngram or options.uses_shortlist)
            for index, result in zip(indices, results, strict=True):
                drafts = self._read_drafts(result.result(), config, is_exact)
                yield index, drafts or [make_forced_draft(requests[index].constraints)]

    def _call_arguments(
        self, options: CallOptions, config: DecodingConfig, with_scores: bool
    ) -> dict[str, Any]:
        phrases = [self._to_pieces(phrase, self._target_pieces) for phrase in options.forbidden_phrases]
        return {
            "max_input_length": 0,
            "max_decoding_length": options.max_length,
            "min_decoding_length": options.min_length,
            "suppress_sequences": phrases or None,
            "no_repeat_ngram_size": config.no_repeat_ngram or 0,
            "return_end_token": True,
            "use_vmap": options.uses_shortlist,
            "return_scores": with_scores or config.beam > 1,
            **make_beam_options(config),
        }

    def _read_drafts(self, result: Any, config: DecodingConfig, is_exact: bool) -> list[Draft]:
        """Return CTranslate2's hypotheses. Its scores are divided by L^alpha, where L counts the end token.

        For an empty source it does not run the model and returns no end token either: no draft.
        """
        ids, drafts = self._target_ids, []
        alpha = make_beam_options(config)["length_penalty"]
        for pieces, score in zip(result.hypotheses, result.scores or [math.nan], strict=False):
            log_probability = score * len(pieces) ** alpha
            if not pieces or log_probability < MIN_LOG_PROBABILITY:
                continue
            tokens = [ids[piece] for piece in pieces]
            is_cut = tokens[-1] != EOS_ID
            kept = tokens if is_cut else tokens[:-1]
            drafts.append(Draft(kept, log_probability, is_cut, is_exact and not is_cut))
        return drafts

    def _make_exact(
        self, requests: Sequence[Request], drafts: list[tuple[int, Draft]]
    ) -> Generator[None, None, None]:
        """Give drafts the scores of forced decoding."""
        if not drafts:
            return
        sources = [requests[index].source for index, _ in drafts]
        calls = self._start_scores(sources, [draft.tokens for _, draft in drafts])
        yield
        for (_, draft), token_scores in zip(drafts, self._read_scores(calls, len(drafts)), strict=True):
            draft.set_scores(token_scores)

    def _to_pieces(self, ids: Sequence[int], pieces: list[str]) -> list[str]:
        try:
            return [pieces[token] for token in ids]
        except IndexError:
            raise DataError(f"token id {max(ids)}, but the vocabulary has {len(pieces)}") from None


def check_compute_type(compute_type: str) -> None:
    if compute_type not in COMPUTE_TYPES:
        raise RequestError(
            f"the compute type is {compute_type!r}, but must be one of {', '.join(COMPUTE_TYPES)}"
        )
    supported = import_ctranslate2().get_supported_compute_types("cpu")
    if compute_type not in supported:
        raise RequestError(
            f"this CPU cannot compute in {compute_type}, but in {', '.join(sorted(supported))}"
        )


def check_sampling(config: DecodingConfig) -> None:
    if config.temperature is not None:
        raise RequestError(
            f"decoding.temperature is {config.temperature}, but CTranslate2 draws the random numbers of all "
            f"sentences from one generator, so that a seed would not repeat a result: use the torch engine"
        )


def make_beam_options(config: DecodingConfig) -> dict[str, Any]:
    """Return CTranslate2's options for as many hypotheses as there are to rank.

    At alpha 0 it may stop early, and then twice as many as by default are searched: it does not check
    whether unfinished hypotheses could still be better than the finished ones.
    """
    if config.beam == 1:
        return {"beam_size": 1, "length_penalty": 0.0}
    options: dict[str, Any] = {
        "beam_size": config.beam,
        "length_penalty": config.alpha,
        "num_hypotheses": config.beam,
    }
    if config.alpha == 0 and config.nbest == 1:
        options["num_hypotheses"] = 1
    elif config.alpha == 0:
        options |= {"patience": 2, "num_hypotheses": 2 * config.beam}
    return options


def limit_length(request: Request, max_length: int) -> Request:
    own = request.constraints
    if own.max_length <= max_length:
        return request
    return Request(request.source, replace(own, max_length=max_length))
