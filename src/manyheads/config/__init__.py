"""Every setting with its default, its limits and its description; TOML in and out.

The defaults are the paper's base model and its training. A preset is a difference from them (presets.py).
"""

from manyheads.config.adaptation import AdaptationConfig
from manyheads.config.augmentation import AugmentationConfig
from manyheads.config.data import DataConfig
from manyheads.config.decoding import DecodingConfig
from manyheads.config.distill import DistillConfig
from manyheads.config.fields import ConfigSection, TomlConfig, describe_unknown_name
from manyheads.config.model import (
    ARCHITECTURES,
    ByteNetConfig,
    ConvS2SConfig,
    ModelConfig,
    PositionalConfig,
    RecurrentConfig,
    TransformerConfig,
)
from manyheads.config.recipe import (
    LANGUAGE_CODE,
    SENTENCEPIECE_RESERVED,
    SPLITS,
    CleanConfig,
    CorpusConfig,
    InputConfig,
    Recipe,
    SubwordConfig,
)
from manyheads.config.run import Config
from manyheads.config.tokens import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, UNK_ID
from manyheads.config.train import TrainConfig

__all__ = [
    "ARCHITECTURES",
    "BOS_ID",
    "EOS_ID",
    "LANGUAGE_CODE",
    "NUM_SPECIAL_TOKENS",
    "SENTENCEPIECE_RESERVED",
    "SPLITS",
    "UNK_ID",
    "AdaptationConfig",
    "AugmentationConfig",
    "ByteNetConfig",
    "CleanConfig",
    "Config",
    "ConfigSection",
    "ConvS2SConfig",
    "CorpusConfig",
    "DataConfig",
    "DecodingConfig",
    "DistillConfig",
    "InputConfig",
    "ModelConfig",
    "PositionalConfig",
    "Recipe",
    "RecurrentConfig",
    "SubwordConfig",
    "TomlConfig",
    "TrainConfig",
    "TransformerConfig",
    "describe_unknown_name",
]
