"""The peers of the training benchmark that are written here: their loss and gradient are those of ours."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import jax_system
import manyheads as mh
from manyheads.paper.small_corpus import EASY
from manyheads.train.loss import reference_r_drop_loss
from manyheads.train.objective import Objective
from packed_training import PackedTraining, map_weights, unmap_weights
from packed_transformer import (
    IGNORED,
    BatchShape,
    PackedBatch,
    PackedSystem,
    compute_r_drop_loss_and_gradient,
)
from training_system import TRAIN
from workload import WorkloadBatch, draw_pairs, make_batch

RUNS = Path(__file__).parents[2] / "runs"
CONFIG = replace(mh.presets.TINY, vocab_size=40, layers=2, d_model=16, d_ff=32, heads=2, dropout=0.0)


@pytest.fixture
def batch() -> WorkloadBatch:
    return make_batch(draw_pairs(5, vocab_size=40, seed=0))


@pytest.fixture
def ours(batch: WorkloadBatch) -> tuple[dict[str, Tensor], float, dict[str, Tensor]]:
    """Our weights, the loss per target token, and its gradient, by the names of the peer."""
    torch.manual_seed(0)
    model = mh.Transformer(CONFIG).train()
    for parameter in model.parameters():  # norms and biases too
        parameter.data += 0.1 * torch.randn_like(parameter)
    sides = [mh.Packed.of(side) for side in (batch.sources, batch.inputs, batch.labels)]
    total, _ = Objective(model, TRAIN)(sides[0], sides[1], sides[2].tokens)
    loss = total / batch.target_tokens
    loss.backward()
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    gradients = {name: parameter.grad for name, parameter in model.named_parameters(remove_duplicate=False)}
    assert all(gradient is not None for gradient in gradients.values())
    layers = CONFIG.encoder_layers
    return map_weights(weights, layers), loss.item(), map_weights(gradients, layers)  # type: ignore[arg-type]


def test_the_packed_peer_computes_our_loss_and_gradient(
    batch: WorkloadBatch, ours: tuple[dict[str, Tensor], float, dict[str, Tensor]]
) -> None:
    weights, loss, gradients = ours
    system = PackedSystem("varlen", CONFIG, "cpu")
    system.load_weights(weights)
    assert system.run(system.prepare(batch)).item() == pytest.approx(loss, rel=1e-5)
    peer = system.collect_gradients()
    assert peer.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(peer[name], gradient, rtol=1e-4, atol=1e-6), name


def test_the_packed_peer_computes_our_loss_and_gradient_with_r_drop(batch: WorkloadBatch) -> None:
    """Without dropout the two passes agree; the divergence is checked below."""
    train = replace(TRAIN, r_drop=2.5)
    torch.manual_seed(0)
    model = mh.Transformer(CONFIG).train()
    sides = [mh.Packed.of(side) for side in (batch.sources, batch.inputs, batch.labels)]
    total, _ = Objective(model, train)(sides[0], sides[1], sides[2].tokens)
    (total / batch.target_tokens).backward()
    layers = CONFIG.encoder_layers
    named = dict(model.named_parameters(remove_duplicate=False))
    gradients = map_weights({name: parameter.grad for name, parameter in named.items()}, layers)  # type: ignore[misc]
    system = PackedSystem("flex", CONFIG, "cpu", train)
    system.load_weights(map_weights(model.state_dict(), layers))
    loss = system.run(system.prepare(batch)).item()
    assert loss == pytest.approx(total.item() / batch.target_tokens, rel=1e-5)
    peer = system.collect_gradients()
    for name, gradient in gradients.items():
        assert torch.allclose(peer[name], gradient, rtol=1e-4, atol=1e-6), name


def test_the_r_drop_loss_of_the_peer_is_the_definition() -> None:
    torch.manual_seed(0)
    train = replace(TRAIN, r_drop=2.5)
    logits, labels = torch.randn(2, 5, 7, requires_grad=True), torch.tensor([1, 2, IGNORED, 4, 6])
    real = labels != IGNORED
    expected = reference_r_drop_loss(logits[:, real], labels[real], train).total / 4
    (gradient,) = torch.autograd.grad(expected, [logits])
    loss, own = compute_r_drop_loss_and_gradient(
        logits.detach().flatten(0, 1), labels.repeat(2), torch.tensor(1 / 4), train.label_smoothing, 2.5
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(own.view_as(gradient), gradient, atol=1e-6)


def test_weights_of_the_packed_peer_come_back_as_ours() -> None:
    weights = mh.Transformer(CONFIG).state_dict()
    returned = unmap_weights(map_weights(weights, CONFIG.encoder_layers), CONFIG.encoder_layers)
    assert set(weights) - set(returned) <= {"source_embedding.weight", "target_embedding.weight"}
    assert all(torch.equal(returned[name], weights[name]) for name in returned)


def test_the_packed_peer_trains_on_real_batches_and_translates(tmp_path: Path) -> None:
    store = EASY.load(tmp_path)
    config = mh.Config.load(RUNS / "multi30k.toml").override(
        [
            f'data.folder="{store.folder}"',
            *[
                "data.batch_tokens=500",
                "model.layers=1",
                "model.d_model=32",
                "model.d_ff=64",
                "model.heads=2",
            ],
        ]
    )
    trained = PackedTraining(config, "cpu").train(1.0)
    assert trained.steps > 0
    assert trained.translator.translate("Anna reads.").text is not None


def test_block_tables_hold_the_blocks_that_attention_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every visible pair of tokens lies in a listed block, and every listed block holds a visible pair."""
    import packed_transformer

    monkeypatch.setattr(packed_transformer, "BLOCK", 16)
    batch = make_batch(draw_pairs(40, vocab_size=40, seed=1))
    packed = PackedBatch.of(batch, BatchShape.for_batches([batch]), flex=True)
    sides = [(packed.source, packed.source, False), (packed.target, packed.target, True)]
    sides.append((packed.target, packed.source, False))
    for index, (queries, keys, is_causal) in enumerate(sides):
        visible = packed_transformer.make_mask("dense", queries, keys, is_causal, []).layout.numpy()
        blocks = visible.reshape(len(visible) // 16, 16, -1, 16).any((1, 3))
        counts, indices = (table[0, 0].numpy() for table in packed.block_tables[2 * index :][:2])
        listed = np.zeros_like(blocks)
        for row, (count, columns) in enumerate(zip(counts, indices, strict=True)):
            listed[row, columns[:count]] = True
        assert (listed == blocks).all()


def test_rows_of_packed_sentences_hold_each_sentence_once() -> None:
    batches = [make_batch(draw_pairs(50, vocab_size=1000, seed=seed)) for seed in range(3)]
    arrays = jax_system.pack_steps(batches, length=128)
    assert len({array.shape for array in arrays.values()}) == 1
    assert arrays["labels"].shape[0] == 3
    packed = []
    for names in (("source", "source_ids", "source_positions"), ("labels", "target_ids", "target_positions")):
        tokens, ids, positions = (arrays[name].reshape(-1, 128) for name in names)
        sentences = []
        for row in range(len(tokens)):
            for number in range(1, ids[row].max() + 1):
                chosen = ids[row] == number
                assert positions[row][chosen].tolist() == list(range(chosen.sum()))
                sentences.append(tokens[row][chosen].tolist())
        packed.append(sentences)
    expected = sorted((s, t) for batch in batches for s, t in zip(batch.sources, batch.labels, strict=True))
    assert sorted(zip(*packed, strict=True)) == expected
    assert (arrays["target_ids"] > 0).mean() > 0.85


def test_the_jax_peer_computes_our_loss_and_gradient(
    batch: WorkloadBatch, ours: tuple[dict[str, Tensor], float, dict[str, Tensor]]
) -> None:
    jax = pytest.importorskip("jax", reason="the peer in JAX needs jax, which make setup does not install")
    import jax_transformer

    weights, loss, gradients = ours
    sizes = jax_system.make_sizes(CONFIG)
    arrays = {name: jax.numpy.asarray(array[0]) for name, array in jax_system.pack_steps([batch]).items()}
    peer_loss, peer = jax.value_and_grad(jax_transformer.compute_loss)(
        {name: jax.numpy.asarray(weight.numpy()) for name, weight in weights.items()},
        arrays,
        jax.numpy.zeros((), int),
        sizes,
        jax.numpy.float32,
    )
    assert float(peer_loss) == pytest.approx(loss, rel=1e-5)
    assert peer.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert np.allclose(peer[name], gradient, rtol=1e-3, atol=1e-5), name
