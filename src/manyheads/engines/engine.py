"""What every engine can be asked."""

from collections.abc import Sequence
from typing import Protocol

from manyheads.config import SearchConfig
from manyheads.search import Hypothesis, Wish


class Engine(Protocol):
    """Runs a model on ids. Sources end with the end token; targets have neither begin nor end."""

    name: str  # torch, or ctranslate2 with its arithmetic: what a result says of itself

    def search(
        self, sources: Sequence[list[int]], wishes: Sequence[Wish], how: SearchConfig
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, best first, in the order of the sources.

        What the engine lacks raises a RequestError that names it.
        """
        ...

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log-probability of each token of each target, the end token's last: forced decoding."""
        ...
