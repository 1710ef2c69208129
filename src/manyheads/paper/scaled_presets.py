"""The paper's models scaled down, every row of a table in the same proportion."""

from dataclasses import dataclass, replace
from fractions import Fraction

from manyheads.config import (
    Config,
    DataConfig,
    ModelConfig,
    TrainConfig,
    TransformerConfig,
    describe_unknown_name,
)
from manyheads.errors import ConfigError

PAPER_D_MODEL = 512  # d_model of the base model
MAX_LENGTH = 256  # tokens per side, and learned positions


@dataclass(frozen=True)
class ModelScale:
    """A scale of width and depth relative to the paper, and the training that suits models of that size."""

    name: str
    width: Fraction  # of d_model, d_ff, d_k and d_v; the number of heads is unchanged
    depth: Fraction  # of encoder and decoder
    batch_tokens: int
    peak_learning_rate: float | None  # of the base row; None: the paper's
    warmup: int
    budget_tokens: int  # default budget of a run
    budget_seconds: float

    def scale_model(self, model: TransformerConfig) -> TransformerConfig:
        """Return a model of the paper at this scale: as many heads, each narrower."""

        def scale_width(width: int | None) -> int | None:
            return None if width is None else to_integer(width * self.width)

        return replace(
            model,
            encoder_layers=to_integer(model.encoder_layers * self.depth),
            decoder_layers=to_integer(model.decoder_layers * self.depth),
            d_model=to_integer(model.d_model * self.width),
            d_ff=to_integer(model.d_ff * self.width),
            d_k=scale_width(model.d_k),
            d_v=scale_width(model.d_v),
            max_positions=min(model.max_positions, MAX_LENGTH),
        )

    def scale_training(self, train: TrainConfig, d_model: int) -> TrainConfig:
        """Return the paper's schedule with a shorter warm-up, its peak proportional to d_model^-0.5 (5.3)."""
        base = float(PAPER_D_MODEL * self.width)
        peak = self.peak_learning_rate and self.peak_learning_rate * (base / d_model) ** 0.5
        return replace(train, warmup=self.warmup, learning_rate=peak)

    def make_config(self, model: ModelConfig, train: TrainConfig, folder: str) -> Config:
        """Return a complete run config, except for its budget and seed."""
        data = DataConfig(folder=folder, batch_tokens=self.batch_tokens, max_length=MAX_LENGTH)
        return Config(model=model, data=data, train=self.scale_training(train, model.d_model))


def to_integer(size: Fraction) -> int:
    if size.denominator != 1:
        raise ConfigError(f"the scaled size is {size}, but must be an integer: choose a larger scale")
    return int(size)


EIGHTH, QUARTER, HALF, FULL = Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1)
SCALES = {
    scale.name: scale
    for scale in (
        ModelScale("playground", EIGHTH, HALF, 500, 3e-3, 80, 400_000, 20),
        ModelScale("tiny", QUARTER, HALF, 4_000, 2e-3, 1_000, 20_000_000, 60),
        ModelScale("base", FULL, FULL, 25_000, None, 4_000, 5_000_000_000, 43_200),
    )
}


def get_scale(name: str) -> ModelScale:
    if name not in SCALES:
        raise ConfigError(describe_unknown_name("scale", name, list(SCALES)))
    return SCALES[name]
