"""Random sentences, attention problems and models, for the property tests."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import manyheads as mh
from manyheads.model.attention import Rule

WORDS = 11  # the vocabulary of every drawn model


@st.composite
def sentences(draw: st.DrawFn, count: int | None = None, shortest: int = 0) -> list[list[int]]:
    """Up to five short sentences, empty ones among them."""
    size = st.integers(0, 5) if count is None else st.just(count)
    sentence = st.lists(st.integers(0, WORDS - 1), min_size=shortest, max_size=7)
    return [draw(sentence) for _ in range(draw(size))]


@st.composite
def pairs(draw: st.DrawFn, shortest: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Sources and as many targets."""
    sources = draw(sentences(shortest=shortest))
    return sources, draw(sentences(count=len(sources), shortest=shortest))


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `attend`: over one text (causal or windowed, perhaps), or from one text to another."""
    heads, d_k, d_v = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    keys = mh.Packed.of(draw(sentences()))
    alone = draw(st.booleans())
    queries = keys if alone else mh.Packed.of(draw(sentences(count=len(keys))))
    score = draw(st.sampled_from(["scaled-dot", "dot", "additive"]))
    rule = Rule(
        score,
        causal=alone and draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 8)) if alone else None,
        energy_HK=random_tensor(heads, d_k) if score == "additive" else None,
    )
    torch.manual_seed(draw(st.integers(0, 2**16)))
    return {
        "q_THK": random_tensor(len(queries.tokens), heads, d_k),
        "k_SHK": random_tensor(len(keys.tokens), heads, d_k),
        "v_SHV": random_tensor(len(keys.tokens), heads, d_v),
        "queries": queries,
        "keys": keys,
        "rule": rule,
    }


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def configs(**fixed: Any) -> st.SearchStrategy[mh.ModelConfig]:
    """Small models of every kind that the config allows, without dropout."""
    choices: dict[str, st.SearchStrategy[Any]] = {
        "vocabulary": st.just(WORDS),
        "layers": st.integers(1, 3),
        "d_model": st.sampled_from([4, 6]),
        "d_ff": st.just(7),
        "heads": st.integers(1, 3),
        "d_k": st.integers(1, 4),
        "d_v": st.integers(1, 4),
        "attention": st.sampled_from(["scaled-dot", "dot", "additive"]),
        "window": st.none() | st.integers(1, 6),
        "positions": st.sampled_from(["sinusoid", "learned", "none"]),
        "activation": st.sampled_from(["relu", "gelu"]),
        "norm": st.sampled_from(["post", "pre"]),
        "normalisation": st.sampled_from(["layer", "batch"]),
        "residuals": st.booleans(),
        "ties": st.sampled_from(["three-way", "two-way", "none"]),
        "dropout": st.just(0.0),
    }
    choices.update({key: st.just(value) for key, value in fixed.items()})
    return st.builds(mh.ModelConfig, **choices)


def model_of(config: mh.ModelConfig) -> mh.Transformer:
    """In float64 and at rest, with statistics of batch normalisation that are not the initial ones."""
    model = mh.Transformer(config).double()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()
