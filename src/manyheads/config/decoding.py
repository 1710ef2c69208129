"""How translations are decoded (6.1)."""

from dataclasses import dataclass
from typing import ClassVar

from manyheads.config.fields import ConfigSection, config_field
from manyheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(ConfigSection):
    """Beam search, or sampling where a temperature is set."""

    table: ClassVar[str] = "decoding"

    beam: int = config_field(4, "beam size (6.1); 1 is greedy", at_least=1, at_most=1024)
    alpha: float = config_field(0.6, "of the length penalty ((5 + L)/6)^alpha (6.1)", at_least=0)
    max_extra_length: int = config_field(
        50, "maximum number of tokens by which the output may exceed the input (6.1)", at_least=0
    )
    min_length: int = config_field(0, "minimum number of output tokens", at_least=0)
    nbest: int = config_field(1, "results per sentence; not more than the beam", at_least=1, at_most=10_000)
    temperature: float | None = config_field(
        None,
        "sample at this temperature: 1 samples from the model's distribution; by default beam search",
        above=0,
    )
    top_k: int | None = config_field(
        None, "sample from this many most probable tokens; by default from all", at_least=1
    )
    top_p: float | None = config_field(
        None, "sample from the most probable tokens that together have this probability", above=0, at_most=1
    )
    seed: int = config_field(0, "seed of sampling", at_least=0)
    no_repeat_ngram: int | None = config_field(
        None,
        "never repeat an n-gram of this length within an output; by default repetition is allowed",
        at_least=1,
    )

    shortlist: bool = config_field(
        True, "on a CPU, consider only the likely target pieces of a source, if the model has a shortlist"
    )

    @property
    def num_hypotheses(self) -> int:
        """Hypotheses of a sentence that are decoded at the same time."""
        return self.nbest if self.temperature is not None else self.beam

    def check_together(self) -> None:
        if self.temperature is None and self.nbest > self.beam:
            raise ConfigError(
                f"decoding.nbest is {self.nbest}, but a beam of {self.beam} has no more results: "
                f"raise decoding.beam, or sample with decoding.temperature"
            )
        if self.temperature is None and (self.top_k is not None or self.top_p is not None):
            raise ConfigError(
                "decoding.top_k and decoding.top_p apply to sampling only: set decoding.temperature (1.0) too"
            )
