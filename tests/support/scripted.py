"""A translator without a model: it answers at once, or when it is told to, and remembers its calls."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from manyheads.config import SearchConfig
from manyheads.errors import RequestError
from manyheads.serve.worker import Served, named
from manyheads.translator import Translation


class Words:
    """A token is a word."""

    def encode(self, text: str) -> list[int]:
        return [1] * len(text.split())


@dataclass
class Sides:
    source: Words = field(default_factory=Words)
    target: Words = field(default_factory=Words)


@dataclass
class Named:
    name: str = "scripted"
    objective: str = "as it is written"
    reach: int | None = None


@dataclass
class Scripted:
    """Words backwards: what comes out is told apart from what went in, and tags would be seen."""

    source_language: str = "en"
    target_language: str = "ko"
    seconds: float = 0.0
    may_go: threading.Event | None = None
    subwords: Sides = field(default_factory=Sides)
    engine: Named = field(default_factory=Named)
    how: SearchConfig = field(default_factory=SearchConfig)
    longest: int = 256
    calls: list[list[str]] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)

    def sentences(self, text: str) -> list[str]:
        return [text] if text.strip() else []

    def translate(self, texts: list[str], nbest: int = 1, **_: Any) -> list[Translation]:
        if isinstance(texts, str):
            return self.translate([texts])[0]  # type: ignore[return-value]
        self.calls.append(list(texts))
        self.begun.set()
        if self.may_go:
            assert self.may_go.wait(20)
        time.sleep(self.seconds)
        if any("impossible" in text for text in texts):
            raise RequestError("this cannot be translated")
        if any("a bug" in text for text in texts):
            raise ZeroDivisionError("".join(texts))
        return [
            Translation(
                text,
                backwards(text),
                score=float("nan"),
                tokens=backwards(text).split(),
                alternatives=[Translation(text, f"{backwards(text)} {n}") for n in range(1, nbest)],
            )
            for text in texts
        ]

    def score(self, sources: list[str], targets: list[str]) -> list[Translation]:
        return [
            Translation(s, t, score=-1.0, log_probability=-2.0) for s, t in zip(sources, targets, strict=True)
        ]


def backwards(text: str) -> str:
    return " ".join(reversed(text.split(" ")))


def served(*translators: Scripted) -> list[Served]:
    return named(translators)  # type: ignore[arg-type]
