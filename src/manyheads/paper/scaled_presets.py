"""The paper's models made smaller, each row of a table in the same proportion."""

from dataclasses import dataclass, replace
from fractions import Fraction

from manyheads.config import Config, DataConfig, ModelConfig, TrainConfig, describe_unknown_name
from manyheads.errors import ConfigError

PAPER_WIDTH = 512  # d_model of the base model
LONGEST = 256  # tokens of a side; learned positions reach as far


@dataclass(frozen=True)
class Scale:
    """How much smaller than the paper's, and the training that suits models of that size."""

    name: str
    width: Fraction  # of d_model, d_ff, d_k and d_v; the number of heads stays
    depth: Fraction  # of the layers
    batch_tokens: int
    peak: float | None  # of the learning rate, for the base row; None: the paper's
    warmup: int
    tokens: int  # a run's budget where none is asked for
    seconds: float

    def model(self, model: ModelConfig) -> ModelConfig:
        """A model of the paper at this scale. Heads are as many as there; so each is narrower."""

        def narrower(width: int | None) -> int | None:
            return None if width is None else whole(width * self.width)

        return replace(
            model,
            layers=whole(model.layers * self.depth),
            d_model=whole(model.d_model * self.width),
            d_ff=whole(model.d_ff * self.width),
            d_k=narrower(model.d_k),
            d_v=narrower(model.d_v),
            learned_length=min(model.max_positions, LONGEST),
        )

    def train(self, train: TrainConfig, d_model: int) -> TrainConfig:
        """The paper's schedule with a shorter warm-up; its peak goes with d_model^-0.5, as there (5.3)."""
        base = float(PAPER_WIDTH * self.width)
        peak = self.peak and self.peak * (base / d_model) ** 0.5
        return replace(train, warmup=self.warmup, learning_rate=peak)

    def config(self, model: ModelConfig, train: TrainConfig, folder: str) -> Config:
        """A whole run, but for its budget and seed."""
        data = DataConfig(folder=folder, batch_tokens=self.batch_tokens, max_length=LONGEST)
        return Config(model=model, data=data, train=self.train(train, model.d_model))


def whole(size: Fraction) -> int:
    if size.denominator != 1:
        raise ConfigError(f"a scale makes a size of {size}, which is not whole: choose a larger one")
    return int(size)


EIGHTH, QUARTER, HALF, ONE = Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(1)
SCALES = {
    scale.name: scale
    for scale in (
        Scale("playground", EIGHTH, HALF, 500, 3e-3, 80, 400_000, 20),
        Scale("tiny", QUARTER, HALF, 4_000, 2e-3, 1_000, 20_000_000, 60),
        Scale("base", ONE, ONE, 25_000, None, 4_000, 5_000_000_000, 43_200),
    )
}


def scale_of(name: str) -> Scale:
    if name not in SCALES:
        raise ConfigError(describe_unknown_name("scale", name, list(SCALES)))
    return SCALES[name]
