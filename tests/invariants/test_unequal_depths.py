"""Encoder and decoder of different depths: the model, its cost, training, and cached decoding."""

from typing import Any

import numpy as np
import pytest
import torch

import manyheads as mh
from manyheads import checkpoint
from manyheads.config import SubwordConfig
from manyheads.export.marian import layer_tensors
from manyheads.model import build_model, count_parameters
from manyheads.model.static_cache import StaticKVCache
from manyheads.text.subwords import SubwordPair, SubwordTokenizer
from manyheads.train.flops import training_flops
from manyheads.train.loss import chunked_loss

SIZES: dict[str, Any] = {"vocab_size": 30, "d_model": 8, "d_ff": 12, "dropout": 0.0}
DEPTHS = [(3, 1), (1, 3)]
SOURCE, TARGET = mh.Packed.of([[5, 6, 7, 2], [8, 2]]), mh.Packed.of([[1, 9, 10], [1, 11]])


def make_config(architecture: str, encoder_layers: int, decoder_layers: int) -> mh.ModelConfig:
    depths = {"encoder_layers": encoder_layers, "decoder_layers": decoder_layers}
    heads = {"heads": 2} if architecture == "transformer" else {}
    return mh.ModelConfig.from_mapping({"architecture": architecture, **SIZES, **heads, **depths})


@pytest.mark.parametrize("architecture", ["transformer", "convs2s", "bytenet"])
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_cached_step_equals_the_full_forward(architecture: str, depths: tuple[int, int]) -> None:
    torch.manual_seed(1)
    model: Any = build_model(make_config(architecture, *depths)).double().eval()
    assert (len(model.encoder), len(model.decoder)) == depths
    whole = SOURCE.tokens.new_tensor([[1, 9, 10], [1, 11, 12]])
    target = mh.Packed.of(whole.tolist())
    expected = model(SOURCE, target).view(2, 3, -1)
    state = model.start(model.encode(SOURCE))
    for position in range(3):
        logits, state = model.step(whole[:, position], state)
        assert torch.allclose(logits, expected[:, position])


@pytest.mark.parametrize("architecture", ["transformer", "convs2s", "bytenet"])
@pytest.mark.parametrize("depths", DEPTHS)
def test_a_training_step_moves_every_layer(architecture: str, depths: tuple[int, int]) -> None:
    torch.manual_seed(1)
    model: Any = build_model(make_config(architecture, *depths))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    labels = torch.tensor([9, 10, 2, 11, 2])
    loss = chunked_loss(model.hidden(SOURCE, TARGET), model.output, labels, mh.TrainConfig())
    loss.total.backward()
    optimizer.step()
    moved = {
        name.rsplit(".", 1)[0] for name, weight in model.named_parameters() if (weight != before[name]).any()
    }
    for stack, depth in zip(("encoder", "decoder"), depths, strict=True):
        for layer in range(depth):
            assert any(name.startswith(f"{stack}.{layer}.") for name in moved)


def test_layers_of_each_stack_add_up() -> None:
    sizes = {
        depths: count_parameters(make_config("transformer", *depths)) for depths in ((1, 1), (3, 1), (1, 3))
    }
    encoder_layer, decoder_layer = sizes[1, 1]["encoder"], sizes[1, 1]["decoder"]
    assert sizes[3, 1]["total"] - sizes[1, 1]["total"] == 2 * encoder_layer
    assert sizes[1, 3]["total"] - sizes[1, 1]["total"] == 2 * decoder_layer


@pytest.mark.parametrize("architecture", ["transformer", "convs2s", "bytenet"])
def test_training_flops_are_linear_in_both_depths(architecture: str) -> None:
    lengths = np.array([4, 7]), np.array([5, 3])

    def flops(*depths: int) -> int:
        return training_flops(make_config(architecture, *depths), *lengths)

    encoder_layer, decoder_layer = flops(2, 1) - flops(1, 1), flops(1, 2) - flops(1, 1)
    assert encoder_layer > 0
    assert decoder_layer > 0
    assert flops(5, 3) == pytest.approx(flops(1, 1) + 4 * encoder_layer + 2 * decoder_layer, abs=4)


def test_caches_have_the_depth_of_the_decoder() -> None:
    config = mh.TransformerConfig(heads=2, encoder_layers=3, decoder_layers=1, **SIZES)
    cache = StaticKVCache.allocate(config, 2, 2, 5, 9, torch.float32, torch.device("cpu"))
    assert len(cache.past_keys) == len(cache.source_keys) == 1
    model = mh.Transformer(config).eval()
    assert len(model.start(model.encode(SOURCE)).past_keys) == 1


def test_marian_names_the_layers_of_each_stack() -> None:
    names = [tensor.ours for tensor in layer_tensors(2, 1)]
    assert any(name.startswith("encoder.1.") for name in names)
    assert not any(name.startswith("decoder.1.") for name in names)


def test_a_translator_of_unequal_depths_loads_and_searches(tmp_path: Any) -> None:
    lines = [f"I have {number} books." for number in range(60)]
    subwords = SubwordTokenizer.train(lines, SubwordConfig(vocab_size=300))
    config = mh.Config(
        model=mh.TransformerConfig(
            vocab_size=300, d_model=8, d_ff=8, heads=2, encoder_layers=2, decoder_layers=1
        )
    )
    weights = checkpoint.collect_weights(mh.Transformer(config.model))
    languages = {"source": "en", "target": "ko"}
    checkpoint.save(
        tmp_path / "model", weights, SubwordPair(subwords, subwords), config, step=1, languages=languages
    )
    translator = mh.load(tmp_path / "model", device="cpu")
    (best,) = translator.translate(["I have 3 books."], beam=2, max_extra_length=3, min_length=2)
    assert len(best.tokens) >= 2
    (scored,) = translator.score(["I have 3 books."], ["I have"])
    assert scored.log_probability < 0
    maps = translator.attention("I have 3 books.", "I have")
    assert [len(stack) for stack in (maps.trace.encoder, maps.trace.decoder, maps.trace.cross)] == [2, 1, 1]
