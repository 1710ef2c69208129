"""A model of the torch engine that is small enough for thousands of requests, and was never trained."""

from pathlib import Path

import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordPair, Subwords
from support.draw import stir

TEXTS = ["나는 오늘 집에 간다.", "I go home today.", "We read a book at school."] * 20


def tiny_model(folder: Path) -> Path:
    subwords = Subwords.train(TEXTS, SubwordConfig(vocabulary=320))
    config = mh.Config(
        model=mh.ModelConfig(vocabulary=320, layers=2, d_model=16, d_ff=32, heads=2),
        data=mh.DataConfig(longest=40),
        search=mh.SearchConfig(beam=2, extra_length=6),
    )
    torch.manual_seed(0)
    model = mh.Transformer(config.model)
    stir(model)
    pair, languages = SubwordPair(subwords, subwords), {"source": "en", "target": "ko"}
    checkpoint.save(folder, checkpoint.weights_of(model), pair, config, step=1, languages=languages)
    return folder
