"""The peers of the training benchmark that are written here: their loss and gradient are those of ours."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import jax_system
import manyheads as mh
from manyheads.train.objective import Objective
from packed_transformer import BatchShape, PackedBatch, PackedSystem
from training_system import TRAIN
from workload import WorkloadBatch, draw_pairs, make_batch

CONFIG = replace(mh.presets.TINY, vocab_size=40, layers=2, d_model=16, d_ff=32, heads=2, dropout=0.0)


def map_weights(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return our weights, or their gradients, by the names of the packed peer, which stacks some of them."""
    weights = {"embedding": ours["output.weight"]}
    for side, norms in (("encoder", 2), ("decoder", 3)):
        for number in range(CONFIG.encoder_layers):
            layer = f"{side}.{number}."
            sublayers = ["self_attention", "cross_attention", "feed_forward"][3 - norms :]
            sublayers = ["self_attention", *sublayers[1:]]
            for index, sublayer in enumerate(sublayers, 1):
                for part in ("weight", "bias"):
                    weights[f"{layer}norm_{index}.{part}"] = ours[f"{layer}{sublayer}_residual.norm.{part}"]
            for part in ("weight", "bias"):
                own = {
                    name: ours[f"{layer}{name}.{part}"]
                    for name in ("self_attention.w_q", "self_attention.w_k", "self_attention.w_v")
                }
                weights[f"{layer}self_attention.qkv.{part}"] = torch.cat(list(own.values()))
                weights[f"{layer}self_attention.output.{part}"] = ours[f"{layer}self_attention.w_o.{part}"]
                for name in ("w_1", "w_2"):
                    weights[f"{layer}feed_forward.{name}.{part}"] = ours[f"{layer}feed_forward.{name}.{part}"]
                if side == "decoder":
                    cross = f"{layer}cross_attention."
                    weights[f"{cross}query.{part}"] = ours[f"{cross}w_q.{part}"]
                    weights[f"{cross}output.{part}"] = ours[f"{cross}w_o.{part}"]
    for part in ("weight", "bias"):
        parts = [
            ours[f"decoder.{number}.cross_attention.{name}.{part}"]
            for number in range(CONFIG.decoder_layers)
            for name in ("w_k", "w_v")
        ]
        weights[f"keys_values.{part}"] = torch.cat(parts)
    return weights


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
    return map_weights(weights), loss.item(), map_weights(gradients)  # type: ignore[arg-type]


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
