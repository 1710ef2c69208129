"""How prepared text becomes batches (5.1)."""

from dataclasses import dataclass
from typing import ClassVar

from manyheads.config.fields import ConfigSection, config_field


@dataclass(frozen=True, kw_only=True)
class DataConfig(ConfigSection):
    """The data folder and how it is batched."""

    table: ClassVar[str] = "data"

    folder: str = config_field("data", "the folder that `manyheads prepare` wrote")
    batch_tokens: int = config_field(
        25_000,
        "about this many source and this many target tokens per batch, over all ranks (5.1)",
        at_least=1,
    )
    max_length: int = config_field(
        256, "longest source or target in tokens, end included; longer pairs are left out", at_least=1
    )
    subword_regularization: float = config_field(
        0.0,
        "segment words anew each epoch: p of BPE-dropout, or smoothing of unigram sampling; 0 is off",
        at_least=0,
        below=1,
    )
