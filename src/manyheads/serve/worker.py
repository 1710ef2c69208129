"""What the working thread does with a model: translating, scoring, looking at attention."""

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from manyheads.errors import RequestError
from manyheads.look.attention_data import described
from manyheads.look.forward_walk import FEW, Stack, how_many, walked
from manyheads.serve import html
from manyheads.translator import Attention, Translation, Translator


class TooLong(RequestError):
    """A sentence with more numbers than are given. Clients tell it by its kind."""


@dataclass(frozen=True, eq=False)
class Served:
    """A model that is loaded, under the name that clients see."""

    name: str  # en-ko, and en-ko-2 for a second one of the same pair
    translator: Translator

    @property
    def source(self) -> str:
        return self.translator.source_language

    @property
    def target(self) -> str:
        return self.translator.target_language

    @property
    def aligns(self) -> bool:
        """Whether it can say which source token a target token came from."""
        return self.translator.engine.name == "torch"

    def tokens(self, text: str) -> int:
        return len(self.translator.subwords.source.encode(text))

    def sentences(self, text: str) -> list[str]:
        """What is translated one by one: what the model looks at is within one of them."""
        with without_warnings():
            return self.translator.split_sentences(text)


def named(translators: Sequence[Translator]) -> list[Served]:
    served: list[Served] = []
    for one in translators:
        pair = f"{one.source_language}-{one.target_language}"
        same = sum(f"{each.source}-{each.target}" == pair for each in served)
        served.append(Served(f"{pair}-{same + 1}" if same else pair, one))
    return served


@contextmanager
def without_warnings() -> Iterator[None]:
    """They quote the text, and nobody is there to read them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Translating:
    """Texts -> Translations."""

    model: Served
    nbest: int = 1
    details: bool = False  # with scores of tokens, and the alignment where the engine has one

    def size(self, texts: Sequence[str]) -> int:
        return sum(map(self.model.tokens, texts))

    def run(self, texts: Sequence[str]) -> list[Translation]:
        with without_warnings():
            return self.model.translator.translate(
                list(texts),
                beam=max(self.nbest, self.model.translator.decoding.beam),
                nbest=self.nbest,
                alignment=self.details and self.model.aligns,
                scores="tokens" if self.details else "none",
            )


@dataclass(frozen=True)
class TranslatingPages:
    """HTML -> HTML, its tags in place. See html.py for the rule."""

    model: Served
    nbest: int = 1

    def size(self, pages: Sequence[str]) -> int:
        return sum(map(self.model.tokens, pages))

    def run(self, pages: Sequence[str]) -> list[Translation]:
        documents = [html.Document(page, whole_blocks=self.model.aligns) for page in pages]
        texts = [text for document in documents for text in document.texts]
        with without_warnings():
            done = self.model.translator.translate(
                texts,
                beam=max(self.nbest, self.model.translator.decoding.beam),
                nbest=self.nbest,
                alignment=self.model.aligns,
                scores="none",
            )
        answers = iter(done)
        return [
            self._filled(page, document, [next(answers) for _ in document.texts])
            for page, document in zip(pages, documents, strict=True)
        ]

    def _filled(self, page: str, document: html.Document, found: list[Translation]) -> Translation:
        """The n-th alternative of a page is of the n-th best of each text in it."""
        ranked = [[one, *one.alternatives] for one in found]
        most = max(map(len, ranked), default=1)
        ranks = [[one[min(rank, len(one) - 1)] for one in ranked] for rank in range(most)]
        best, *others = [Translation(page, document.filled(rank)) for rank in ranks]
        return replace(best, alternatives=others)


@dataclass(frozen=True)
class Scoring:
    """Texts with given translations -> what the model thinks of them."""

    model: Served

    def size(self, pairs: Sequence[tuple[str, str]]) -> int:
        return sum(self.model.tokens(source) + self.model.tokens(target) for source, target in pairs)

    def run(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        with without_warnings():
            return self.model.translator.score([source for source, _ in pairs], [t for _, t in pairs])

    def check(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Before it takes a place in the queue: what cannot be done would have its company done again."""
        for pair in pairs:
            for text in pair:
                self._check_length(text)

    def _check_length(self, text: str) -> None:
        """Scored sentences are not parted, and all their logits are held at once."""
        translator = self.model.translator
        length, most = (
            self.model.tokens(text) + 1,
            min(4 * translator.max_length, translator.engine.max_positions or 2**30),
        )
        if length > most:
            raise RequestError(f"a sentence of {length} tokens, but at most {most} can be scored: split it")


@dataclass(frozen=True)
class OfSentence:
    """A sentence and its translation, the model's own where none is given -> something of both, as JSON."""

    model: Served

    def size(self, pairs: Sequence[tuple[str, str | None]]) -> int:
        return sum(self.model.tokens(source) for source, _ in pairs)

    def run(self, pairs: Sequence[tuple[str, str | None]]) -> list[str]:
        with without_warnings():
            return [self._answer(source, target) for source, target in pairs]

    def check(self, source: str, target: str | None) -> None:
        """Before it takes a place in the queue."""
        told = 0 if target is None else len(self.model.translator.subwords.target.encode(target))
        self._check(max(self.model.tokens(source), told) + 1)

    def _answer(self, source: str, target: str | None) -> str:
        if target is None:
            target = self.model.translator.translate([source], split=False)[0].text
            self.check(source, target)
        return self._told(source, target)

    def _told(self, source: str, target: str) -> str:
        raise NotImplementedError

    def _check(self, tokens: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Looking(OfSentence):
    """Every attention map."""

    layer: int | None  # only this one
    most: int  # numbers in all maps
    by_layer = True  # a client can ask for one alone

    def _told(self, source: str, target: str) -> str:
        return as_json(self.model.translator.attention(source, target), target, self.layer)

    def _check(self, tokens: int) -> None:
        config = self.model.translator.engine.model.config  # type: ignore[attr-defined]
        if self.layer is not None and self.layer >= config.layers:
            raise RequestError(f"layer is {self.layer}, but the model has {config.layers}, from 0")
        of_layer = 3 * config.heads * tokens**2
        numbers = of_layer * (config.layers if self.layer is None else 1)
        if numbers > self.most:
            fewer = self.by_layer and self.layer is None and of_layer <= self.most
            raise TooLong(
                f"the maps of {tokens} tokens have {numbers} numbers, but at most {self.most} are given: "
                f"take a shorter sentence{', or one layer' if fewer else ''}"
            )


@dataclass(frozen=True)
class Viewing(Looking):
    """What the attention page shows."""

    by_layer = False

    def _told(self, source: str, target: str) -> str:
        return json.dumps(
            described(self.model.translator.attention(source, target), source=source, target=target),
            ensure_ascii=False,
        )


@dataclass(frozen=True)
class Walking(OfSentence):
    """Its way through one layer."""

    stack: Stack
    layer: int
    width: int
    most: int  # numbers

    def _told(self, source: str, target: str) -> str:
        found = walked(
            self.model.translator, source, target, stack=self.stack, layer=self.layer, width=self.width
        )
        if any(step["name"] == "logits" for step in found["steps"]):
            found["vocabulary"] = self._pieces()
        return json.dumps(without_nan(found), allow_nan=False, ensure_ascii=False)

    def _pieces(self) -> list[str]:
        """Of the logits that are shown, in the order of their ids."""
        subwords = self.model.translator.subwords.target
        return [subwords.piece(one) for one in range(min(self.width, len(subwords)))]

    def _check(self, tokens: int) -> None:
        config = self.model.translator.engine.model.config  # type: ignore[attr-defined]
        if self.layer >= config.layers:
            raise RequestError(f"layer is {self.layer}, but the model has {config.layers}, from 0")
        numbers = how_many(config, tokens, self.width)
        if numbers > self.most:
            fewer = self.width > FEW and how_many(config, tokens, FEW) <= self.most
            raise TooLong(
                f"the walk of {tokens} tokens has {numbers} numbers, but at most {self.most} are given: "
                f"take a shorter sentence{', or a smaller width' if fewer else ''}"
            )


def without_nan(value: Any) -> Any:
    """NaN is no number of JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list | tuple) else value


def as_json(found: Attention, translation: str, layer: int | None) -> str:
    """Layers of heads of rows of what each token looked at, to five digits.

    Head by head: while a long list is written, no other thread has a turn, and nobody is answered.
    """
    chosen = slice(None) if layer is None else slice(layer, layer + 1)
    parts = {
        "translatedText": json.dumps(translation, ensure_ascii=False),
        "sourceTokens": json.dumps(found.source_tokens, ensure_ascii=False),
        "targetTokens": json.dumps(found.target_tokens, ensure_ascii=False),
        "encoder": nested([map(rounded, one[0]) for one in found.trace.encoder[chosen]]),
        "decoder": nested([map(rounded, one[0]) for one in found.trace.decoder[chosen]]),
        "cross": nested([map(rounded, one[0]) for one in found.trace.cross[chosen]]),
    }
    return "{" + ",".join(f'"{name}":{part}' for name, part in parts.items()) + "}"


def nested(layers: Iterable[Iterable[str]]) -> str:
    return "[" + ",".join("[" + ",".join(heads) + "]" for heads in layers) + "]"


def rounded(head: Tensor) -> str:
    return json.dumps(head.double().cpu().numpy().round(5).tolist(), separators=(",", ":"))
