"""The paper's section 3: attention (3.2), positions (3.5), layers (3.1, 3.3), the whole (3.4).

Beside it stand the systems that the paper compares it with; `make_model` makes what a configuration asks for.
"""

import torch
from torch import nn

from manyheads.config import ModelConfig
from manyheads.model.baselines.bytenet import ByteNet
from manyheads.model.baselines.convs2s import ConvS2S
from manyheads.model.baselines.recurrent import RecurrentModel
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.model.transformer import Transformer

ARCHITECTURES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
    "recurrent": RecurrentModel,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
}


def build_model(config: ModelConfig) -> EncoderDecoder:
    """The model that the configuration describes, with initial weights."""
    return ARCHITECTURES[config.architecture](config)


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """In all and by part; no memory is taken for weights, so that the largest model is counted at once."""
    with torch.device("meta"):
        model = build_model(config)

    def size(*parts: nn.Module) -> int:
        return sum({p: p.numel() for part in parts for p in part.parameters()}.values())

    parts: dict[str, list[nn.Module]] = {"embeddings_and_output": [], "encoder": [], "decoder": []}
    for name, child in model.named_children():
        parts.setdefault(component_name(name), []).append(child)
    sizes = {part: size(*children) for part, children in parts.items()}
    return {"total": size(model), **{part: count for part, count in sizes.items() if count}}


def component_name(name: str) -> str:
    """Of a child of a model: what it is counted under."""
    if name == "output" or name.endswith("_embedding"):
        return "embeddings_and_output"
    return "positions" if name.endswith("_positions") else name.partition("_")[0]
