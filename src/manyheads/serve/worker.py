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
from manyheads.look.attention_data import build_attention_data
from manyheads.look.forward_walk import DEFAULT_WIDTH, Stack, estimate_numbers, walk_layer
from manyheads.serve import html
from manyheads.translator import Attention, Translation, Translator


class TooManyNumbersError(RequestError):
    """A sentence with more numbers than are given. Clients tell it by its kind."""


@dataclass(frozen=True, eq=False)
class ServedModel:
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
    def can_align(self) -> bool:
        """Whether it can say which source token a target token came from."""
        return self.translator.engine.name == "torch"

    def count_tokens(self, text: str) -> int:
        return len(self.translator.subwords.source.encode(text))

    def split_sentences(self, text: str) -> list[str]:
        """What is translated one by one: what the model looks at is within one of them."""
        with suppress_warnings():
            return self.translator.split_sentences(text)


def name_models(translators: Sequence[Translator]) -> list[ServedModel]:
    served: list[ServedModel] = []
    for one in translators:
        pair = f"{one.source_language}-{one.target_language}"
        same = sum(f"{each.source}-{each.target}" == pair for each in served)
        served.append(ServedModel(f"{pair}-{same + 1}" if same else pair, one))
    return served


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """They quote the text, and nobody is there to read them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class TranslateTask:
    """Texts -> Translations."""

    model: ServedModel
    nbest: int = 1
    details: bool = False  # with scores of tokens, and the alignment where the engine has one

    def size(self, texts: Sequence[str]) -> int:
        return sum(map(self.model.count_tokens, texts))

    def run(self, texts: Sequence[str]) -> list[Translation]:
        with suppress_warnings():
            return self.model.translator.translate(
                list(texts),
                beam=max(self.nbest, self.model.translator.decoding.beam),
                nbest=self.nbest,
                alignment=self.details and self.model.can_align,
                scores="tokens" if self.details else "none",
            )


@dataclass(frozen=True)
class TranslateHtmlTask:
    """HTML -> HTML, its tags in place. See html.py for the rule."""

    model: ServedModel
    nbest: int = 1

    def size(self, pages: Sequence[str]) -> int:
        return sum(map(self.model.count_tokens, pages))

    def run(self, pages: Sequence[str]) -> list[Translation]:
        documents = [html.HtmlDocument(page, whole_blocks=self.model.can_align) for page in pages]
        texts = [text for document in documents for text in document.texts]
        with suppress_warnings():
            done = self.model.translator.translate(
                texts,
                beam=max(self.nbest, self.model.translator.decoding.beam),
                nbest=self.nbest,
                alignment=self.model.can_align,
                scores="none",
            )
        answers = iter(done)
        return [
            self._render_page(page, document, [next(answers) for _ in document.texts])
            for page, document in zip(pages, documents, strict=True)
        ]

    def _render_page(self, page: str, document: html.HtmlDocument, found: list[Translation]) -> Translation:
        """The n-th alternative of a page is of the n-th best of each text in it."""
        ranked = [[one, *one.alternatives] for one in found]
        most = max(map(len, ranked), default=1)
        ranks = [[one[min(rank, len(one) - 1)] for one in ranked] for rank in range(most)]
        best, *others = [Translation(page, document.render(rank)) for rank in ranks]
        return replace(best, alternatives=others)


@dataclass(frozen=True)
class ScoreTask:
    """Texts with given translations -> what the model thinks of them."""

    model: ServedModel

    def size(self, pairs: Sequence[tuple[str, str]]) -> int:
        return sum(
            self.model.count_tokens(source) + self.model.count_tokens(target) for source, target in pairs
        )

    def run(self, pairs: Sequence[tuple[str, str]]) -> list[Translation]:
        with suppress_warnings():
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
            self.model.count_tokens(text) + 1,
            min(4 * translator.max_length, translator.engine.max_positions or 2**30),
        )
        if length > most:
            raise RequestError(f"a sentence of {length} tokens, but at most {most} can be scored: split it")


@dataclass(frozen=True)
class SentenceTask:
    """A sentence and its translation, the model's own where none is given -> something of both, as JSON."""

    model: ServedModel

    def size(self, pairs: Sequence[tuple[str, str | None]]) -> int:
        return sum(self.model.count_tokens(source) for source, _ in pairs)

    def run(self, pairs: Sequence[tuple[str, str | None]]) -> list[str]:
        with suppress_warnings():
            return [self._run_pair(source, target) for source, target in pairs]

    def check(self, source: str, target: str | None) -> None:
        """Before it takes a place in the queue."""
        told = 0 if target is None else len(self.model.translator.subwords.target.encode(target))
        self._check_size(max(self.model.count_tokens(source), told) + 1)

    def _run_pair(self, source: str, target: str | None) -> str:
        if target is None:
            target = self.model.translator.translate([source], split=False)[0].text
            self.check(source, target)
        return self._render(source, target)

    def _render(self, source: str, target: str) -> str:
        raise NotImplementedError

    def _check_size(self, tokens: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class AttentionTask(SentenceTask):
    """Every attention map."""

    layer: int | None  # only this one
    max_numbers: int  # numbers in all maps
    by_layer = True  # a client can ask for one alone

    def _render(self, source: str, target: str) -> str:
        return attention_to_json(self.model.translator.attention(source, target), target, self.layer)

    def _check_size(self, tokens: int) -> None:
        config = self.model.translator.engine.model.config  # type: ignore[attr-defined]
        layers = max(config.encoder_layers, config.decoder_layers)
        if self.layer is not None and self.layer >= layers:
            raise RequestError(f"layer is {self.layer}, but the model has {layers}, from 0")
        of_layer = 3 * getattr(config, "heads", 1) * tokens**2  # a baseline has one head
        numbers = of_layer * (layers if self.layer is None else 1)
        if numbers > self.max_numbers:
            fewer = self.by_layer and self.layer is None and of_layer <= self.max_numbers
            raise TooManyNumbersError(
                f"the maps of {tokens} tokens have {numbers} numbers, but at most {self.max_numbers} are given: "
                f"take a shorter sentence{', or one layer' if fewer else ''}"
            )


@dataclass(frozen=True)
class AttentionPageTask(AttentionTask):
    """What the attention page shows."""

    by_layer = False

    def _render(self, source: str, target: str) -> str:
        return json.dumps(
            build_attention_data(
                self.model.translator.attention(source, target), source=source, target=target
            ),
            ensure_ascii=False,
        )


@dataclass(frozen=True)
class WalkTask(SentenceTask):
    """Its way through one layer."""

    stack: Stack
    layer: int
    width: int
    max_numbers: int  # numbers

    def _render(self, source: str, target: str) -> str:
        found = walk_layer(
            self.model.translator, source, target, stack=self.stack, layer=self.layer, width=self.width
        )
        if any(step["name"] == "logits" for step in found["steps"]):
            found["vocabulary"] = self._pieces()
        return json.dumps(replace_nan(found), allow_nan=False, ensure_ascii=False)

    def _pieces(self) -> list[str]:
        """Of the logits that are shown, in the order of their ids."""
        subwords = self.model.translator.subwords.target
        return [subwords.id_to_piece(one) for one in range(min(self.width, len(subwords)))]

    def _check_size(self, tokens: int) -> None:
        config = self.model.translator.engine.model.config  # type: ignore[attr-defined]
        layers = config.encoder_layers if self.stack == "encoder" else config.decoder_layers
        if self.layer >= layers:
            raise RequestError(f"layer is {self.layer}, but the {self.stack} has {layers}, from 0")
        numbers = estimate_numbers(config, tokens, self.width)
        if numbers > self.max_numbers:
            fewer = (
                self.width > DEFAULT_WIDTH
                and estimate_numbers(config, tokens, DEFAULT_WIDTH) <= self.max_numbers
            )
            raise TooManyNumbersError(
                f"the walk of {tokens} tokens has {numbers} numbers, but at most {self.max_numbers} are given: "
                f"take a shorter sentence{', or a smaller width' if fewer else ''}"
            )


def replace_nan(value: Any) -> Any:
    """NaN is no number of JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: replace_nan(one) for key, one in value.items()}
    return [replace_nan(one) for one in value] if isinstance(value, list | tuple) else value


def attention_to_json(found: Attention, translation: str, layer: int | None) -> str:
    """Layers of heads of rows of what each token looked at, to five digits.

    Head by head: while a long list is written, no other thread has a turn, and nobody is answered.
    """
    chosen = slice(None) if layer is None else slice(layer, layer + 1)
    parts = {
        "translatedText": json.dumps(translation, ensure_ascii=False),
        "sourceTokens": json.dumps(found.source_tokens, ensure_ascii=False),
        "targetTokens": json.dumps(found.target_tokens, ensure_ascii=False),
        "encoder": join_nested([map(encode_head, one[0]) for one in found.trace.encoder[chosen]]),
        "decoder": join_nested([map(encode_head, one[0]) for one in found.trace.decoder[chosen]]),
        "cross": join_nested([map(encode_head, one[0]) for one in found.trace.cross[chosen]]),
    }
    return "{" + ",".join(f'"{name}":{part}' for name, part in parts.items()) + "}"


def join_nested(layers: Iterable[Iterable[str]]) -> str:
    return "[" + ",".join("[" + ",".join(heads) + "]" for heads in layers) + "]"


def encode_head(head: Tensor) -> str:
    return json.dumps(head.double().cpu().numpy().round(5).tolist(), separators=(",", ":"))
