"""Small models of several configurations, for walks."""

from typing import Any

import torch

import manyheads as mh
from manyheads.inference.torch_engine import TorchEngine
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

SOURCE, TARGET = "I go home today.", "나는 오늘 집에 간다."
CONFIGS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "max_positions": 60},
    {"attention": "additive", "d_k": 3, "d_v": 5, "positions": "none", "activation": "swish"},
    {"attention": "dot", "normalization": "batch", "window": 3, "residuals": False},
]


def make_translator(subwords: SubwordTokenizer, **changes: Any) -> mh.Translator:
    torch.manual_seed(3)
    config = mh.TransformerConfig(vocab_size=330, layers=2, d_model=16, d_ff=32, heads=4, **changes)
    model = mh.Transformer(config)
    randomize_weights(model)
    engine = TorchEngine(model, torch.device("cpu"), "auto")
    return mh.Translator(engine, SubwordPair(subwords, subwords), {"source": "en", "target": "ko"})
