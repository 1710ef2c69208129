"""Text in, translations out."""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, get_args, overload

from manyheads import checkpoint
from manyheads.config import EOS_ID, DecodingConfig
from manyheads.errors import ConfigError, RequestError
from manyheads.inference.engine import Engine, ScoreDetail
from manyheads.inference.torch_engine import Ensemble, Precision, TorchEngine, resolve_device
from manyheads.model.encoder_decoder import Trace
from manyheads.search.beam import DecodingConstraints, Hypothesis, length_penalty
from manyheads.text import segmentation as segments
from manyheads.text.segmentation import Segment
from manyheads.text.subwords import SubwordPair

READ_AHEAD = 1000  # texts of a stream that are read ahead, so that those of like length go together
MUCH_TOO_LONG = 4  # times the longest that the model was trained for: then words are parted
LANGUAGE_TAG = re.compile(r">>[\w-]+<<\s*")  # by which a model of many languages is told where to


@dataclass(frozen=True)
class Translation:
    """A text in the other language, and what the model thinks of it.

    Tokens are pieces of words, those of all its sentences one after the other; scores are natural logarithms.
    """

    source: str
    text: str
    score: float = 0.0  # log p divided by the length penalty, summed over its sentences
    log_probability: float = 0.0
    source_tokens: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    token_scores: list[float] = field(default_factory=list)  # log p of each; each sentence's end is left out
    alignment: list[tuple[int, int]] | None = None  # source token and target token, where it was asked for
    sentences: int = 0  # that it was translated in; 0: there was nothing to translate
    engine: str = ""
    objective: str = ""  # by what it was found and ranked
    alternatives: "list[Translation]" = field(default_factory=list)  # the rest of the n-best list

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Sentence:
    """What the engine is asked: a part of a text, its ids, and what is wished for."""

    text: str
    ids: list[int]
    constraints: DecodingConstraints


class Translator:
    """A model with its words. It may be used by several threads at once."""

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
    def translate(self, texts: str, **asked: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **asked: Any) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        prefix: str = "",
        glossary: dict[str, str] | None = None,
        forbid: Sequence[str] = (),
        alignment: bool = False,
        split: bool = True,
        scores: ScoreDetail = "tokens",
        tell: Callable[[int, int], None] | None = None,
        **search: Any,
    ) -> Translation | list[Translation]:
        """Translations in the order of the texts; a single text gets a single one.

        prefix     how the translation of each sentence must begin
        glossary   a term of the source -> what it must become, wherever the term stands
        forbid     words that must not come out
        alignment  also find which source token each target token looked at most
        split      part texts into sentences; else each line is one
        scores     which of them are read: tokens, total or none; CTranslate2 and GPUs are faster without
        tell       is called with the sentences done and in all
        search     any key of DecodingConfig: beam, alpha, nbest, temperature, ...
        """
        if isinstance(texts, str):
            return self.translate(
                [texts], prefix=prefix, glossary=glossary, forbid=forbid,
                alignment=alignment, split=split, scores=scores, tell=tell, **search,
            )[0]  # fmt: skip
        how = replace(self.decoding, **search)
        if not isinstance(self.engine, TorchEngine) and (glossary or alignment):
            wanted = "glossaries" if glossary else "alignments"
            raise RequestError(f"{wanted} are the torch engine's; this one is {self.engine.name}")
        terms = TermConstraints(self.subwords, prefix, glossary or {}, forbid)
        tagged = [split_language_tag(text) for text in texts]
        parted = [list(self._parts(text, split)) for _, text in tagged]
        asked = [
            self._sentence(tag + part.text, terms, how)
            for (tag, _), parts in zip(tagged, parted, strict=True)
            for part in parts
            if part.is_translatable
        ]
        results = self._search(asked, how, scores, tell)
        looked_at = self._alignments(asked, results) if alignment else [None] * len(asked)
        answers = iter(zip(asked, results, looked_at, strict=True))
        found = [
            self._joined(text, parts, list(islice(answers, sum(part.is_translatable for part in parts))))
            for text, parts in zip(texts, parted, strict=True)
        ]
        drawn = "" if how.temperature is None else "drawn at random, ranked by "
        objective = drawn + self.engine.objective
        nothing: list[tuple[int, int]] | None = [] if alignment else None
        return [replace(one, objective=objective, alignment=one.alignment or nothing) for one in found]

    def stream(
        self, texts: Iterable[str], read_ahead: int = READ_AHEAD, **asked: Any
    ) -> Iterator[Translation]:
        """The same for texts without end: so many are read ahead, and no more are held."""
        waiting = iter(texts)
        while some := list(islice(waiting, read_ahead)):
            yield from self.translate(some, **asked)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """What the model thinks of given translations, by forced decoding; each is taken as one sentence."""
        if len(sources) != len(targets):
            raise RequestError(f"{len(sources)} sources, but {len(targets)} targets: give one for each")
        source_ids = [self.subwords.source.encode(text) for text in sources]
        target_ids = [self.subwords.target.encode(text) for text in targets]
        scored = self.engine.score([[*ids, EOS_ID] for ids in source_ids], target_ids)
        return [
            self._scored(source, target, ids, own, scores)
            for source, target, ids, own, scores in zip(
                sources, targets, source_ids, target_ids, scored, strict=True
            )
        ]

    def attention(self, source: str, target: str | None = None, candidates: int = 10) -> "Attention":
        """Every attention map of one sentence and its translation, or of a translation that is given.

        candidates  so many of the likeliest pieces at each step are told too
        """
        engine = self.engine
        if not isinstance(engine, TorchEngine):
            raise RequestError(f"attention maps are the torch engine's; this one is {engine.name}")
        if target is None:
            target = self.translate([source], split=False)[0].text
        source_ids, target_ids = self.subwords.source.encode(source), self.subwords.target.encode(target)
        trace, log_p_TK = engine.trace([*source_ids, EOS_ID], target_ids)
        written = [*target_ids, EOS_ID]
        best = log_p_TK.topk(min(candidates, log_p_TK.shape[1]))
        return Attention(
            [*map(self.subwords.source.id_to_piece, source_ids), self.subwords.source.id_to_piece(EOS_ID)],
            [*map(self.subwords.target.id_to_piece, written)],
            trace,
            [
                [
                    (self.subwords.target.id_to_piece(one), log_p)
                    for one, log_p in zip(ids, values, strict=True)
                ]
                for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ],
            log_p_TK[range(len(written)), written].tolist(),
            {"source": self.source_language, "target": self.target_language},
        )

    # ---- from text to ids

    def _parts(self, text: str, split: bool) -> Iterator[Segment]:
        """What is translated one by one, and what stays; no part is longer than it must be."""
        for part in segments.split_text(text, self.source_language if split else None):
            if not part.is_translatable:
                yield part
                continue
            for piece in self._short(part.text):
                yield from segments.split_edges(piece)

    def split_sentences(self, text: str) -> list[str]:
        """What of a text is translated, sentence by sentence."""
        return [part.text for part in self._parts(text, split=True) if part.is_translatable]

    def _short(self, text: str) -> Iterator[str]:
        """Parted where that is possible; else whole, with a warning; words are parted only far beyond."""
        for piece in segments.split_long_sentence(text, lambda one: self._length(one) <= self.max_length):
            length = self._length(piece)
            if length <= self.max_length:
                yield piece
                continue
            warnings.warn(
                f"a sentence of {length} tokens cannot be parted, and the model was trained with at most "
                f"{self.max_length}: {piece[:40]!r}... is translated "
                + ("all the same" if self._not_much_too_long(piece) else "in parts of words"),
                stacklevel=2,
            )
            yield from segments.split_in_halves(piece, self._not_much_too_long)

    def _not_much_too_long(self, text: str) -> bool:
        most = MUCH_TOO_LONG * self.max_length
        return self._length(text) <= min(most, self.engine.max_positions or most)

    def _length(self, text: str) -> int:
        """In tokens, the end counted; texts that are far longer are not looked at closely."""
        if len(text) > 40 * MUCH_TOO_LONG * self.max_length:
            return len(text)
        return len(self.subwords.source.encode(text)) + 1

    def _sentence(self, text: str, terms: "TermConstraints", how: DecodingConfig) -> Sentence:
        ids = [*self.subwords.source.encode(text), EOS_ID]
        required, apart = terms.find_required(text)
        limit = max(len(ids) - 1 + how.max_extra_length, how.min_length)
        limit += len(terms.prefix) + sum(map(len, required))
        seed = int.from_bytes(hashlib.blake2b(f"{how.seed} {ids}".encode(), digest_size=7).digest(), "little")
        starts = terms.word_starts if apart else frozenset()
        wish = DecodingConstraints(
            limit, how.min_length, terms.prefix, required, terms.forbidden, apart, starts, seed
        )
        return Sentence(text, ids, wish)

    # ---- from ids to text

    def _search(
        self,
        asked: Sequence[Sentence],
        how: DecodingConfig,
        scores: ScoreDetail,
        tell: Callable[[int, int], None] | None,
    ) -> list[list[Hypothesis]]:
        """In rounds of some hundreds, so that there is something to tell and memory stays flat."""
        found: list[list[Hypothesis]] = [[] for _ in asked]
        done = 0
        for chosen, beam in rounds(asked, how.beam):
            sources, wishes = [asked[n].ids for n in chosen], [asked[n].constraints for n in chosen]
            answers = self.engine.search(sources, wishes, replace(how, beam=beam), scores=scores)
            for number, results in zip(chosen, answers, strict=True):
                if not results:
                    raise RequestError(
                        f"no translation of {asked[number].text[:60]!r}: what must and what must not come "
                        f"out cannot both be kept, or the model's numbers are not finite"
                    )
                found[number] = results
            done += len(chosen)
            if tell:
                tell(done, len(asked))
        return found

    def _alignments(
        self, asked: Sequence[Sentence], results: Sequence[list[Hypothesis]]
    ) -> list[list[list[tuple[int, int]]] | None]:
        """Of every hypothesis of every sentence."""
        assert isinstance(self.engine, TorchEngine)
        maps = self.engine.alignments(
            [one.ids for one, found in zip(asked, results, strict=True) for _ in found],
            [one.tokens for found in results for one in found],
        )
        # The end looks like any other token, but nothing comes of it.
        words = [one[:-1, :-1] if one.shape[1] > 1 else one[:0] for one in maps]
        pairs = iter(
            [(int(place), number) for number, place in enumerate(one.argmax(-1).tolist())] if len(one) else []
            for one in words
        )
        return [list(islice(pairs, len(found))) for found in results]

    def _joined(
        self, text: str, parts: list[Segment], answers: list[tuple[Sentence, list[Hypothesis], Any]]
    ) -> Translation:
        """A text's sentences put together again; the n-th alternative is of the n-th best of each."""
        most = max((len(results) for _, results, _ in answers), default=1)
        versions = [self._version(text, parts, answers, place) for place in range(most)]
        return replace(versions[0], alternatives=versions[1:])

    def _version(
        self,
        text: str,
        parts: list[Segment],
        answers: list[tuple[Sentence, list[Hypothesis], Any]],
        place: int,
    ) -> Translation:
        chosen = [(asked, results[min(place, len(results) - 1)], seen) for asked, results, seen in answers]
        texts = iter([self._text(one) for _, one, _ in chosen])
        alignment: list[tuple[int, int]] | None = None
        source_tokens: list[str] = []
        tokens: list[str] = []
        for asked, one, seen in chosen:
            if seen is not None:
                own = seen[min(place, len(seen) - 1)]
                moved = [(s + len(source_tokens), t + len(tokens)) for s, t in own]
                alignment = [*(alignment or []), *moved]
            source_tokens += map(self.subwords.source.id_to_piece, asked.ids[:-1])
            tokens += map(self.subwords.target.id_to_piece, one.tokens)
        return Translation(
            source=text,
            text="".join(next(texts) if part.is_translatable else part.text for part in parts),
            score=sum(one.score for _, one, _ in chosen),
            log_probability=sum(one.log_probability for _, one, _ in chosen),
            source_tokens=source_tokens,
            tokens=tokens,
            token_scores=[score for _, one, _ in chosen for score in one.token_scores[:-1]],
            alignment=alignment,
            sentences=len(chosen),
            engine=self.engine.name,
        )

    def _text(self, one: Hypothesis) -> str:
        """Of one sentence: what breaks a line elsewhere is a space in it."""
        return segments.LINE_BREAKS.sub(" ", self.subwords.target.decode(one.tokens))

    def _scored(
        self, source: str, target: str, source_ids: list[int], ids: list[int], scores: list[float]
    ) -> Translation:
        total = sum(scores)
        return Translation(
            source=source,
            text=target,
            score=total / length_penalty(len(scores), self.decoding.alpha),
            log_probability=total,
            source_tokens=[*map(self.subwords.source.id_to_piece, source_ids)],
            tokens=[*map(self.subwords.target.id_to_piece, ids)],
            token_scores=scores[:-1],
            sentences=1,
            engine=self.engine.name,
        )


def split_language_tag(text: str) -> tuple[str, str]:
    """A language tag such as >>fra<<, which every sentence of a text needs, and the text."""
    found = LANGUAGE_TAG.match(text)
    return (found.group().rstrip() + " ", text[found.end() :]) if found else ("", text)


def rounds(asked: Sequence[Sentence], beam: int) -> Iterator[tuple[list[int], int]]:
    """Numbers of sentences of like length that are searched together, and the width of their beam.

    What is required needs room beside what is likely: a hypothesis for each of its tokens, and one without.
    """
    widths: dict[int, list[int]] = {}
    for number in sorted(range(len(asked)), key=lambda number: len(asked[number].ids)):
        tokens = sum(map(len, asked[number].constraints.required_phrases))
        widths.setdefault(max(beam, 1 + tokens) if tokens else beam, []).append(number)
    for width, numbers in widths.items():
        for first in range(0, len(numbers), READ_AHEAD):
            yield numbers[first : first + READ_AHEAD], width


class TermConstraints:
    """What a caller wants or does not want in the output, as ids."""

    def __init__(
        self, subwords: SubwordPair, prefix: str, glossary: dict[str, str], forbid: Sequence[str]
    ) -> None:
        if isinstance(forbid, str):
            raise RequestError(f"forbid is the text {forbid!r}, but must be a list of words")
        self.subwords = subwords.target
        self.prefix = tuple(subwords.target.encode(prefix))
        self.forbidden = tuple(tuple(subwords.target.encode(word)) for word in forbid)
        longest_first = sorted(glossary.items(), key=lambda entry: -len(entry[0]))
        self.glossary = [
            (compile_term(source), tuple(subwords.target.encode(target)), is_hangul(target.strip()[-1:]))
            for source, target in longest_first
        ]
        if not all(self.forbidden) or not all(ids for _, ids, _ in self.glossary):
            raise RequestError("a glossary and words to forbid must not hold empty entries")

    def find_required(self, text: str) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """What must come out, since its term stands in the text; and what of it no word may go on from.

        Once, however often it stands there; a term inside a longer one that has its own entry does not count.
        """
        required: dict[tuple[int, ...], bool] = {}
        for term, ids, may_go_on in self.glossary:
            if term.search(text):
                required.setdefault(ids, may_go_on)
            text = term.sub(lambda found: " " * len(found.group()), text)
        return tuple(required), tuple(ids for ids, may_go_on in required.items() if not may_go_on)

    @cached_property
    def word_starts(self) -> frozenset[int]:
        """Pieces that begin a word, or are no part of one."""
        pieces = [piece for piece, _ in self.subwords.get_scored_vocabulary()]
        return frozenset(
            n for n, one in enumerate(pieces) if n > EOS_ID and not one[:1].isalnum() and one[:1] != "<"
        )


def is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


def compile_term(term: str) -> "re.Pattern[str]":
    """The term as a word of its own, in capitals or not; where it ends in Hangul, particles may follow."""
    term = term.strip()
    if not term:
        raise RequestError("a glossary must not hold empty entries")
    after = "" if is_hangul(term[-1]) or not term[-1].isalnum() else r"(?!\w)"
    before = r"(?<!\w)" if term[0].isalnum() else ""
    return re.compile(before + re.escape(term) + after, re.IGNORECASE)


@dataclass(frozen=True)
class Attention:
    """Tokens and attention maps of one translation."""

    source_tokens: list[str]  # [S] with the end
    target_tokens: list[str]  # [T] with the end: what was written at each step
    trace: Trace  # encoder[layer][0] [heads, S, S], decoder [heads, T, T], cross [heads, T, S]
    candidates: list[list[tuple[str, float]]] = field(default_factory=list)  # [T], likeliest first, log p
    token_scores: list[float] = field(default_factory=list)  # [T], log p of what was written
    languages: dict[str, str] = field(default_factory=dict)  # source and target

    def show(self, height: int = 760) -> Any:
        """The page of these maps in a notebook, as a frame of so many pixels."""
        # The one glance upwards: look is built on this file, and only a call of this brings it in.
        return import_module("manyheads.look.notebook").show(self, height)


# ---- opening a model folder


def load(
    folder: str | os.PathLike[str],
    *others: str | os.PathLike[str],
    device: str | None = None,
    engine: str = "torch",
) -> Translator:
    """The translator of a model folder; of several, they decide together.

    `engine` is torch (on a GPU its search is made in bfloat16; torch:float32 and torch:bfloat16 say which),
    ctranslate2 (float32), or ctranslate2:int8 and the like.
    """
    name, _, arithmetic = engine.partition(":")
    if name == "ctranslate2":
        return load_ctranslate2(folder, others, arithmetic or "float32", device)
    if name != "torch" or (arithmetic or "auto") not in get_args(Precision):
        raise ConfigError(
            f"the engine is {engine!r}, but must be torch, torch:float32, torch:bfloat16, ctranslate2, "
            f"ctranslate2:int8 or ctranslate2:int8_float32"
        )
    known = resolve_device(device)
    models, subwords, told = zip(*(checkpoint.load_model(one) for one in (folder, *others)), strict=True)
    for one, its in zip(others, subwords[1:], strict=True):
        if not its.same_as(subwords[0]):
            raise RequestError(f"{one}: has other subwords than {folder}; an ensemble needs the same")
    model = models[0] if not others else Ensemble(models)
    precision: Any = arithmetic or "auto"
    return create_translator(TorchEngine(model, known, precision), subwords[0], told[0])


def load_ctranslate2(
    folder: str | os.PathLike[str], others: Sequence[Any], arithmetic: str, device: str | None
) -> Translator:
    from manyheads.inference.ctranslate2_engine import CTranslate2Engine, describe

    if others:
        raise RequestError("several models together are the torch engine's: --engine torch")
    if device not in (None, "cpu"):
        raise RequestError(f"the device is {device!r}, but the ctranslate2 engine is for the cpu here")
    told = describe(Path(folder))
    return create_translator(
        CTranslate2Engine(Path(folder), arithmetic), checkpoint.read_subwords(told.folder), told
    )


def create_translator(engine: Engine, subwords: SubwordPair, told: checkpoint.CheckpointInfo) -> Translator:
    longest = min(told.config.data.max_length, engine.max_positions or told.config.data.max_length)
    return Translator(engine, subwords, told.languages, max_length=longest, decoding=told.config.decoding)
