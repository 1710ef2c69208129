"""The workload of the benchmarks and its FLOPs."""

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

import manyheads as mh
from manyheads.ops import dispatch
from manyheads.train.loss import reference_loss
from workload import draw_pairs, make_batch, make_sorted_and_random, training_flops


def test_lengths_are_log_normal_and_words_follow_zipf() -> None:
    pairs = draw_pairs(20_000, vocab_size=37_000, seed=3)
    sources = np.array([len(pair.source) for pair in pairs])
    targets = np.array([len(pair.target) for pair in pairs])
    inside = (sources > 3) & (sources < 100)
    assert (sources.min(), sources.max(), targets.min(), targets.max()) == (3, 100, 3, 100)
    assert np.median(sources) == pytest.approx(np.exp(np.log(27) - 0.16), abs=0.6)
    assert np.log(sources[inside]).std() == pytest.approx(0.6, abs=0.05)
    assert np.log(targets / sources)[sources > 20].std() == pytest.approx(0.18, abs=0.02)
    counts = np.bincount(np.concatenate([pair.source for pair in pairs]), minlength=37_000)
    assert counts[:3].sum() == 0  # begin, end and unknown are not words
    assert counts[3] / counts[13] == pytest.approx((10 + 2.7) / 2.7, rel=0.05)


def test_random_batches_contain_the_sentences_of_the_sorted_ones() -> None:
    both = make_sorted_and_random(count=3, target_tokens=300, vocab_size=100, seed=1)
    sentences = [
        sorted(pair for batch in batches for pair in zip(batch.sources, batch.labels, strict=True))
        for batches in both
    ]
    assert sentences[0] == sentences[1]
    for count in (1, 3, 20):
        assert [len(batches) for batches in make_sorted_and_random(count, 200, 100, seed=1)] == [count, count]
    assert all(batch.target_tokens == pytest.approx(300, abs=101) for batch in both[0])
    lengths = [len(source) for source in both[0][1].sources]
    assert max(lengths) - min(lengths) <= 3


def test_flops_match_torch_except_for_the_causal_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch counts the reference path, which computes masked scores too."""
    monkeypatch.setattr(dispatch, "choose_attention", lambda *_: "reference")
    config = mh.TransformerConfig(vocab_size=50, layers=2, d_model=12, d_ff=20, heads=2, d_k=4, d_v=8)
    batch = make_batch(draw_pairs(5, vocab_size=50, seed=0))
    model = mh.Transformer(config)
    source, target, labels = map(mh.Packed.of, (batch.sources, batch.inputs, batch.labels))
    with FlopCounterMode(display=False) as counter:
        reference_loss(model(source, target), labels.tokens, mh.TrainConfig()).total.backward()
    causal_half = sum(len(labels) ** 2 / 2 for labels in batch.labels)
    half = 3 * config.decoder_layers * 2 * config.heads * (4 + 8) * causal_half
    assert training_flops(config, batch) + half == counter.get_total_flops()


def test_token_counts_include_begin_and_end() -> None:
    pairs = draw_pairs(4, vocab_size=50, seed=0)
    batch = make_batch(pairs)
    assert batch.source_tokens == sum(len(pair.source) + 1 for pair in pairs)
    assert batch.target_tokens == sum(len(pair.target) + 1 for pair in pairs)
    assert batch.sources[0][-1] == batch.labels[0][-1] == 2
    assert batch.inputs[0][0] == 1
    assert batch.inputs[0][1:] == batch.labels[0][:-1]
