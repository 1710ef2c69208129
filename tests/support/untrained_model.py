"""A model folder with random weights, small enough for thousands of requests."""

from pathlib import Path

import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.strategies import randomize_weights

TEXTS = ["나는 오늘 집에 간다.", "I go home today.", "We read a book at school."] * 20


def save_untrained_model(folder: Path, supported_length: int | None = None) -> Path:
    subwords = SubwordTokenizer.train(TEXTS, SubwordConfig(vocab_size=320))
    config = mh.Config(
        model=mh.TransformerConfig(vocab_size=320, layers=2, d_model=16, d_ff=32, heads=2),
        data=mh.DataConfig(max_length=40),
        decoding=mh.DecodingConfig(beam=2, max_extra_length=6),
    )
    torch.manual_seed(0)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    pair, languages = SubwordPair(subwords, subwords), {"source": "en", "target": "ko"}
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        pair,
        config,
        step=1,
        languages=languages,
        supported_length=supported_length,
    )
    return folder
