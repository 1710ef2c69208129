"""A model folder with random weights, small enough for thousands of requests."""

from pathlib import Path

import numpy as np
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.confidence.calibration import ConfidenceParameters
from manyheads.confidence.features import FEATURES
from manyheads.confidence.source_model import SourceModel
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


def calibrate_untrained_model(folder: Path) -> Path:
    """Give a model confidences from 0 to 1 by the log p of its outputs, which means nothing."""
    num_features = len(FEATURES)
    coefficients = np.zeros(num_features + 1)
    coefficients[FEATURES.index("log_p")] = 1.0
    parameters = ConfidenceParameters(
        SourceModel.train(np.tile([3, 4, 5, 2], 50), 320),
        log_length_ratio=0.0,
        means=np.zeros(num_features),
        scales=np.ones(num_features),
        coefficients=coefficients,
        knots=np.array([-4.5, -2.0]),
        values=np.array([0.0, 1.0]),
        measures={"ece": 0.01, "auroc.shuffled": 0.98},
    )
    checkpoint.write_confidence(folder, parameters.to_bytes())
    return folder
