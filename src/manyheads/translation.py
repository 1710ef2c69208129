"""What a Translator returns."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads.model.encoder_decoder import Trace


@dataclass(frozen=True)
class Translation:
    """A translated text with its scores.

    Tokens are subword pieces, those of all sentences one after the other. Scores are natural logarithms.
    """

    source: str
    text: str
    score: float = 0.0  # log p divided by the length penalty, summed over its sentences
    log_probability: float = 0.0
    source_tokens: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    token_scores: list[float] = field(default_factory=list)  # log p of each, without the ends of sentences
    alignment: list[tuple[int, int]] | None = None  # source token and target token, if requested
    sentences: int = 0  # that were translated; 0: there was nothing to translate
    engine: str = ""
    objective: str = ""  # what it was searched and ranked by
    alternatives: "list[Translation]" = field(default_factory=list)  # the rest of the n-best list

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class AttentionMaps:
    """The tokens and attention weights of one translation."""

    source_tokens: list[str]  # [S] with the end
    target_tokens: list[str]  # [T] with the end: what was written at each step
    trace: "Trace"  # encoder[layer][0] [heads, S, S], decoder [heads, T, T], cross [heads, T, S]
    candidates: list[list[tuple[str, float]]] = field(default_factory=list)  # [T], likeliest first, log p
    token_scores: list[float] = field(default_factory=list)  # [T], log p of what was written
    languages: dict[str, str] = field(default_factory=dict)  # source and target
