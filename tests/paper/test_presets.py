from dataclasses import asdict

import pytest
import torch

import manyheads as mh
from manyheads.model import build_model, count_parameters
from manyheads.presets import BASE, BASELINES, PRESETS, TINY
from manyheads.train.loss import chunked_loss

COMPARED_AT_BASE = {
    f"base-{name}" for name in BASELINES["base"]
}  # which are counted below; built, they tarry


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in COMPARED_AT_BASE])
def test_every_preset_runs_forward_and_backward(name: str) -> None:
    """At full size, with the loss of its own training."""
    config = PRESETS[name]
    model = build_model(config.model)
    source, target = mh.Packed.of([[5, 6, 7, 2], [8, 2]]), mh.Packed.of([[1, 9, 10], [1, 11]])
    labels = torch.tensor([9, 10, 2, 11, 2])
    loss = chunked_loss(model.hidden(source, target), model.output, labels, config.train)
    loss.total.backward()
    assert loss.total.isfinite()
    for where, parameter in model.named_parameters():
        assert parameter.grad is not None, where
        assert parameter.grad.isfinite().all(), where
        canceled = where.endswith("w_k.bias")  # it moves all scores of a query alike
        if (
            not canceled and getattr(config.model, "experts", None) is None
        ):  # five tokens do not keep every expert busy
            assert parameter.grad.abs().max() > 1e-6, where


DIFFERENCES = {  # from base, as Table 3 prints them
    "base": {},
    "A-h1": {"heads": 1, "d_k": 512, "d_v": 512},
    "A-h4": {"heads": 4, "d_k": 128, "d_v": 128},
    "A-h16": {"heads": 16, "d_k": 32, "d_v": 32},
    "A-h32": {"heads": 32, "d_k": 16, "d_v": 16},
    "B-dk16": {"d_k": 16},
    "B-dk32": {"d_k": 32},
    "C-n2": {"encoder_layers": 2, "decoder_layers": 2},
    "C-n4": {"encoder_layers": 4, "decoder_layers": 4},
    "C-n8": {"encoder_layers": 8, "decoder_layers": 8},
    "C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "C-ff1024": {"d_ff": 1024},
    "C-ff4096": {"d_ff": 4096},
    "D-drop0": {"dropout": 0.0},
    "D-drop2": {"dropout": 0.2},
    "D-smooth0": {"label_smoothing": 0.0},
    "D-smooth2": {"label_smoothing": 0.2},
    "E-learned": {"positions": "learned"},
    "big": {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3, "steps": 300_000},
}


def test_the_rows_differ_from_base_as_in_the_paper() -> None:
    base = {**asdict(mh.TransformerConfig()), **asdict(mh.TrainConfig())}
    rows = {row.name: {**asdict(row.model), **asdict(row.train)} for row in mh.presets.TABLE_3}
    differing = {
        name: {key: value for key, value in keys.items() if value != base[key]} for name, keys in rows.items()
    }
    assert differing == DIFFERENCES


def test_base_has_the_numbers_of_the_paper() -> None:
    base = mh.presets.BASE
    assert (base.encoder_layers, base.d_model, base.d_ff, base.heads, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (base.head_dim_k, base.head_dim_v, base.norm, base.tie_embeddings) == (64, 64, "post", "three-way")


@pytest.mark.parametrize(
    ("scale", "name"), [(scale, name) for scale, baselines in BASELINES.items() for name in baselines]
)
def test_baselines_have_as_many_parameters_as_the_transformer(scale: str, name: str) -> None:
    """Embeddings are the same; the rest is within 2 %. Experts have more, for as many FLOPs."""
    model = {"tiny": TINY, "base": BASE}[scale]
    ours, transformer = (count_parameters(config) for config in (BASELINES[scale][name].model, model))
    assert ours["embeddings_and_output"] == transformer["embeddings_and_output"]
    rest = [counts["total"] - counts["embeddings_and_output"] for counts in (ours, transformer)]
    if name == "experts":
        assert rest[0] > 1.2 * rest[1]
    else:
        assert rest[0] == pytest.approx(rest[1], rel=0.02)
    assert PRESETS[f"{scale}-{name}"] == BASELINES[scale][name]
