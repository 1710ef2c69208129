"""The peer without padding on a GPU: both kinds of attention compute the loss that dense attention has."""

from dataclasses import replace

import pytest
import torch

import manyheads as mh
from packed_transformer import PackedSystem
from workload import draw_pairs, make_batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*not a leaf:UserWarning"),  # the compiler reads .grad of its inputs
]

CONFIG = replace(mh.presets.SMALL, vocab_size=1000, layers=2, dropout=0.0)


@pytest.mark.parametrize("attention", ["varlen", "flex"])
def test_attention_without_padding_computes_the_loss_of_dense_attention(attention: str) -> None:
    batch = make_batch(draw_pairs(40, vocab_size=1000, seed=0))
    torch.manual_seed(0)
    reference = PackedSystem("dense", CONFIG, "cpu")
    weights = {name: weight.clone() for name, weight in reference.get_masters().items()}
    loss = reference.run(reference.prepare(batch)).item()
    expected = reference.collect_gradients()
    system = PackedSystem(attention, CONFIG, "cuda")
    system.load_weights(weights)
    assert system.run(system.prepare(batch)).item() == pytest.approx(loss, rel=5e-3)
    for name, gradient in system.collect_gradients().items():
        similarity = torch.cosine_similarity(gradient.cpu().flatten(), expected[name].flatten(), dim=0)
        assert similarity > 0.98, name
