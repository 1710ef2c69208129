"""Random sentences, attention problems and models, for the property tests."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import manyheads as mh
from manyheads.model import build_model
from manyheads.ops.attention_spec import AttentionSpec

VOCAB_SIZE = 11  # ids that sentences are made of; a drawn model knows at least these
SEEDS = st.integers(0, 2**16)


@st.composite
def sentences(draw: st.DrawFn, count: int | None = None, shortest: int = 0) -> list[list[int]]:
    """Up to five short sentences, empty ones among them."""
    size = st.integers(0, 5) if count is None else st.just(count)
    sentence = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=shortest, max_size=7)
    return [draw(sentence) for _ in range(draw(size))]


@st.composite
def sentence_pairs(draw: st.DrawFn, shortest: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Sources and as many targets."""
    sources = draw(sentences(shortest=shortest))
    return sources, draw(sentences(count=len(sources), shortest=shortest))


@st.composite
def attention_problems(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `attend`: over one text (causal or windowed, perhaps), or from one text to another."""
    torch.manual_seed(draw(SEEDS))
    heads, d_k, d_v = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    keys = mh.Packed.of(draw(sentences()))
    alone = draw(st.booleans())
    queries = keys if alone else mh.Packed.of(draw(sentences(count=len(keys))))
    score = draw(st.sampled_from(["scaled-dot", "dot", "additive"]))
    rule = AttentionSpec(
        score,
        causal=alone and draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 8)) if alone else None,
        energy_HK=random_tensor(heads, d_k) if score == "additive" else None,
    )
    return {
        "q_THK": random_tensor(len(queries.tokens), heads, d_k),
        "k_SHK": random_tensor(len(keys.tokens), heads, d_k),
        "v_SHV": random_tensor(len(keys.tokens), heads, d_v),
        "queries": queries,
        "keys": keys,
        "spec": rule,
    }


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@st.composite
def transformer_configs(draw: st.DrawFn, **fixed: Any) -> mh.TransformerConfig:
    """Small models of every kind that the config allows, without dropout."""

    def one_of(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    positions = one_of("sinusoid", "learned", "none")
    d_model = one_of(4, 6) if positions == "sinusoid" else one_of(4, 5, 6)
    heads = one_of(1, 2, 3)
    widths = st.integers(1, 4) if d_model % heads else st.none() | st.integers(1, 4)
    ties = one_of("three-way", "two-way", "none")
    apart = ties != "three-way" and draw(st.booleans())
    drawn = {
        "vocab_size": VOCAB_SIZE,
        "source_vocab_size": VOCAB_SIZE + 2 if apart else None,
        "target_vocab_size": VOCAB_SIZE + 1 if apart else None,
        "encoder_layers": one_of(1, 2, 3),
        "decoder_layers": one_of(1, 2, 3),
        "d_model": d_model,
        "d_ff": 7,
        "heads": heads,
        "d_k": draw(widths),
        "d_v": draw(widths),
        "attention": one_of("scaled-dot", "dot", "additive"),
        "window": draw(st.none() | st.integers(1, 6)),
        "positions": positions,
        "max_positions": 14,  # two of the longest sentences: a test puts one behind another
        "activation": one_of("relu", "gelu", "swish"),
        "norm": one_of("post", "pre"),
        "normalization": one_of("layer", "batch"),
        "residuals": draw(st.booleans()),
        "tie_embeddings": ties,
        "output_bias": draw(st.booleans()),
        "dropout": 0.0,
    }
    return mh.TransformerConfig(**{**drawn, **fixed})


@st.composite
def baseline_configs(draw: st.DrawFn, architecture: str) -> mh.ModelConfig:
    """Small models of a kind that the Transformer is compared with, without dropout."""

    def one_of(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    drawn: dict[str, dict[str, Any]] = {
        "recurrent": {
            "cell": one_of("rnn", "gru", "lstm"),
            "attention": one_of("scaled-dot", "dot", "additive", "none"),
            "residuals": draw(st.booleans()),
        },
        "convs2s": {
            "attention": one_of("dot", "scaled-dot"),
            "positions": one_of("sinusoid", "learned", "none"),
            "max_positions": 14,
            "kernel_size": one_of(1, 3, 5),
        },
        "bytenet": {"kernel_size": one_of(1, 3, 5), "dilation": one_of(1, 2, 4)},
    }
    ties = one_of("three-way", "two-way", "none")
    apart = ties != "three-way" and draw(st.booleans())
    depth = one_of(1, 2, 3)
    keys = {
        "architecture": architecture,
        "vocab_size": VOCAB_SIZE,
        "source_vocab_size": VOCAB_SIZE + 2 if apart else None,
        "target_vocab_size": VOCAB_SIZE + 1 if apart else None,
        "encoder_layers": depth,
        "decoder_layers": depth if architecture == "recurrent" else one_of(1, 2, 3),
        "d_model": one_of(4, 6),
        "d_ff": one_of(4, 6),
        "tie_embeddings": ties,
        "output_bias": draw(st.booleans()),
        "dropout": 0.0,
    }
    return mh.ModelConfig.from_mapping({**keys, **drawn[architecture]})


def build_test_model(config: mh.ModelConfig) -> Any:
    """In float64 and at rest, always the same; batch normalization with other than initial statistics."""
    torch.manual_seed(1)
    model = build_model(config).double()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def randomize_weights(model: mh.Transformer) -> None:
    """Weights that matter: none of them 0 or 1, as biases and norms begin, and tokens told apart."""
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
