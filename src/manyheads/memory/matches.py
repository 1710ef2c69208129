"""What a lookup in the memory returns."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

MatchType = Literal["exact", "adapted", "similar"]

# What translations note.
MATCH_NOTES: dict[MatchType, str] = {
    "exact": "from a correction",
    "adapted": "from a correction, adapted",
    "similar": "similar to a correction",
}


@dataclass(frozen=True)
class MemoryMatch:
    """A correction that a text, or a sentence of it, matches.

    exact    the text is that of the correction, which is its translation
    adapted  the text differs in numbers and other copied text only, which are exchanged in its translation
    similar  the text is translated by the model; the correction is shown beside it
    """

    match: MatchType
    similarity: float  # 1 for exact and adapted matches
    source: str  # of the correction
    target: str  # of the correction; adapted to the text, if it is an adapted match
    who: str
    when: str  # ISO 8601, UTC

    @property
    def is_used(self) -> bool:
        """Whether its target is the translation."""
        return self.match != "similar"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
