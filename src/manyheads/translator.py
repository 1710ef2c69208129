"""Text in, translations out."""

import hashlib
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, overload

from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import RequestError
from manyheads.glossary import TermConstraints
from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.progress import ReportProgress
from manyheads.search.options import DecodingConstraints, Hypothesis, Request, length_penalty
from manyheads.text import segmentation
from manyheads.text.segmentation import Segment
from manyheads.text.subwords import SubwordPair
from manyheads.translation import AttentionMaps, Translation

MAX_LENGTH_FACTOR = 4  # times the length that the model was trained for: longer words are split
MAX_WAITING_FACTOR = 8  # times read_ahead: texts without words that wait for an earlier text
ALIGNED_SENTENCES = 64  # of a stream that are aligned at once
LANGUAGE_TAG = re.compile(r">>[\w-]+<<\s*")  # selects the target language of a multilingual model

Alignment = list[tuple[int, int]]  # pairs of a source token and a target token


@dataclass
class SentenceJob:
    """A sentence of a text, and its results once it is decoded."""

    text: str
    request: Request
    hypotheses: list[Hypothesis] | None = None
    alignments: list[Alignment] | None = None  # of each hypothesis, if requested


@dataclass
class TextJob:
    """A text that is being translated."""

    text: str
    segments: list[Segment]
    sentences: list[SentenceJob]

    @property
    def is_done(self) -> bool:
        return all(sentence.hypotheses is not None for sentence in self.sentences)


@dataclass(frozen=True)
class TranslationOptions:
    """What the texts of one call have in common."""

    config: DecodingConfig
    terms: TermConstraints
    alignment: bool
    split: bool
    scores: ScoreDetail


class Translator:
    """A model with its subwords. Several threads may use it at once."""

    def __init__(
        self,
        engine: Engine,
        subwords: SubwordPair,
        languages: dict[str, str],
        *,
        max_length: int = 256,
        decoding: DecodingConfig | None = None,
    ) -> None:
        self.engine, self.subwords = engine, subwords
        self.source_language, self.target_language = languages["source"], languages["target"]
        self.max_length = max_length  # tokens of a sentence that the model was trained for, the end counted
        self.decoding = decoding or DecodingConfig()

    @overload
    def translate(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        report_progress: ReportProgress | None = None,
        **options: Any,
    ) -> Translation | list[Translation]:
        """Return translations in the order of the texts; for a single text, a single translation.

        prefix           how the translation of each sentence must begin
        glossary         a term of the source -> what it must become, wherever the term occurs
        forbid           words that must not come out
        alignment        also return which source token each target token attended to most
        split            split texts into sentences; otherwise each line is one
        scores           which scores are read: tokens, total or none; CTranslate2 and GPUs are faster without
        report_progress  is called with "translating" and the sentences done and in all
        others           any key of DecodingConfig: beam, alpha, nbest, temperature, ...
        """
        if isinstance(texts, str):
            return self.translate([texts], report_progress=report_progress, **options)[0]
        return list(self._run(texts, self._read_options(**options), None, report_progress))

    def stream(
        self, texts: Iterable[str], read_ahead: int | None = None, **options: Any
    ) -> Iterator[Translation]:
        """Yield translations of any number of texts, in their order, with the options of `translate`.

        About `read_ahead` texts are held at once; by default as many as the engine needs to be fast.
        """
        return self._run(texts, self._read_options(**options), read_ahead or self.engine.read_ahead)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Return the scores of given translations, by forced decoding. Each is taken as one sentence."""
        if len(sources) != len(targets):
            raise RequestError(f"{len(sources)} sources, but {len(targets)} targets: give one for each")
        source_ids = [self.subwords.source.encode(text) for text in sources]
        target_ids = [self.subwords.target.encode(text) for text in targets]
        scores = self.engine.score([[*ids, EOS_ID] for ids in source_ids], target_ids)
        rows = zip(sources, targets, source_ids, target_ids, scores, strict=True)
        return [self._create_scored(*row) for row in rows]

    def attention(self, source: str, target: str | None = None, candidates: int = 10) -> AttentionMaps:
        """Return all attention weights of a sentence and its translation, or a translation that is given.

        candidates  how many of the likeliest pieces of each step are returned
        """
        self.engine.require("attention")
        if target is None:
            target = self.translate([source], split=False)[0].text
        source_ids, target_ids = self.subwords.source.encode(source), self.subwords.target.encode(target)
        trace, log_p_TK = self.engine.trace([*source_ids, EOS_ID], target_ids)
        written = [*target_ids, EOS_ID]
        best = log_p_TK.topk(min(candidates, log_p_TK.shape[1]))
        to_piece = self.subwords.target.id_to_piece
        return AttentionMaps(
            [*map(self.subwords.source.id_to_piece, [*source_ids, EOS_ID])],
            [*map(to_piece, written)],
            trace,
            [
                [(to_piece(token), log_p) for token, log_p in zip(ids, values, strict=True)]
                for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ],
            log_p_TK[range(len(written)), written].tolist(),
            {"source": self.source_language, "target": self.target_language},
        )

    def split_sentences(self, text: str) -> list[str]:
        """Return the parts of a text that are translated, sentence by sentence."""
        return [segment.text for segment in self._split(text, True) if segment.is_translatable]

    # ---- the stream of texts

    def _read_options(
        self,
        *,
        prefix: str = "",
        glossary: dict[str, str] | None = None,
        forbid: Sequence[str] = (),
        alignment: bool = False,
        split: bool = True,
        scores: ScoreDetail = "tokens",
        **decoding: Any,
    ) -> TranslationOptions:
        config = replace(self.decoding, **decoding)
        if glossary:
            self.engine.require("required_phrases")
        if alignment:
            self.engine.require("alignment")
        terms = TermConstraints(self.subwords, prefix, glossary or {}, forbid)
        return TranslationOptions(config, terms, alignment, split, scores)

    def _run(
        self,
        texts: Iterable[str],
        options: TranslationOptions,
        window: int | None,
        report_progress: ReportProgress | None = None,
    ) -> Iterator[Translation]:
        """Yield translations in order. `window` bounds the sentences that are read ahead; None reads all.

        The engine takes sentences from `requests` as it needs them. That ends early, and starts again, where
        texts without words would wait for no reason, or too many of them would wait for an earlier text.
        """
        stream, jobs, num_done = iter(texts), deque[TextJob](), 0
        active: dict[int, SentenceJob] = {}  # by the index of the request
        has_ended = False

        def requests() -> Iterator[Request]:
            nonlocal has_ended
            index = 0
            for text in stream:
                job = self._create_job(text, options)
                jobs.append(job)
                for sentence in job.sentences:
                    active[index] = sentence
                    index += 1
                    yield sentence.request
                if window is None or job.sentences:
                    continue
                if not active or len(jobs) >= MAX_WAITING_FACTOR * window:
                    return
            has_ended = True

        while not has_ended:
            for index in self._decode(requests(), active, options, window):
                del active[index]
                num_done += 1
                if report_progress:
                    report_progress("translating", num_done, num_done + len(active))
                while jobs and jobs[0].is_done:
                    yield self._assemble(jobs.popleft(), options)
            while jobs:
                yield self._assemble(jobs.popleft(), options)

    def _decode(
        self,
        requests: Iterator[Request],
        active: dict[int, SentenceJob],
        options: TranslationOptions,
        window: int | None,
    ) -> Iterator[int]:
        """Yield the indices of sentences that have their results, and their alignments if requested."""
        decoded = self._store_results(
            self.engine.decode(requests, options.config, scores=options.scores, window=window), active
        )
        if not options.alignment:
            yield from decoded
            return
        count = None if window is None else min(window, ALIGNED_SENTENCES)
        while batch := list(islice(decoded, count)):
            self._align([active[index] for index in batch])
            yield from batch

    def _store_results(
        self, results: Iterator[tuple[int, list[Hypothesis]]], active: dict[int, SentenceJob]
    ) -> Iterator[int]:
        for index, hypotheses in results:
            sentence = active[index]
            if not hypotheses:
                raise RequestError(
                    f"no translation of {sentence.text[:60]!r}: the required and forbidden words exclude "
                    f"each other, or the model's numbers are not finite"
                )
            sentence.hypotheses = hypotheses
            yield index

    def _align(self, sentences: Sequence[SentenceJob]) -> None:
        """Find which source token each token of every hypothesis attended to most."""
        pairs = [
            (sentence.request.source, hypothesis.tokens)
            for sentence in sentences
            for hypothesis in sentence.hypotheses or []
        ]
        maps = iter(self.engine.align([source for source, _ in pairs], [target for _, target in pairs]))
        for sentence in sentences:
            sentence.alignments = []
            for weights_TS in islice(maps, len(sentence.hypotheses or [])):
                # Tokens attend to the end token too, but nothing is translated from it.
                weights_TS = weights_TS[:-1, :-1] if weights_TS.shape[1] > 1 else weights_TS[:0]
                best = weights_TS.argmax(-1).tolist() if len(weights_TS) else []
                sentence.alignments.append([(source, target) for target, source in enumerate(best)])

    # ---- from text to ids

    def _create_job(self, text: str, options: TranslationOptions) -> TextJob:
        tag, rest = split_language_tag(text)
        segments = list(self._split(rest, options.split))
        sentences = [
            self._create_sentence(tag + segment.text, options)
            for segment in segments
            if segment.is_translatable
        ]
        return TextJob(text, segments, sentences)

    def _create_sentence(self, text: str, options: TranslationOptions) -> SentenceJob:
        config, terms = options.config, options.terms
        ids = [*self.subwords.source.encode(text), EOS_ID]
        required, whole_word = terms.find_required(text)
        max_length = max(len(ids) - 1 + config.max_extra_length, config.min_length)
        max_length += len(terms.prefix) + sum(map(len, required))
        digest = hashlib.blake2b(f"{config.seed} {ids}".encode(), digest_size=7).digest()
        constraints = DecodingConstraints(
            max_length,
            config.min_length,
            prefix=terms.prefix,
            required_phrases=required,
            forbidden_phrases=terms.forbidden_phrases,
            whole_word_phrases=whole_word,
            word_start_ids=terms.word_start_ids if whole_word else frozenset(),
            seed=int.from_bytes(digest, "little"),
        )
        return SentenceJob(text, Request(ids, constraints))

    def _split(self, text: str, into_sentences: bool) -> Iterator[Segment]:
        """Split a text into what is translated and what is copied. No segment is longer than it must be."""
        for segment in segmentation.split_text(text, self.source_language if into_sentences else None):
            if not segment.is_translatable:
                yield segment
                continue
            for part in self._shorten(segment.text):
                yield from segmentation.split_edges(part)

    def _shorten(self, text: str) -> Iterator[str]:
        """Split a long sentence where possible; otherwise warn. Words are split only far beyond the limit."""
        for part in segmentation.split_long_sentence(
            text, lambda piece: self._count_tokens(piece) <= self.max_length
        ):
            length = self._count_tokens(part)
            if length <= self.max_length:
                yield part
                continue
            warnings.warn(
                f"a sentence of {length} tokens cannot be split, and the model was trained with at most "
                f"{self.max_length}: {part[:40]!r}... is translated "
                + ("as it is" if self._is_acceptable(part) else "in parts of words"),
                stacklevel=2,
            )
            yield from segmentation.split_in_halves(part, self._is_acceptable)

    def _is_acceptable(self, text: str) -> bool:
        """Return whether a sentence that is too long is translated as a whole all the same."""
        max_tokens = MAX_LENGTH_FACTOR * self.max_length
        return self._count_tokens(text) <= min(
            max_tokens, self.engine.capabilities.max_positions or max_tokens
        )

    def _count_tokens(self, text: str) -> int:
        """Return the tokens of a text, the end counted; of very long texts an estimate."""
        if len(text) > 40 * MAX_LENGTH_FACTOR * self.max_length:
            return len(text)
        return len(self.subwords.source.encode(text)) + 1

    # ---- from ids to text

    def _assemble(self, job: TextJob, options: TranslationOptions) -> Translation:
        """Join the sentences of a text. The n-th alternative is made of the n-th best of each."""
        count = max((len(sentence.hypotheses or []) for sentence in job.sentences), default=1)
        versions = [self._create_version(job, rank) for rank in range(count)]
        best = replace(versions[0], alternatives=versions[1:])
        sampled = "" if options.config.temperature is None else "sampled, ranked by "
        no_alignment: Alignment | None = [] if options.alignment else None
        return replace(
            best,
            objective=sampled + self.engine.objective,
            alignment=best.alignment or no_alignment,
        )

    def _create_version(self, job: TextJob, rank: int) -> Translation:
        texts: list[str] = []
        chosen: list[Hypothesis] = []
        alignment: Alignment | None = None
        source_tokens: list[str] = []
        tokens: list[str] = []
        for sentence in job.sentences:
            hypotheses = sentence.hypotheses or []
            hypothesis = hypotheses[min(rank, len(hypotheses) - 1)]
            chosen.append(hypothesis)
            texts.append(self._decode_text(hypothesis))
            if sentence.alignments is not None:
                own = sentence.alignments[min(rank, len(sentence.alignments) - 1)]
                shifted = [(s + len(source_tokens), t + len(tokens)) for s, t in own]
                alignment = [*(alignment or []), *shifted]
            source_tokens += map(self.subwords.source.id_to_piece, sentence.request.source[:-1])
            tokens += map(self.subwords.target.id_to_piece, hypothesis.tokens)
        outputs = iter(texts)
        return Translation(
            source=job.text,
            text="".join(next(outputs) if part.is_translatable else part.text for part in job.segments),
            score=sum(hypothesis.score for hypothesis in chosen),
            log_probability=sum(hypothesis.log_probability for hypothesis in chosen),
            source_tokens=source_tokens,
            tokens=tokens,
            token_scores=[score for hypothesis in chosen for score in hypothesis.token_scores[:-1]],
            alignment=alignment,
            sentences=len(chosen),
            engine=self.engine.name,
        )

    def _decode_text(self, hypothesis: Hypothesis) -> str:
        """Return the text of a sentence. What would break a line elsewhere becomes a space."""
        return segmentation.LINE_BREAKS.sub(" ", self.subwords.target.decode(hypothesis.tokens))

    def _create_scored(
        self, source: str, target: str, source_ids: list[int], target_ids: list[int], scores: list[float]
    ) -> Translation:
        log_probability = sum(scores)
        return Translation(
            source=source,
            text=target,
            score=log_probability / length_penalty(len(scores), self.decoding.alpha),
            log_probability=log_probability,
            source_tokens=[*map(self.subwords.source.id_to_piece, source_ids)],
            tokens=[*map(self.subwords.target.id_to_piece, target_ids)],
            token_scores=scores[:-1],
            sentences=1,
            engine=self.engine.name,
        )


def split_language_tag(text: str) -> tuple[str, str]:
    """Return a language tag such as >>fra<<, which every sentence of a text needs, and the rest."""
    match = LANGUAGE_TAG.match(text)
    return (match.group().rstrip() + " ", text[match.end() :]) if match else ("", text)
