"""What is known of the torch engine before torch is imported, which takes seconds."""

from typing import Any

from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities, Feature

NAME = "torch"
OBJECTIVE = "log p / ((5 + L) / 6)^alpha"
READ_AHEAD, GPU_READ_AHEAD = 4096, 2**15  # requests of a stream


def describe_capabilities(config: Any, max_positions: int | None) -> Capabilities:
    """Return what the engine can do with a model of this configuration."""
    has_attention = getattr(config, "attention", "none") != "none"
    return Capabilities(
        sampling=True,
        forbidden_phrases=True,
        required_phrases=True,
        alignment=has_attention,
        attention=has_attention,
        token_scores=True,
        devices=("cpu", "cuda"),
        max_positions=max_positions,
    )


def require_feature(config: Any, feature: Feature) -> None:
    """Raise a RequestError that names the model's key if the model lacks attention."""
    if not getattr(describe_capabilities(config, None), feature):
        key = "attention" if hasattr(config, "attention") else "architecture"
        raise RequestError(
            f"model.{key} is {getattr(config, key)!r}: the model has no attention over the source, "
            f"and so no attention maps or alignments"
        )
