"""What a Translator returns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    from manyheads.memory.matches import MemoryMatch
    from manyheads.model.encoder_decoder import Trace
    from manyheads.text.restoration import Restoration
    from manyheads.text.subwords import SubwordTokenizer


class TokenIds(NamedTuple):
    """Ids of sentences whose pieces are looked up when somebody reads them."""

    subwords: "SubwordTokenizer"
    sentences: list[list[int]]
    has_ends: bool  # whether each sentence ends with the end token, which is left out
    restorations: "Sequence[Restoration | None]" = ()  # of each sentence, if any has one

    def to_pieces(self) -> list[str]:
        pieces, end = self.subwords.pieces, -1 if self.has_ends else None
        if not any(self.restorations):
            return [pieces[token_id] for ids in self.sentences for token_id in ids[:end]]
        restored: list[str] = []
        for ids, restoration in zip(self.sentences, self.restorations, strict=True):
            own = [pieces[token_id] for token_id in ids[:end]]
            restored += restoration.restore_pieces(own) if restoration else own
        return restored


class PieceList:
    """A field that holds pieces, or ids until the pieces are read: most programs read the text alone."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> tuple[str, ...]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> list[str]: ...
    def __get__(self, instance: object | None, owner: type) -> list[str] | tuple[str, ...]:
        if instance is None:  # the dataclass takes the default from here
            return ()
        value: list[str] | TokenIds = instance.__dict__[self.name]
        if isinstance(value, TokenIds):
            value = instance.__dict__[self.name] = value.to_pieces()
        return value

    def __set__(self, instance: object, value: list[str] | tuple[str, ...] | TokenIds) -> None:
        instance.__dict__[self.name] = value or []


@dataclass(frozen=True)
class Translation:
    """A translated text with its scores.

    Tokens are subword pieces, those of all sentences one after the other. Scores are natural logarithms.
    """

    source: str
    text: str
    score: float = 0.0  # log p divided by the length penalty, summed over its sentences
    log_probability: float = 0.0
    source_tokens: PieceList = PieceList()
    tokens: PieceList = PieceList()
    token_scores: list[float] = field(default_factory=list)  # log p of each, without the ends of sentences
    alignment: list[tuple[int, int]] | None = None  # source token and target token, if requested
    sentences: int = 0  # that the model translated; 0: there was nothing to translate, or it was corrected
    engine: str = ""
    objective: str = ""  # what it was searched and ranked by
    alternatives: "list[Translation]" = field(default_factory=list)  # the rest of the n-best list
    confidence: float | None = None  # probability that it is adequate, if the model is calibrated
    notes: list[str] = field(default_factory=list)  # what was unusual: "not in English", "second try", ...
    # The text and the confidence of each sentence, if the model is calibrated and token scores are read.
    sentence_confidences: list[tuple[str, float | None]] = field(default_factory=list)
    # Corrections that the text or its sentences match: they are the translation, or are similar to it.
    corrections: "list[MemoryMatch]" = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields for JSON. Lists are those of the translation, not copies."""
        values = {name: getattr(self, name) for name in FIELD_NAMES}
        values["alternatives"] = [other.to_dict() for other in self.alternatives]
        values["corrections"] = [match.to_dict() for match in self.corrections]
        return values

    def __getstate__(self) -> dict[str, Any]:
        """Return pieces instead of ids with their tokenizer, which does not leave the process."""
        return {name: getattr(self, name) for name in FIELD_NAMES}


FIELD_NAMES = tuple(entry.name for entry in fields(Translation))


@dataclass(frozen=True)
class AttentionMaps:
    """The tokens and attention weights of one translation."""

    source_tokens: list[str]  # [S] with the end
    target_tokens: list[str]  # [T] with the end: what was written at each step
    trace: "Trace"  # encoder[layer][0] [heads, S, S], decoder [heads, T, T], cross [heads, T, S]
    candidates: list[list[tuple[str, float]]] = field(default_factory=list)  # [T], likeliest first, log p
    token_scores: list[float] = field(default_factory=list)  # [T], log p of what was written
    languages: dict[str, str] = field(default_factory=dict)  # source and target
