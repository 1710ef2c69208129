"""A translator without a model: it answers at once, or on release, and records its calls."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from manyheads.config import DecodingConfig
from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities, Feature
from manyheads.serve.served_model import ServedModel, name_models
from manyheads.translation import Translation

CAPABILITIES = Capabilities(
    sampling=False,
    forbidden_phrases=False,
    required_phrases=False,
    alignment=False,
    attention=False,
    token_scores=False,
    devices=("cpu",),
    max_positions=None,
)


class WordSubwords:
    """Every word is a token."""

    pieces = ("<unk>", "<s>", "</s>")

    def encode(self, text: str) -> list[int]:
        return [1] * len(text.split())


@dataclass
class ScriptedSubwords:
    source: WordSubwords = field(default_factory=WordSubwords)
    target: WordSubwords = field(default_factory=WordSubwords)


@dataclass
class ScriptedEngine:
    name: str = "scripted"
    objective: str = "scripted"
    capabilities: Capabilities = CAPABILITIES

    def require(self, feature: Feature) -> None:
        raise RequestError(f"the engine {self.name} does not support {feature}: use the torch engine")


@dataclass
class ScriptedTranslator:
    """Reverses the words of a text, so that the output differs from the input and moves tags.

    If it is calibrated, texts with "unsure" have confidence 0.2 and a note, and all others 0.9.
    """

    source_language: str = "en"
    target_language: str = "ko"
    seconds: float = 0.0
    release: threading.Event | None = None
    subwords: ScriptedSubwords = field(default_factory=ScriptedSubwords)
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    max_length: int = 256
    is_calibrated: bool = False
    confidence: Any = None
    calls: list[list[str]] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)

    def split_sentences(self, text: str) -> list[str]:
        return [text] if text.strip() else []

    def translate(self, texts: list[str], nbest: int = 1, **_: Any) -> list[Translation]:
        if isinstance(texts, str):
            return self.translate([texts])[0]  # type: ignore[return-value]
        self.calls.append(list(texts))
        self.started.set()
        if self.release:
            assert self.release.wait(20)
        time.sleep(self.seconds)
        if any("impossible" in text for text in texts):
            raise RequestError("this cannot be translated")
        if any("a bug" in text for text in texts):
            raise ZeroDivisionError("".join(texts))
        return [
            Translation(
                text,
                reverse_words(text),
                score=float("nan"),
                tokens=reverse_words(text).split(),
                alternatives=[Translation(text, f"{reverse_words(text)} {n}") for n in range(1, nbest)],
                confidence=self.rate(text),
                sentence_confidences=self.list_sentences(text),
                notes=["loop removed"] if self.is_calibrated and "unsure" in text else [],
            )
            for text in texts
        ]

    def list_sentences(self, text: str) -> list[tuple[str, float | None]]:
        """The words of a text are its sentences: those of the output are reversed."""
        if not self.is_calibrated:
            return []
        return [(word, self.rate(word)) for word in reverse_words(text).split(" ")]

    def rate(self, text: str) -> float | None:
        if not self.is_calibrated or not text.strip():
            return None
        return 0.2 if "unsure" in text else 0.9

    def stream_batches(
        self, texts: Iterable[str], read_ahead: int | None = None, **options: Any
    ) -> Iterator[list[Translation]]:
        for text in texts:
            yield self.translate([text])

    def score(self, sources: list[str], targets: list[str]) -> list[Translation]:
        return [
            Translation(s, t, score=-1.0, log_probability=-2.0) for s, t in zip(sources, targets, strict=True)
        ]


def reverse_words(text: str) -> str:
    return " ".join(reversed(text.split(" ")))


def serve_scripted(*translators: ScriptedTranslator) -> list[ServedModel]:
    return name_models(translators)  # type: ignore[arg-type]
