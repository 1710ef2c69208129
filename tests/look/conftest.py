"""A small model that was never trained, and its attention."""

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


def save(folder: Path, seed: int, step: int, subwords: SubwordTokenizer) -> Path:
    torch.manual_seed(seed)
    model = mh.Transformer(CONFIG.model)
    randomize_weights(model)
    with torch.no_grad():
        model.output.weight[2] += 0.4  # the end comes within reason
    checkpoint.save(
        folder,
        checkpoint.collect_weights(model),
        SubwordPair(subwords, subwords),
        CONFIG,
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
def run(tmp_path_factory: pytest.TempPathFactory, subwords: SubwordTokenizer) -> Path:
    """Three checkpoints, as a run leaves them."""
    folder = tmp_path_factory.mktemp("look") / "run"
    for step in (10, 20, 30):
        save(checkpoint.checkpoint_path(folder, step), step, step, subwords)
    return folder


@pytest.fixture(scope="session")
def attention(model: Path) -> mh.AttentionMaps:
    return mh.load(model, device="cpu").attention(SOURCE, TARGET)
