"""Train, run and inspect translation models: the Transformer of Attention Is All You Need.

    import manyheads as mh

    model = mh.Transformer(mh.presets.BASE)
    logits = model(mh.Packed.of([[5, 6, 7, 2]]), mh.Packed.of([[1, 8, 9]]))

Names are imported when they are first used, so that the command line starts without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manyheads import presets
    from manyheads.config import (
        ByteNetConfig,
        Config,
        ConvS2SConfig,
        DataConfig,
        DecodingConfig,
        ModelConfig,
        RecurrentConfig,
        TrainConfig,
        TransformerConfig,
    )
    from manyheads.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        ManyheadsError,
        RequestError,
        ResourceError,
        TrainingError,
    )
    from manyheads.loading import load
    from manyheads.model.encoder_decoder import Trace
    from manyheads.model.transformer import Transformer
    from manyheads.packed import Packed
    from manyheads.translation import AttentionMaps, Translation
    from manyheads.translator import Translator

__version__ = "0.1.0"

_MODULES = {
    "AttentionMaps": "manyheads.translation",
    "ByteNetConfig": "manyheads.config",
    "CheckpointError": "manyheads.errors",
    "Config": "manyheads.config",
    "ConfigError": "manyheads.errors",
    "ConvS2SConfig": "manyheads.config",
    "DataConfig": "manyheads.config",
    "DataError": "manyheads.errors",
    "DecodingConfig": "manyheads.config",
    "load": "manyheads.loading",
    "ManyheadsError": "manyheads.errors",
    "ModelConfig": "manyheads.config",
    "Packed": "manyheads.packed",
    "RecurrentConfig": "manyheads.config",
    "RequestError": "manyheads.errors",
    "ResourceError": "manyheads.errors",
    "Trace": "manyheads.model.encoder_decoder",
    "TrainConfig": "manyheads.config",
    "TrainingError": "manyheads.errors",
    "Transformer": "manyheads.model.transformer",
    "TransformerConfig": "manyheads.config",
    "Translation": "manyheads.translation",
    "Translator": "manyheads.translator",
}

__all__ = [
    "AttentionMaps",
    "ByteNetConfig",
    "CheckpointError",
    "Config",
    "ConfigError",
    "ConvS2SConfig",
    "DataConfig",
    "DataError",
    "DecodingConfig",
    "ManyheadsError",
    "ModelConfig",
    "Packed",
    "RecurrentConfig",
    "RequestError",
    "ResourceError",
    "Trace",
    "TrainConfig",
    "TrainingError",
    "Transformer",
    "TransformerConfig",
    "Translation",
    "Translator",
    "load",
    "presets",
]


def __getattr__(name: str) -> Any:
    if name == "presets":
        return import_module("manyheads.presets")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'manyheads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
