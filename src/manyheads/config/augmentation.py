"""Augmentation of the training data: how often sentences are changed on the fly."""

from dataclasses import dataclass, fields
from typing import ClassVar

from manyheads.config.fields import ConfigSection, config_field
from manyheads.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig(ConfigSection):
    """Shares of the pairs of an epoch whose source gets a noise (at most one each); 0 is off."""

    table: ClassVar[str] = "augmentation"

    lower: float = config_field(0.0, "share of the sources in lower case", at_least=0, below=1)
    title: float = config_field(0.0, "share of the sources in Title Case", at_least=0, below=1)
    capitals: float = config_field(
        0.0, "share of the sources with one to three words in CAPITALS", at_least=0, below=1
    )
    typos: float = config_field(
        0.0, "share of the sources with typos in a tenth of their words", at_least=0, below=1
    )
    punctuation: float = config_field(
        0.0, "share of the sources with missing or doubled marks", at_least=0, below=1
    )
    spacing: float = config_field(
        0.0, "share of the sources with missing or additional spaces", at_least=0, below=1
    )
    variants: float = config_field(
        0.0,
        "share of the sources with other quotes, dashes, ellipses or full-width forms",
        at_least=0,
        below=1,
    )
    accents: float = config_field(0.0, "share of the sources without accents", at_least=0, below=1)
    copied: float = config_field(
        0.0, "share of the pairs with copy symbols on both sides, beside any noise", at_least=0, below=1
    )
    terms: float = config_field(
        0.0, "share of the pairs with annotated terms in the source, beside any noise", at_least=0, below=1
    )

    @property
    def noise_rates(self) -> dict[str, float]:
        """The rates of the noises of the source that are on."""
        return {name: rate for name, rate in self.rates.items() if name not in ("copied", "terms")}

    @property
    def rates(self) -> dict[str, float]:
        """The rates that are not 0."""
        every = {key.name: getattr(self, key.name) for key in fields(self)}
        return {name: rate for name, rate in every.items() if rate}

    def check_together(self) -> None:
        total = sum(self.noise_rates.values())
        if total > 1:
            raise ConfigError(
                f"the rates of augmentation add up to {total:.3g}, but a source gets at most one noise: "
                f"lower them to a sum of 1 or less ({', '.join(self.noise_rates)})"
            )
