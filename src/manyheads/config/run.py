"""The configuration of a run: `manyheads train run.toml`."""

from dataclasses import dataclass, field

from manyheads.config.adaptation import AdaptationConfig
from manyheads.config.augmentation import AugmentationConfig
from manyheads.config.data import DataConfig
from manyheads.config.decoding import DecodingConfig
from manyheads.config.fields import TomlConfig
from manyheads.config.model import ModelConfig, TransformerConfig
from manyheads.config.train import TrainConfig


@dataclass(frozen=True)
class Config(TomlConfig):
    """Everything about a run."""

    model: ModelConfig = field(default_factory=TransformerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
