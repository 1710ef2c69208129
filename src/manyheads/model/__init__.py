"""The paper's section 3: attention (3.2), positions (3.5), layers (3.1, 3.3), the Transformer (3.4).

`baselines` has the systems that the paper compares it with.
"""

import torch
from torch import nn

from manyheads.config import ModelConfig
from manyheads.model.baselines.bytenet import ByteNet
from manyheads.model.baselines.convs2s import ConvS2S
from manyheads.model.baselines.recurrent import RecurrentModel
from manyheads.model.encoder_decoder import EncoderDecoder
from manyheads.model.transformer import Transformer

MODEL_CLASSES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
    "recurrent": RecurrentModel,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
}


def build_model(config: ModelConfig) -> EncoderDecoder:
    """Return the model that the config describes, with initial weights."""
    return MODEL_CLASSES[config.architecture](config)


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Return the number of parameters, in total and by component. No memory is allocated for them."""
    with torch.device("meta"):
        model = build_model(config)

    def count(*modules: nn.Module) -> int:
        return sum({p: p.numel() for module in modules for p in module.parameters()}.values())

    components: dict[str, list[nn.Module]] = {"embeddings_and_output": [], "encoder": [], "decoder": []}
    for name, child in model.named_children():
        components.setdefault(component_name(name), []).append(child)
    counts = {component: count(*modules) for component, modules in components.items()}
    return {"total": count(model), **{component: number for component, number in counts.items() if number}}


def component_name(name: str) -> str:
    """Return the component that a child of a model is counted under."""
    if name == "output" or name.endswith("_embedding"):
        return "embeddings_and_output"
    return "positions" if name.endswith("_positions") else name.partition("_")[0]
