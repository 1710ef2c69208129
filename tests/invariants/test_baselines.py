"""What holds for the Transformer holds for the systems that it is compared with."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import manyheads as mh
from manyheads.config import RecurrentConfig
from manyheads.model import build_model, count_parameters
from manyheads.model.initialization import init_weights
from manyheads.presets import BASELINES, PRESETS
from support.incremental_decoding import check_random_search
from support.strategies import VOCAB_SIZE, baseline_configs, build_test_model, sentence_pairs, sentences

Texts = list[list[int]]
ARCHITECTURES = ["recurrent", "convs2s", "bytenet"]
all_architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)


def small(architecture: str, **changes: Any) -> mh.ModelConfig:
    sizes = {"vocab_size": VOCAB_SIZE, "layers": 2, "d_model": 8, "d_ff": 6, "dropout": 0.0}
    return mh.ModelConfig.from_mapping({"architecture": architecture, **sizes, **changes})


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@all_architectures
@given(data=st.data(), texts=sentence_pairs())
def test_future_tokens_cannot_change_the_past(
    architecture: str, data: st.DataObject, texts: tuple[Texts, Texts]
) -> None:
    model, source = build_test_model(data.draw(baseline_configs(architecture))), mh.Packed.of(texts[0])
    before = texts[1]
    kept = [data.draw(st.integers(0, len(text))) for text in before]
    ends = data.draw(sentences(count=len(before)))
    after = [text[:keep] + end for text, keep, end in zip(before, kept, ends, strict=True)]
    old, new = mh.Packed.of(before), mh.Packed.of(after)
    for a, b, keep in zip(old.split(model(source, old)), new.split(model(source, new)), kept, strict=True):
        close(a[:keep], b[:keep])


@all_architectures
@given(data=st.data(), texts=sentence_pairs(), rng=st.randoms(use_true_random=False))
def test_batch_composition_order_and_max_length_change_nothing(
    architecture: str, data: st.DataObject, texts: tuple[Texts, Texts], rng: random.Random
) -> None:
    model = build_test_model(data.draw(baseline_configs(architecture)))
    source, target = map(mh.Packed.of, texts)
    together = target.split(model(source, target))
    for words, alone, logits in zip(*texts, together, strict=True):
        close(model(mh.Packed.of([words]), mh.Packed.of([alone])), logits)
    order = list(range(len(texts[0])))
    rng.shuffle(order)
    sources, targets = ([side[i] for i in order] for side in texts)
    moved = mh.Packed.of(targets)
    for index, logits in zip(order, moved.split(model(mh.Packed.of(sources), moved)), strict=True):
        close(logits, together[index])
    loose = [replace(side, max_length=side.max_length + 3) for side in (source, target)]
    close(model(*loose), model(source, target))


@all_architectures
@given(data=st.data())
def test_a_cached_step_equals_the_full_forward(architecture: str, data: st.DataObject) -> None:
    """Whatever a search does in between: reorder hypotheses, drop finished sentences, admit waiting ones."""
    check_random_search(build_test_model(data.draw(baseline_configs(architecture))), data)


@all_architectures
def test_a_long_decoding_beside_a_short_source_equals_the_full_forward(architecture: str) -> None:
    """Far beyond what a convolution remembers, and beyond the columns of a source that ends early."""
    model, read = build_test_model(small(architecture, layers=3)), [token % VOCAB_SIZE for token in range(40)]
    sources = [[3], [4, 5, 6, 7, 8] * 4]
    state = model.start(model.encode(mh.Packed.of(sources)))
    logits = []
    for token in read:
        step_logits, state = model.step(torch.tensor([token, token]), state)
        logits.append(step_logits)
    target = mh.Packed.of([read, read])
    expected = torch.stack(target.split(model(mh.Packed.of(sources), target)), 1)
    torch.testing.assert_close(torch.stack(logits), expected, atol=1e-9, rtol=1e-9)


@all_architectures
@given(data=st.data(), texts=sentence_pairs())
def test_a_trace_changes_no_bit_and_holds_the_maps_of_the_architecture(
    architecture: str, data: st.DataObject, texts: tuple[Texts, Texts]
) -> None:
    config = data.draw(baseline_configs(architecture))
    model, trace = build_test_model(config), mh.Trace()
    source, target = map(mh.Packed.of, texts)
    for _ in range(2):  # a trace that is used again holds the latest call
        assert torch.equal(model(source, target, trace=trace), model(source, target))
    layers = {
        "recurrent": isinstance(config, RecurrentConfig) and config.attention != "none",
        "convs2s": config.decoder_layers,
        "bytenet": 0,
    }[architecture]
    shapes = [(1, len(q), len(k)) for q, k in zip(texts[1], texts[0], strict=True)]
    assert [[tuple(weights.shape) for weights in layer] for layer in trace.cross] == [shapes] * layers
    assert trace.encoder == trace.decoder == []


@all_architectures
@pytest.mark.parametrize("texts", [([], []), ([[]], [[]]), ([[], [3]], [[4], []]), ([[]], [[1, 2]])])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_empty_sentences_and_empty_batches_are_legal(
    architecture: str, texts: tuple[Texts, Texts], dropout: float
) -> None:
    model = build_model(small(architecture, dropout=dropout))
    source, target = map(mh.Packed.of, texts)
    logits = model(source, target)
    logits.square().sum().backward()
    assert logits.shape == (len(target.tokens), VOCAB_SIZE)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    state = model.start(model.encode(source), beam=2)
    logits, state = model.step(torch.ones(2 * len(source), dtype=torch.int64), state)
    assert logits.isfinite().all()
    state = state.append(model.encode(mh.Packed.of([[3, 4]])))
    assert model.step(torch.ones(2 * len(state), dtype=torch.int64), state)[0].isfinite().all()


@all_architectures
def test_wrong_calls_are_refused(architecture: str) -> None:
    model = build_test_model(small(architecture))
    memory = model.encode(mh.Packed.of([[3], [4]]))
    with pytest.raises(mh.RequestError, match="0 hypotheses a sentence, but there must be at least 1"):
        model.start(memory, beam=0)
    with pytest.raises(mh.RequestError, match="3 tokens, but the state has 4 rows"):
        model.step(torch.tensor([1, 1, 1]), model.start(memory, beam=2))
    with pytest.raises(mh.RequestError, match="3 rows to reorder, but the state has 4"):
        model.start(memory, beam=2).reorder(torch.tensor([0, 1, 2]))
    with pytest.raises(mh.DataError, match="3 target sentences, but 1 source sentences"):
        model(mh.Packed.of([[3]]), mh.Packed.of([[1], [1], [1]]))
    with pytest.raises(mh.DataError, match=f"token id 40, but the vocabulary has {VOCAB_SIZE}"):
        model(mh.Packed.of([[3, 40]]), mh.Packed.of([[1]]))


@all_architectures
def test_every_weight_is_initialized_counted_and_used(architecture: str) -> None:
    config = small(architecture, output_bias=True)
    model = build_model(config).double()
    for parameter in model.parameters():
        nn.init.constant_(parameter, torch.nan)
    init_weights(model)
    sizes = count_parameters(config)
    assert sizes["total"] == sum(p.numel() for p in model.parameters())
    assert sizes["total"] == sum(size for part, size in sizes.items() if part != "total")
    source, target = mh.Packed.of([[5, 6, 7, 2], [8, 2]]), mh.Packed.of([[1, 9, 10], [1, 3]])
    model.hidden(source, target).square().sum().backward()
    for name, parameter in model.named_parameters():
        if name != "output.bias" and not name.endswith("w_k.bias"):  # which the softmax cancels
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 1e-9, name


@all_architectures
def test_training_and_decoding_under_autocast_follow_full_precision(architecture: str) -> None:
    model = build_model(small(architecture))
    source, tokens = mh.Packed.of([[3, 4, 5], [6]]), [1, 5, 6]
    target = mh.Packed.of([tokens, tokens])
    expected = model(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        full_logits = model(source, target)
        state = model.start(model.encode(source))
        for token in tokens:
            logits, state = model.step(torch.tensor([token, token]), state)
    full_logits.float().sum().backward()
    torch.testing.assert_close(full_logits.float(), expected, atol=0.06, rtol=0.06)
    torch.testing.assert_close(logits.float(), expected[[2, 5]], atol=0.06, rtol=0.06)


@pytest.mark.parametrize("name", ["rnn", "convs2s", "bytenet"])
def test_init_gain_scales_the_weights_of_every_architecture_and_is_1_for_baselines(name: str) -> None:
    config = replace(PRESETS[f"tiny-{name}"].model, vocab_size=200)
    assert config.init_gain == 1
    torch.manual_seed(3)
    whole = build_model(config)
    torch.manual_seed(3)
    half = build_model(replace(config, init_gain=0.5))
    for (key, full), other in zip(whole.named_parameters(), half.parameters(), strict=True):
        is_unscaled = (full.dim() == 1 and "weight_g" not in key) or "energy" in key
        is_unscaled |= key.startswith(("output.", "source_", "target_"))
        torch.testing.assert_close(other, full if is_unscaled else full / 2, msg=key)


@pytest.mark.parametrize("name", ["", *BASELINES["tiny"]])
def test_a_new_model_predicts_at_chance(name: str) -> None:
    """Nor has it made up its mind where to look: losses near log K, attention nearly even.

    With smaller initial weights than Xavier's a Transformer bets that each word follows itself.
    """
    config = replace(PRESETS[f"tiny-{name}" if name else "tiny"].model, vocab_size=200)
    if isinstance(config, mh.TransformerConfig):
        config = replace(config, init_gain=1.0)
    torch.manual_seed(2)
    model, trace = build_model(config).eval(), mh.Trace()
    source, target = (
        mh.Packed.of([torch.randint(3, 200, (14,)).tolist() for _ in range(12)]) for _ in range(2)
    )
    with torch.no_grad():
        logits = model(source, target, trace)
    loss = torch.nn.functional.cross_entropy(logits, torch.randint(3, 200, (len(target.tokens),)))
    assert math.log(200) - 0.2 < loss.item() < math.log(200) + 0.8
    for maps in map(torch.stack, [layer for layer in trace.cross if layer]):
        assert -torch.xlogy(maps, maps).sum(-1).mean() > math.log(14) - 0.4
