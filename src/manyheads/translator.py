"""Text in, translations out."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from manyheads.confidence.calibration import ConfidenceModel, ConfidenceParameters
from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import RequestError
from manyheads.glossary import TermConstraints
from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.memory.database import DEFAULT_SPACE
from manyheads.memory.translation_memory import MemorySpace, TranslationMemory
from manyheads.pipeline.assembly import Assembler
from manyheads.pipeline.jobs import TranslationOptions
from manyheads.pipeline.preparation import SentenceSplitter, TextPreparer
from manyheads.pipeline.stream import ReportDone, TranslationStream, translate_at_once
from manyheads.progress import ReportProgress
from manyheads.search.options import length_penalty
from manyheads.text.subwords import SubwordPair, count_cpus
from manyheads.text.term_matching import Glossary
from manyheads.translation import AttentionMaps, TokenIds, Translation

MAX_TEXTS_AT_ONCE = 1000  # of a list; more are translated as a stream
MAX_ENCODING_THREADS, CORES_PER_ENCODING_THREAD = 4, 4  # beside a GPU


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
        calibration: ConfidenceParameters | None = None,
        uses_copy_symbols: bool = False,
        uses_term_symbols: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.engine, self.subwords = engine, subwords
        self.source_language, self.target_language = languages["source"], languages["target"]
        self.max_length = max_length  # tokens of a sentence that the model was trained for, the end counted
        self.decoding = decoding or DecodingConfig()
        self.confidence: ConfidenceModel | None = None  # of a model that is calibrated
        if calibration is not None:
            languages_of_sides = self.source_language, self.target_language
            self.confidence = ConfidenceModel(calibration, subwords, languages_of_sides)
        self.uses_copy_symbols = uses_copy_symbols  # whether the model was trained to copy them
        self.uses_term_symbols = uses_term_symbols  # whether it was trained with annotated terms
        self.folder = folder  # of the model, if it has one: where its adapters are
        self.adapter: str | None = None  # the name of the one in use
        self.base = self  # without an adapter
        # With adapters that were used, by name, each with the version of its file; the latest come last.
        self.adapted: OrderedDict[str, tuple[object, Translator]] = OrderedDict()
        self.memory: TranslationMemory | None = None  # the corrections of its translations

    def with_engine(
        self, engine: Engine, calibration: ConfidenceParameters | None, adapter: str | None
    ) -> "Translator":
        """Return a translator that differs in its engine and its calibration: one with an adapter."""
        other = copy.copy(self)
        other.engine, other.confidence, other.adapter = engine, None, adapter
        if calibration is not None:
            languages = self.source_language, self.target_language
            other.confidence = ConfidenceModel(calibration, self.subwords, languages)
        return other

    @property
    def is_calibrated(self) -> bool:
        """Whether its translations have a confidence."""
        return self.confidence is not None

    @overload
    def translate(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        report_progress: ReportProgress | None = None,
        check_canceled: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Translation | list[Translation]:
        """Return translations in the order of the texts; for a single text, a single translation.

        prefix           how the translation of each sentence must begin
        glossary         a term of the source -> what it must become, wherever the term occurs; a dictionary,
                         or a Glossary, which is quicker for many calls
        forbid           words that must not come out
        alignment        also return which source token each target token attended to most
        split            split texts into sentences; otherwise each line is one
        scores           which scores are read: tokens, total (which confidence needs) or none; CTranslate2
                         and GPUs are faster with fewer
        second_try       decode sentences again that a detector finds at fault, if the model is calibrated
        corrections      use the corrections of the model's translations; a name is that of a space
        report_progress  is called with "translating" and the texts done and in all
        check_canceled   is called between sentences, and stops by raising an error
        others           any key of DecodingConfig: beam, alpha, nbest, temperature, ...
        """
        if isinstance(texts, str):
            options |= {"report_progress": report_progress, "check_canceled": check_canceled}
            return self.translate([texts], **options)[0]
        parsed, report_done = self._read_options(**options), count_texts(report_progress, len(texts))
        if len(texts) > MAX_TEXTS_AT_ONCE:
            translations: list[Translation] = []
            for batch in self._create_stream(parsed, None, report_done).run(texts):
                check_canceled()
                translations += batch
            return translations
        preparer, assembler = self._create_stages(parsed)
        return translate_at_once(texts, self.engine, preparer, assembler, parsed, report_done, check_canceled)

    def stream(
        self, texts: Iterable[str], read_ahead: int | None = None, **options: Any
    ) -> Iterator[Translation]:
        """Yield translations of any number of texts, in their order, with the options of `translate`.

        Texts are read in another thread, as they come: a text that is followed by a pause is translated at
        once. At most `read_ahead` texts are held at a time; by default as many as the engine needs to be
        fast. Close the generator to stop early.
        """
        for batch in self.stream_batches(texts, read_ahead, **options):
            yield from batch

    def stream_batches(
        self,
        texts: Iterable[str],
        read_ahead: int | None = None,
        *,
        report_progress: ReportProgress | None = None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Yield the translations of `stream` in lists of as many as are ready, to be written at once."""
        report_done = count_texts(report_progress, None)
        return self._create_stream(self._read_options(**options), read_ahead, report_done).run(texts)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Return the scores of given translations, by forced decoding. Each is taken as one sentence."""
        if len(sources) != len(targets):
            raise RequestError(f"{len(sources)} sources, but {len(targets)} targets: give one for each")
        source_ids = self.subwords.source.encode_sentences([*map(self.subwords.read_source, sources)])
        target_ids = [ids[:-1] for ids in self.subwords.target.encode_sentences(targets)]
        scores = self.engine.score(source_ids, target_ids)
        rows = zip(sources, targets, source_ids, target_ids, scores, strict=True)
        return [self._create_scored(*row) for row in rows]

    def attention(self, source: str, target: str | None = None, candidates: int = 10) -> AttentionMaps:
        """Return all attention weights of a sentence and its translation, or a translation that is given.

        candidates  how many of the likeliest pieces of each step are returned
        """
        self.engine.require("attention")
        if target is None:
            target = self.translate([source], split=False, corrections=False)[0].text
        source_ids, target_ids = self.subwords.encode_source(source), self.subwords.target.encode(target)
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
        preparer, _ = self._create_stages(self._read_options())
        splitter = preparer.splitter
        segments = splitter.shorten(splitter.split(text, into_sentences=True), preparer.protector)
        return [segment.text for segment in segments if segment.is_translatable]

    def create_stages(self, **options: Any) -> tuple[TranslationOptions, TextPreparer, Assembler]:
        """Return what `translate` does before and after decoding, for callers that decode by themselves."""
        parsed = self._read_options(**options)
        return parsed, *self._create_stages(parsed)

    def _read_options(
        self,
        *,
        prefix: str = "",
        glossary: Mapping[str, str] | Glossary | None = None,
        forbid: Sequence[str] = (),
        alignment: bool = False,
        split: bool = True,
        scores: ScoreDetail = "tokens",
        second_try: bool = True,
        corrections: bool | str = True,
        **decoding: Any,
    ) -> TranslationOptions:
        config = replace(self.decoding, **decoding)
        if alignment:
            self.engine.require("alignment")
        annotated_language = self.source_language if self.uses_term_symbols else None
        terms = TermConstraints(
            self.subwords, prefix, glossary or {}, forbid, annotated_language=annotated_language
        )
        space = None
        if corrections and self.memory is not None:
            space = MemorySpace(self.memory, DEFAULT_SPACE if corrections is True else corrections)
        return TranslationOptions(config, terms, alignment, split, scores, second_try, space)

    def _create_stream(
        self, options: TranslationOptions, read_ahead: int | None, report_done: ReportDone
    ) -> TranslationStream:
        preparer, assembler = self._create_stages(options)
        return TranslationStream(self.engine, preparer, assembler, options, read_ahead, report_done)

    def _create_stages(self, options: TranslationOptions) -> tuple[TextPreparer, Assembler]:
        can_require = self.engine.capabilities.required_phrases
        preparer = TextPreparer(
            self._create_splitter(),
            options,
            self.uses_copy_symbols,
            can_require,
            self.subwords.casing,
            choose_encoding_threads(self.engine),
        )
        return preparer, Assembler(self.engine, self.subwords, options, preparer, self.confidence)

    def _create_splitter(self) -> SentenceSplitter:
        max_positions = self.engine.capabilities.max_positions
        return SentenceSplitter(self.subwords.source, self.source_language, self.max_length, max_positions)

    def _create_scored(
        self, source: str, target: str, source_ids: list[int], target_ids: list[int], scores: list[float]
    ) -> Translation:
        log_probability = sum(scores)
        return Translation(
            source=source,
            text=target,
            score=log_probability / length_penalty(len(scores), self.decoding.alpha),
            log_probability=log_probability,
            source_tokens=TokenIds(self.subwords.source, [source_ids], has_ends=True),
            tokens=TokenIds(self.subwords.target, [target_ids], has_ends=False),
            token_scores=scores[:-1],
            sentences=1,
            engine=self.engine.name,
        )


def choose_encoding_threads(engine: Engine) -> int:
    """Return the threads that encode subwords: some where a GPU leaves cores free that it waits for."""
    if not getattr(engine, "runs_on_gpu", False):
        return 1
    return max(1, min(MAX_ENCODING_THREADS, count_cpus() // CORES_PER_ENCODING_THREAD))


def count_texts(report_progress: ReportProgress | None, total: int | None) -> ReportDone:
    """Return what a pipeline calls with the number of texts that are decoded."""
    if report_progress is None:
        return lambda num_done: None
    return lambda num_done: report_progress("translating", num_done, total)
