"""Every architecture, and the Transformer without each of its parts, learns a toy task in seconds."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.config import BOS_ID, EOS_ID
from manyheads.inference.engine import decode_all
from manyheads.inference.torch_engine import TorchEngine
from manyheads.model import build_model
from manyheads.search.options import DecodingConstraints
from manyheads.train.objective import Objective
from manyheads.train.optimizer import Optimizer, clip_grad_norm
from manyheads.train.schedule import learning_rate

WORDS = list(range(3, 11))
SIZES: dict[str, Any] = {"vocab_size": 11, "layers": 2, "d_model": 32, "d_ff": 48, "dropout": 0.0}


def make_texts(rng: random.Random, count: int) -> list[list[int]]:
    return [rng.choices(WORDS, k=rng.randint(1, 5)) for _ in range(count)]


def train_model(config: mh.ModelConfig, train: mh.TrainConfig, is_reversed: bool) -> tuple[Any, list[float]]:
    """Train a model to copy or to reverse texts; return it and its losses."""
    torch.manual_seed(1)
    rng, losses = random.Random(1), []
    model = build_model(config).train()
    optimizer, objective = Optimizer(model, train), Objective(model, train)
    for step in range(1, train.steps + 1):
        sources = make_texts(rng, 40)
        targets = [text[::-1] if is_reversed else text for text in sources]
        labels = mh.Packed.of([[*text, EOS_ID] for text in targets]).tokens
        inputs = mh.Packed.of([[BOS_ID, *text] for text in targets])
        optimizer.zero_grad()
        total, nll = objective(mh.Packed.of([[*text, EOS_ID] for text in sources]), inputs, labels)
        (total / len(labels)).backward()
        clip_grad_norm(model.parameters(), train.clip_norm)
        optimizer.set_learning_rate(learning_rate(step, train, config.d_model))
        optimizer.step()
        losses.append(nll.item() / len(labels))
    return model.eval(), losses


def measure_accuracy(model: Any, is_reversed: bool) -> float:
    """Return the share of texts that greedy search gets right."""
    unseen = make_texts(random.Random(2), 100)
    constraints = [DecodingConstraints(12) for _ in unseen]
    results = decode_all(
        TorchEngine(model), [[*text, EOS_ID] for text in unseen], constraints, mh.DecodingConfig(beam=1)
    )
    expected = [text[::-1] if is_reversed else text for text in unseen]
    return sum(list(best[0].tokens) == text for best, text in zip(results, expected, strict=True)) / len(
        unseen
    )


ARCHITECTURES: dict[
    str, tuple[dict[str, Any], bool, int]
] = {  # its config, whether it reverses or copies, and in how many steps
    "lstm-additive": ({"architecture": "recurrent", "attention": "additive"}, True, 100),
    "gru-dot": ({"architecture": "recurrent", "cell": "gru", "attention": "dot", "layers": 1}, True, 130),
    "rnn": ({"architecture": "recurrent", "cell": "rnn", "layers": 1}, True, 120),
    "lstm-alone": ({"architecture": "recurrent", "attention": "none", "layers": 1}, False, 200),
    "convs2s": ({"architecture": "convs2s", "attention": "dot", "positions": "learned"}, True, 120),
    "bytenet": ({"architecture": "bytenet", "layers": 3, "dilation": 2}, False, 60),
    "experts": ({"experts": 3, "d_ff": 32, "heads": 4}, False, 110),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_architecture_learns_to_copy_or_to_reverse(name: str) -> None:
    keys, is_reversed, steps = ARCHITECTURES[name]
    train = mh.TrainConfig(
        steps=steps, learning_rate=1e-2, warmup=20, schedule="linear", clip_norm=1.0, label_smoothing=0.0
    )
    model, losses = train_model(mh.ModelConfig.from_mapping({**SIZES, **keys}), train, is_reversed)
    assert measure_accuracy(model, is_reversed) >= 0.8, losses[::20]


SWITCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no scaling": ({"attention": "dot"}, {}),
    "no positions": ({"positions": "none"}, {}),
    "no residuals": ({"residuals": False}, {}),
    "batch normalization": ({"normalization": "batch"}, {}),
    "one head": ({"heads": 1}, {}),
    "window": ({"window": 2}, {}),
    "no warm-up": ({}, {"warmup": 1, "schedule": "constant"}),
    "no label smoothing": ({}, {"label_smoothing": 0.0}),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_the_transformer_learns_without_each_of_its_parts(switch: str) -> None:
    """Better than by counting words. How much worse than the whole model, the tables show."""
    model_keys, train_keys = SWITCHES[switch]
    train = mh.TrainConfig(steps=30, learning_rate=4e-3, warmup=5, schedule="linear")
    config = mh.TransformerConfig(**{**SIZES, "heads": 4, "init_gain": 1.0, **model_keys})
    _, losses = train_model(config, replace(train, **train_keys), False)
    assert sum(losses[-5:]) / 5 < 2.05, losses  # the entropy of eight words and the end is 2.1
