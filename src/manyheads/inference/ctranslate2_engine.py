"""The CTranslate2 engine: models converted by export/ctranslate2.py, run by a C++ library that is fast on
CPUs.

Its search differs from ours, and results carry the engine's name:

- While searching it compares hypotheses by log p / L^alpha, and it stops when `beam` of them are finished. We
  rank the results by our log p / ((5 + L) / 6)^alpha. At alpha 0 both searches are the same.
- With forbidden phrases, a minimum length or a prefix it renormalizes the probabilities of the allowed tokens
  and searches by those. The scores that we return are always the model's own.
- A hypothesis that reaches the maximum length is cut. It gets the end token that our search would force.

An n-best list is ranked by the model's own scores. A single result is the best by CTranslate2's count; only
if some hypotheses were cut and others were not are they compared with their end tokens.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import DataError, RequestError
from manyheads.inference.batching import group_by_tokens, sort_into_chunks
from manyheads.inference.conversion import read_conversion, read_pieces
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.search.options import DecodingConstraints, Hypothesis, Request, length_penalty
from manyheads.text.subwords import count_cpus

if TYPE_CHECKING:
    from torch import Tensor

    from manyheads.model.encoder_decoder import Trace

COMPUTE_TYPES = ("float32", "int8", "int8_float32")
BATCH_TOKENS = 2048  # of sources, padding counted, translated at once
SCORE_TOKENS = 1024  # of sources or targets, scored at once: all their logits are held
CHUNK_SENTENCES = 1000  # given to CTranslate2 at once
MIN_SEARCH_LENGTH = 64  # maximum lengths up to this share a search, and then powers of two
MIN_LOG_PROBABILITY = -1e9  # CTranslate2 marks invalid hypotheses by a log p below this


def import_ctranslate2() -> Any:
    """Return the package ctranslate2, which only this engine needs."""
    try:
        import ctranslate2
    except ImportError:
        raise RequestError(
            "the ctranslate2 engine needs the package ctranslate2: pip install 'manyheads[ctranslate2]'"
        ) from None
    return ctranslate2


@dataclass
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


@dataclass(frozen=True)
class CallOptions:
    """What sentences must share to be searched in one call. Lengths do not count the end token."""

    max_length: int  # in this call
    min_length: int
    forbidden_phrases: tuple[tuple[int, ...], ...]
    has_prefix: bool

    @classmethod
    def for_constraints(cls, constraints: DecodingConstraints, max_length: int) -> "CallOptions":
        min_length = min(constraints.min_length, max_length)
        return cls(max_length, min_length, constraints.forbidden_phrases, bool(constraints.prefix))


class CTranslate2Engine:
    """Runs a converted model. Several threads may use it at once."""

    objective = "found by CTranslate2's log p / L^alpha, ranked by log p / ((5 + L) / 6)^alpha"
    read_ahead = CHUNK_SENTENCES

    def __init__(self, folder: Path, compute_type: str = "float32", threads: int | None = None) -> None:
        """Open a conversion. `threads` is by default the number of cores."""
        check_compute_type(compute_type)
        self.name = f"ctranslate2 {compute_type}"
        self.max_positions = int(
            read_conversion(folder)["max_positions"]
        )  # of a source or target, end included
        self._source_pieces = read_pieces(folder, "source")
        self._target_pieces = read_pieces(folder, "target")
        self._target_ids = {piece: token for token, piece in enumerate(self._target_pieces)}
        self._translator = import_ctranslate2().Translator(
            os.fspath(folder),
            device="cpu",
            compute_type=compute_type,
            intra_threads=threads or count_cpus(),
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            sampling=False,
            forbidden_phrases=True,
            required_phrases=False,
            alignment=False,
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
        requests: Iterable[Request],
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each request and its hypotheses, best first, as they finish.

        The total score costs nothing where nothing bends the search; after a cut, a prefix and the like it is
        computed by forced decoding, as token scores always are. With "none" what costs something is NaN. A
        source that holds the end token alone comes out empty: CTranslate2 does not run the model.
        """
        stream, first = iter(requests), 0
        while waiting := list(islice(stream, window)):
            for indices in sort_into_chunks([len(request.source) for request in waiting], CHUNK_SENTENCES):
                results = self._search([waiting[index] for index in indices], config, scores)
                yield from zip([first + index for index in indices], results, strict=True)
            first += len(waiting)

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Return log p of each token of each target, the end token last: forced decoding."""
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for source, target in zip(sources, targets, strict=True):
            self._check_lengths(source, len(target))
        calls = [
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
        results: list[list[float]] = [[] for _ in targets]
        for indices, scored in calls:
            for index, result in zip(indices, scored, strict=True):
                results[index] = list(result.result().log_probs)
        return results

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> "list[Tensor]":
        """Refuse: the converted model does not return attention."""
        self.require("alignment")
        raise AssertionError

    def trace(self, source: list[int], target: list[int]) -> "tuple[Trace, Tensor]":
        """Refuse: the converted model does not return attention."""
        self.require("attention")
        raise AssertionError

    # ---- what is refused

    def _check(self, requests: Sequence[Request], config: DecodingConfig) -> None:
        if config.temperature is not None:
            raise RequestError(
                f"decoding.temperature is {config.temperature}, but CTranslate2 draws the random numbers of "
                f"all sentences from one generator, so that a seed would not repeat a result: use the torch "
                f"engine"
            )
        for request in requests:
            self._check_lengths(request.source)
            if request.constraints.required_phrases:
                raise RequestError(
                    "phrases are required in the output (a glossary), which CTranslate2 cannot guarantee: "
                    "use the torch engine"
                )

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
        self, requests: Sequence[Request], config: DecodingConfig, scores: ScoreDetail
    ) -> list[list[Hypothesis]]:
        self._check(requests, config)
        requests = [limit_length(request, self.max_positions - 1) for request in requests]
        drafts = self._find_drafts(requests, config, with_scores=scores != "none")
        uncertain = [
            (n, draft)
            for n, own in enumerate(drafts)
            if config.nbest > 1 or is_partly_cut(own)
            for draft in own
        ]
        self._make_exact(requests, [(n, draft) for n, draft in uncertain if not draft.is_exact])
        for own in drafts:
            own.sort(key=lambda draft: -draft.rank(config.alpha))
            del own[config.nbest :]
        if scores != "none":
            known = "token_scores" if scores == "tokens" else "is_exact"
            kept = [(n, draft) for n, own in enumerate(drafts) for draft in own]
            self._make_exact(requests, [(n, draft) for n, draft in kept if not getattr(draft, known)])
        return [[draft.to_hypothesis(config.alpha) for draft in own] for own in drafts]

    def _find_drafts(
        self, requests: Sequence[Request], config: DecodingConfig, with_scores: bool
    ) -> list[list[Draft]]:
        """Return what CTranslate2 finds for each sentence, within its maximum length."""
        drafts: list[list[Draft]] = [[] for _ in requests]
        calls: dict[CallOptions, list[int]] = {}
        for index, request in enumerate(requests):
            own = request.constraints
            if len(own.prefix) >= own.max_length:
                drafts[index] = [make_forced_draft(own)]
            else:
                options = CallOptions.for_constraints(own, self._search_length(own))
                calls.setdefault(options, []).append(index)
        too_long: dict[CallOptions, list[int]] = {}
        for index, results in self._run_calls(calls, requests, config, with_scores):
            own = requests[index].constraints
            if config.beam > 1 and any(len(draft.tokens) > own.max_length for draft in results):
                options = CallOptions.for_constraints(own, own.max_length)
                too_long.setdefault(options, []).append(index)
            else:  # greedy search does not look ahead: its first tokens would be the same
                drafts[index] = [cut_draft(draft, own.max_length) for draft in results]
        for index, results in self._run_calls(too_long, requests, config, with_scores):
            drafts[index] = results
        return drafts

    def _search_length(self, constraints: DecodingConstraints) -> int:
        """Return the length that a sentence is first searched up to; it depends on nothing else."""
        max_length = constraints.max_length
        if constraints.min_length >= max_length:
            return max_length
        return min(self.max_positions, max(MIN_SEARCH_LENGTH, 1 << (max_length - 1).bit_length()))

    def _run_calls(
        self,
        calls: dict[CallOptions, list[int]],
        requests: Sequence[Request],
        config: DecodingConfig,
        with_scores: bool,
    ) -> Iterator[tuple[int, list[Draft]]]:
        """Yield each sentence's index and drafts. All calls are started before the first is waited for."""
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
        for options, indices, results in started:
            bends = options.min_length or options.forbidden_phrases or options.has_prefix
            is_exact = not (bends or config.no_repeat_ngram)
            for index, result in zip(indices, results, strict=True):
                drafts = self._read_drafts(result.result(), config, is_exact)
                yield index, drafts or [make_forced_draft(requests[index].constraints)]

    def _call_arguments(
        self, options: CallOptions, config: DecodingConfig, with_scores: bool
    ) -> dict[str, Any]:
        phrases = [self._to_pieces(phrase, self._target_pieces) for phrase in options.forbidden_phrases]
        return {
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "max_input_length": 0,
            "max_decoding_length": options.max_length,
            "min_decoding_length": options.min_length,
            "suppress_sequences": phrases or None,
            "no_repeat_ngram_size": config.no_repeat_ngram or 0,
            "return_end_token": True,
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

    def _make_exact(self, requests: Sequence[Request], drafts: list[tuple[int, Draft]]) -> None:
        """Give drafts the scores of forced decoding."""
        sources = [requests[index].source for index, _ in drafts]
        results = self.score(sources, [draft.tokens for _, draft in drafts])
        for (_, draft), token_scores in zip(drafts, results, strict=True):
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
    return Request(request.source, replace(own, max_length=min(own.max_length, max_length)))


def make_forced_draft(constraints: DecodingConstraints) -> Draft:
    """Return the only possible output: the prefix fills the length, or there is nothing to translate."""
    return Draft(list(constraints.prefix[: constraints.max_length]), math.nan, is_cut=True, is_exact=False)


def cut_draft(draft: Draft, max_length: int) -> Draft:
    if len(draft.tokens) <= max_length:
        return draft
    return Draft(draft.tokens[:max_length], math.nan, is_cut=True, is_exact=False)


def is_partly_cut(drafts: list[Draft]) -> bool:
    return len({draft.is_cut for draft in drafts}) == 2
