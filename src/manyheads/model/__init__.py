"""The paper's section 3: attention (3.2), positions (3.5), layers (3.1, 3.3), the whole (3.4).

Beside it stand the systems that the paper compares it with; `make_model` makes what a configuration asks for.
"""

import torch
from torch import nn

from manyheads.config import ModelConfig
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.model.transformer import Transformer

KINDS: dict[str, type[EncoderDecoder]] = {"transformer": Transformer}


def make_model(config: ModelConfig) -> EncoderDecoder:
    """The model that the configuration describes, with initial weights."""
    return KINDS[config.kind](config)


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """In all and by part; no memory is taken for weights, so that the largest model is counted at once."""
    with torch.device("meta"):
        model = make_model(config)

    def size(*parts: nn.Module) -> int:
        return sum({p: p.numel() for part in parts for p in part.parameters()}.values())

    def named(*ends: str) -> list[nn.Module]:
        return [part for name, part in model.named_children() if name.startswith(ends) or name.endswith(ends)]

    sizes = {
        "embeddings_and_output": size(*named("source_embedding", "target_embedding", "output")),
        "encoder": size(*named("encoder")),
        "decoder": size(*named("decoder")),
    }
    if positions := size(*named("_positions")):
        sizes["positions"] = positions
    return {"total": size(model), **sizes}
