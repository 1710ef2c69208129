"""How a model that is trained already is adapted to other text: `manyheads adapt`."""

from dataclasses import dataclass
from typing import ClassVar

from manyheads.config.fields import ConfigSection, config_field
from manyheads.errors import ConfigError

FROZEN_PARTS = ("embeddings", "encoder", "decoder")


@dataclass(frozen=True, kw_only=True)
class AdaptationConfig(ConfigSection):
    """What of a model is trained, and what keeps it from forgetting. The defaults train everything."""

    table: ClassVar[str] = "adaptation"

    rank: int | None = config_field(
        None,
        "train a low-rank adapter (LoRA) of this rank instead of the weights; by default the weights",
        at_least=1,
        at_most=1024,
    )
    scale: float = config_field(2.0, "s of W + s B A, the weights with a low-rank adapter", above=0)
    freeze: tuple[str, ...] = config_field(
        (), "parts that stay as they are: embeddings (with the output), encoder, decoder"
    )
    anchor: float = config_field(
        0.0, "weight of half the squared distance to the initial weights (L2-SP); 0 is off", at_least=0
    )
    general: str | None = config_field(
        None, "a data folder of general text: for replay, and to measure what is forgotten"
    )
    replay: float = config_field(0.0, "share of general text in each batch, in tokens", at_least=0, below=1)

    def check_together(self) -> None:
        for part in self.freeze:
            if part not in FROZEN_PARTS:
                raise ConfigError(
                    f"adaptation.freeze holds {part!r}, but a part is one of {', '.join(FROZEN_PARTS)}"
                )
        if {"encoder", "decoder", "embeddings"} <= set(self.freeze):
            raise ConfigError("adaptation.freeze holds every part, so that nothing is left to train")
        if self.replay and self.general is None:
            raise ConfigError(
                f"adaptation.replay is {self.replay:g}, but adaptation.general names no data to replay: "
                f"set it to a data folder, or set adaptation.replay = 0"
            )
        if self.rank is not None and self.anchor:
            raise ConfigError(
                "adaptation.anchor pulls weights back to their initial values, but with adaptation.rank they "
                "do not change: set adaptation.anchor = 0"
            )
