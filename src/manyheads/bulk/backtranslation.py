"""Back-translation: synthetic pairs from text in the target language alone.

A model of the opposite direction translates lines of the target language. Each becomes a pair of a synthetic
source and a real target, a line of TSV. Pairs below a confidence are left out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.errors import RequestError
from manyheads.text.word_noise import add_word_noise

if TYPE_CHECKING:
    from manyheads.translation import Translation

Method = Literal["beam", "sampling", "noised-beam"]
METHODS: tuple[Method, ...] = ("beam", "sampling", "noised-beam")


@dataclass(frozen=True)
class BacktranslationOptions:
    """How synthetic sources are made from translations."""

    min_confidence: float | None = None  # pairs below it are left out
    noise: bool = False  # in the words of the synthetic sources
    seed: int = 0  # of noise


def create_decoding(
    method: str, beam: int | None, temperature: float | None, top_k: int | None, seed: int
) -> dict[str, Any]:
    """Return the decoding options of a method; refuse those that belong to another."""
    if method not in METHODS:
        raise RequestError(f"--method is {method!r}, but must be {', '.join(METHODS[:-1])} or {METHODS[-1]}")
    if method == "sampling":
        if beam is not None:
            raise RequestError(f"--beam is {beam}, but --method sampling has no beam: choose --method beam")
        options = {"temperature": temperature or 1.0, "seed": seed}
        return options if top_k is None else options | {"top_k": top_k}
    if temperature is not None or top_k is not None:
        raise RequestError(f"--temperature and --top-k are for --method sampling, not for {method}")
    return {} if beam is None else {"beam": beam}


def format_pair(
    translation: "Translation", options: BacktranslationOptions, policy: ConfidencePolicy
) -> str | None:
    """Return the synthetic source, a tab and the real target; None if there is no pair to learn from."""
    source, target = " ".join(translation.text.split()), " ".join(translation.source.split())
    if not source or not target or policy.is_below(translation):
        return None
    return f"{add_word_noise(source, options.seed) if options.noise else source}\t{target}"
