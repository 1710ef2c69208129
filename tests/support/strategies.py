"""Random sentences, attention problems and models, for the property tests."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import manyheads as mh
from manyheads.model import build_model
from manyheads.ops.attention_spec import AttentionSpec

VOCAB_SIZE = 11  # of sentences; a drawn model has at least these ids
SEEDS = st.integers(0, 2**16)


@st.composite
def sentences(draw: st.DrawFn, count: int | None = None, min_length: int = 0) -> list[list[int]]:
    """Draw up to five short sentences, some of them empty."""
    size = st.integers(0, 5) if count is None else st.just(count)
    sentence = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=min_length, max_size=7)
    return [draw(sentence) for _ in range(draw(size))]


@st.composite
def sentence_pairs(draw: st.DrawFn, min_length: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Draw sources and as many targets."""
    sources = draw(sentences(min_length=min_length))
    return sources, draw(sentences(count=len(sources), min_length=min_length))


@st.composite
def attention_problems(draw: st.DrawFn) -> dict[str, Any]:
    """Draw arguments of `attend`: self-attention (perhaps causal or windowed), or cross-attention."""
    torch.manual_seed(draw(SEEDS))
    heads, d_k, d_v = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    keys = mh.Packed.of(draw(sentences()))
    is_self_attention = draw(st.booleans())
    queries = keys if is_self_attention else mh.Packed.of(draw(sentences(count=len(keys))))
    score = draw(st.sampled_from(["scaled-dot", "dot", "additive"]))
    rule = AttentionSpec(
        score,
        causal=is_self_attention and draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 8)) if is_self_attention else None,
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
    """Draw small Transformers of every variant that the config allows, without dropout."""

    def choose(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    positions = choose("sinusoid", "learned", "none")
    d_model = choose(4, 6) if positions == "sinusoid" else choose(4, 5, 6)
    heads = choose(1, 2, 3)
    widths = st.integers(1, 4) if d_model % heads else st.none() | st.integers(1, 4)
    tie_embeddings = choose("three-way", "two-way", "none")
    separate = tie_embeddings != "three-way" and draw(st.booleans())
    drawn = {
        "vocab_size": VOCAB_SIZE,
        "source_vocab_size": VOCAB_SIZE + 2 if separate else None,
        "target_vocab_size": VOCAB_SIZE + 1 if separate else None,
        "encoder_layers": choose(1, 2, 3),
        "decoder_layers": choose(1, 2, 3),
        "d_model": d_model,
        "d_ff": 7,
        "heads": heads,
        "d_k": draw(widths),
        "d_v": draw(widths),
        "attention": choose("scaled-dot", "dot", "additive"),
        "window": draw(st.none() | st.integers(1, 6)),
        "positions": positions,
        "max_positions": 14,  # two of the longest sentences: a test concatenates them
        "activation": choose("relu", "gelu", "swish"),
        "norm": choose("post", "pre"),
        "normalization": choose("layer", "batch"),
        "residuals": draw(st.booleans()),
        "tie_embeddings": tie_embeddings,
        "output_bias": draw(st.booleans()),
        "dropout": 0.0,
    }
    return mh.TransformerConfig(**{**drawn, **fixed})


@st.composite
def baseline_configs(draw: st.DrawFn, architecture: str) -> mh.ModelConfig:
    """Draw small baseline models, without dropout."""

    def choose(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    drawn: dict[str, dict[str, Any]] = {
        "recurrent": {
            "cell": choose("rnn", "gru", "lstm"),
            "attention": choose("scaled-dot", "dot", "additive", "none"),
            "residuals": draw(st.booleans()),
        },
        "convs2s": {
            "attention": choose("dot", "scaled-dot"),
            "positions": choose("sinusoid", "learned", "none"),
            "max_positions": 14,
            "kernel_size": choose(1, 3, 5),
        },
        "bytenet": {"kernel_size": choose(1, 3, 5), "dilation": choose(1, 2, 4)},
    }
    tie_embeddings = choose("three-way", "two-way", "none")
    separate = tie_embeddings != "three-way" and draw(st.booleans())
    depth = choose(1, 2, 3)
    keys = {
        "architecture": architecture,
        "vocab_size": VOCAB_SIZE,
        "source_vocab_size": VOCAB_SIZE + 2 if separate else None,
        "target_vocab_size": VOCAB_SIZE + 1 if separate else None,
        "encoder_layers": depth,
        "decoder_layers": depth if architecture == "recurrent" else choose(1, 2, 3),
        "d_model": choose(4, 6),
        "d_ff": choose(4, 6),
        "tie_embeddings": tie_embeddings,
        "output_bias": draw(st.booleans()),
        "dropout": 0.0,
    }
    return mh.ModelConfig.from_mapping({**keys, **drawn[architecture]})


def build_test_model(config: mh.ModelConfig) -> Any:
    """Return a model in float64 and eval mode, always the same; batch norms with random statistics."""
    torch.manual_seed(1)
    model = build_model(config).double()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def randomize_weights(model: mh.Transformer) -> None:
    """Set random weights, so that none is 0 or 1 as initial biases and norms are."""
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
