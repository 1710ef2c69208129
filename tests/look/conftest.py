"""A small model that was never trained, and its attention."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from support.browser import browser, pages  # noqa: F401
from support.node_engine import node  # noqa: F401
from support.strategies import randomize_weights

SOURCE, TARGET = "I go home today.", "나는 오늘 집에 간다."
CONFIG = mh.Config(
    model=mh.TransformerConfig(vocab_size=330, layers=2, d_model=16, d_ff=32, heads=4),
    data=mh.DataConfig(max_length=40),
    decoding=mh.DecodingConfig(max_extra_length=6),
)


def save(folder: Path, seed: int, step: int, subwords: SubwordTokenizer, config: mh.Config = CONFIG) -> Path:
    torch.manual_seed(seed)
    model = mh.Transformer(config.model)
    randomize_weights(model)
    with torch.no_grad():
        model.output.weight[2] += 0.4  # the end comes within reason
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        SubwordPair(subwords, subwords),
        config,
        step=step,
        languages={"source": "en", "target": "ko"},
    )
    return folder


@pytest.fixture(scope="session")
def subwords() -> SubwordTokenizer:
    return SubwordTokenizer.train(
        [SOURCE, TARGET, "We read a book at school."] * 20, SubwordConfig(vocab_size=330)
    )


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, subwords: SubwordTokenizer) -> Path:
    return save(tmp_path_factory.mktemp("look") / "model", 0, 1, subwords)


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer, and a vocabulary of its own."""
    subwords = SubwordTokenizer.train(
        [TARGET, SOURCE, "우리는 학교에 간다."] * 20, SubwordConfig(vocab_size=300)
    )
    config = replace(
        CONFIG, model=mh.TransformerConfig(vocab_size=300, layers=1, d_model=16, d_ff=32, heads=4)
    )
    return save(tmp_path_factory.mktemp("look") / "other", 3, 1, subwords, config)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, subwords: SubwordTokenizer) -> Path:
    """Three checkpoints, as a run leaves them."""
    folder = tmp_path_factory.mktemp("look") / "run"
    for step in (10, 20, 30):
        save(checkpoint.checkpoint_path(folder, step), step, step, subwords)
    return folder


@pytest.fixture(scope="session")
def attention(model: Path) -> mh.AttentionMaps:
    return mh.load(model, device="cpu").attention(SOURCE, TARGET)
