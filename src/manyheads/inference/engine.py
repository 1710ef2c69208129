"""What every engine can be asked."""

from collections.abc import Sequence
from typing import Literal, Protocol

from manyheads.config import DecodingConfig
from manyheads.search.beam import DecodingConstraints, Hypothesis

ScoreDetail = Literal["none", "total", "tokens"]  # nobody reads them; those of sentences; those of tokens too


class Engine(Protocol):
    """Runs a model on ids. Sources end with the end token; targets have neither begin nor end."""

    name: str  # torch, or ctranslate2 with its arithmetic: what a result says of itself
    objective: str  # by what results are found and ranked, which it says too

    @property
    def max_positions(self) -> int | None:
        """The most tokens of a side that the model can take; None: there is no end."""
        ...

    def search(
        self,
        sources: Sequence[list[int]],
        wishes: Sequence[DecodingConstraints],
        how: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, best first, in the order of the sources.

        What the engine lacks raises a RequestError that names it. `scores` says which of them the caller
        reads, since an engine may have to work for them.
        """
        ...

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last: forced decoding."""
        ...
