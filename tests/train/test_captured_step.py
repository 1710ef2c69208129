"""Static batch shapes, the flat gradient, and which runs are captured: all that needs no GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import AugmentationConfig, TrainConfig, TransformerConfig
from manyheads.cuda.static_batch import StaticBatchShape, pack_static_batch, unpack_static_batch
from manyheads.data.batches import Batch
from manyheads.ops import dispatch
from manyheads.ops.cross_entropy import IGNORE_INDEX
from manyheads.train.captured_step import FlatGradient, can_capture
from manyheads.train.trainer import count_full_tokens

SENTENCES = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=0, max_size=12)


def make_batch(lengths: list[tuple[int, int]]) -> Batch:
    source = mh.Packed.of([[3 + n % 5] * length for n, (length, _) in enumerate(lengths)])
    labels = mh.Packed.of([[4 + n % 5] * length for n, (_, length) in enumerate(lengths)])
    inputs = mh.Packed(labels.tokens + 1, labels.offsets, labels.max_length)
    return Batch(source, inputs, labels, np.zeros(0, np.int64), 0, 0)


def shape_for(batch: Batch, full: int) -> StaticBatchShape:
    return StaticBatchShape.for_tokens(len(batch.source.tokens), len(batch.labels.tokens), full)


@given(SENTENCES, st.sampled_from([1, 50, 100, 700, 4000, 25_000]), st.integers(1, 64))
def test_a_static_batch_has_the_batch_and_ignored_filler(
    lengths: list[tuple[int, int]], full: int, filler: int
) -> None:
    packed_batch = make_batch(lengths)
    size = shape_for(packed_batch, full)
    row = pack_static_batch(
        packed_batch.source,
        packed_batch.inputs,
        packed_batch.labels,
        size,
        filler_length=filler,
        ignore_index=IGNORE_INDEX,
    )
    source, inputs, labels = unpack_static_batch(row, size, 256)
    count = len(lengths)
    for packed, real, tokens in (
        (source, packed_batch.source, size.source),
        (inputs, packed_batch.inputs, size.target),
    ):
        assert len(packed.tokens) == tokens == packed.offsets[-1]
        assert torch.equal(packed.tokens[: len(real.tokens)], real.tokens)
        assert torch.equal(packed.offsets[: count + 1], real.offsets)
        assert (packed.lengths >= 0).all()
        assert (packed.lengths[count:] <= filler).all()
        assert packed.offsets.dtype == torch.int32
    assert len(source) == len(inputs) == max(size.source, size.target)
    real_labels = len(packed_batch.labels.tokens)
    assert torch.equal(labels[:real_labels], packed_batch.labels.tokens)
    assert (labels[real_labels:] == IGNORE_INDEX).all()


def test_static_shapes_are_few_and_waste_little() -> None:
    lengths = [[(90, 90)] * count for count in range(133, 278)]
    sizes = {shape_for(make_batch(pairs), 25_000).source for pairs in lengths}
    assert len(sizes) <= 27  # of a full batch's upper half
    for tokens in (24_990, 25_000):
        padded = shape_for(make_batch([(tokens, tokens)]), 25_000)
        assert padded.source == padded.target == 25_088
    assert shape_for(make_batch([]), 25_000).source > 0


def test_oversize_batches_have_few_static_shapes() -> None:
    grown = range(25_100, 31_000, 150)
    sizes = [shape_for(make_batch([(tokens, 25_000)]), 25_000) for tokens in grown]
    assert {size.source for size in sizes} == {28_288, 31_488}
    assert all(size.source >= tokens for size, tokens in zip(sizes, grown, strict=True))
    assert {size.target for size in sizes} == {25_088}


def test_gradients_do_not_overlap_in_the_flat_buffer() -> None:
    model = mh.Transformer(TransformerConfig(vocab_size=30, layers=1, d_model=8, d_ff=12, heads=2))
    flat = FlatGradient(model)
    for number, parameter in enumerate(model.parameters(), 1):
        assert parameter.grad is not None
        parameter.grad.fill_(number)
    assert flat.loss == flat.nll == 0
    for number, parameter in enumerate(model.parameters(), 1):
        assert parameter.grad is not None
        assert (parameter.grad == number).all()
    inside = {name for name in flat.linear_parameters if name.startswith(("encoder", "decoder"))}
    assert inside == set(flat.linear_parameters)
    assert (
        "target_embedding.weight" in flat.other_parameters
        or "source_embedding.weight" in flat.other_parameters
    )
    assert len(flat.linear_parameters) + len(flat.other_parameters) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("model", "train"),
    [
        ({"attention": "additive"}, {}),
        ({"attention_dropout": 0.1}, {}),
        ({"normalization": "batch"}, {}),
        ({"heads": 1, "d_model": 512}, {}),
        ({}, {"precision": "float32"}),
        ({}, {"cuda_graphs": False}),
        ({}, {"compile": True}),
        ({}, {"optimizer": "muon"}),
    ],
)
def test_runs_without_static_shape_kernels_are_not_captured(
    model: dict[str, object], train: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)
    gpu = torch.device("cuda")
    monkeypatch.setattr(dispatch, "has_flash_attention", lambda _: True)
    assert can_capture(mh.Config(), gpu)
    assert not can_capture(mh.Config(), torch.device("cpu"))
    other = mh.Config(model=TransformerConfig(**model), train=TrainConfig(**train))  # type: ignore[arg-type]
    assert not can_capture(other, gpu)
    assert not can_capture(mh.Config(data=mh.DataConfig(max_length=5000)), gpu)
    monkeypatch.setattr(dispatch, "has_flash_attention", lambda _: False)
    assert not can_capture(mh.Config(), gpu)


def test_augmented_batches_are_filled_up_by_a_few_percent_only() -> None:
    def fill(source_tokens: int, config: mh.Config) -> float:
        shape = StaticBatchShape.for_tokens(source_tokens, 25_000, count_full_tokens(config, 1))
        return shape.source / source_tokens

    augmented = mh.Config(augmentation=AugmentationConfig(lower=0.1))
    assert fill(25_300, mh.Config()) > 1.1  # one shape for all that exceed the budget
    assert all(fill(tokens, augmented) < 1.02 for tokens in (24_800, 25_000, 25_300, 26_000, 27_500))
    assert count_full_tokens(mh.Config(), 4) == 6250
    micro = replace(augmented, train=mh.TrainConfig(micro_tokens=500))
    assert count_full_tokens(micro, 1) == 500  # micro-batches are cut to it
