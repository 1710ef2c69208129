from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

import manyheads as mh
from support.strategies import sentences


@given(sentences())
def test_packing_and_splitting_returns_the_sentences(texts: list[list[int]]) -> None:
    packed = mh.Packed.of(texts)
    assert [part.tolist() for part in packed.split()] == texts
    assert len(packed) == len(texts)


@given(sentences())
def test_lengths_positions_and_sentence_ids(texts: list[list[int]]) -> None:
    packed = mh.Packed.of(texts)
    assert packed.lengths.tolist() == [len(text) for text in texts]
    assert packed.max_length == max(map(len, texts), default=0)
    assert packed.positions.tolist() == [position for text in texts for position in range(len(text))]
    assert packed.sentence_ids.tolist() == [number for number, text in enumerate(texts) for _ in text]


@given(sentences())
def test_lists_and_arrays_make_the_same_batch(texts: list[list[int]]) -> None:
    from_lists = mh.Packed.of(texts)
    from_arrays = mh.Packed.from_arrays(
        from_lists.tokens.numpy().astype(np.uint16), from_lists.offsets.numpy()
    )
    assert torch.equal(from_arrays.tokens, from_lists.tokens)
    assert torch.equal(from_arrays.offsets, from_lists.offsets)
    assert from_arrays.max_length == from_lists.max_length
    assert (from_arrays.tokens.dtype, from_arrays.offsets.dtype) == (torch.int64, torch.int32)


@given(sentences())
def test_unpad_inverts_pad_and_padding_is_zero(texts: list[list[int]]) -> None:
    packed = mh.Packed.of(texts)
    values = torch.rand(len(packed.tokens), 3, dtype=torch.float64, requires_grad=True)
    padded = packed.pad(values)
    assert torch.equal(packed.unpad(padded), values)
    assert (padded != 0).sum() == (values != 0).sum()
    if texts:
        assert torch.autograd.gradcheck(packed.pad, values)
        assert torch.autograd.gradcheck(lambda x: packed.unpad(packed.pad(x) ** 2), values)


@given(sentences())
def test_duplicate_repeats_every_sentence(texts: list[list[int]]) -> None:
    packed = mh.Packed.of(texts)
    twice = packed.duplicate()
    assert [part.tolist() for part in twice.split()] == texts + texts
    assert twice.max_length == packed.max_length


def test_to_a_device_moves_tokens_and_offsets() -> None:
    moved = mh.Packed.of([[1, 2], [3]]).to("meta")
    assert moved.tokens.device.type == moved.offsets.device.type == "meta"
    assert moved.max_length == 2


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 4], [0, 3, 2, 3], [[0, 3]], 3, [0.0, 3.0]])
def test_offsets_that_do_not_divide_the_tokens_are_refused(offsets: Any) -> None:
    with pytest.raises(mh.DataError, match="do not divide 3 tokens"):
        mh.Packed.from_arrays([5, 6, 7], offsets)


@pytest.mark.parametrize("tokens", [[1.7, 2.0, 3.0], [[1, 2, 3]], ["a", "b", "c"]])
def test_tokens_that_are_not_a_row_of_integers_are_refused(tokens: Any) -> None:
    with pytest.raises(mh.DataError, match="one row of integers"):
        mh.Packed.from_arrays(tokens, [0, 3])
    with pytest.raises(mh.DataError, match="one row of integers"):
        mh.Packed.of([[1.7]])  # type: ignore[list-item]


def test_a_batch_owns_its_tokens_even_those_of_a_read_only_array() -> None:
    kept = np.array([5, 6, 7])
    kept.flags.writeable = False
    packed = mh.Packed.from_arrays(kept, np.array([0, 3]))
    packed.tokens[0] = 9
    assert kept.tolist() == [5, 6, 7]


def test_ids_that_no_vocabulary_has_are_refused() -> None:
    with pytest.raises(mh.DataError, match="token ids from -1 to 3: they must lie in 0 to"):
        mh.Packed.of([[3, -1]])
    with pytest.raises(mh.DataError, match=f"token ids from {2**63} to {2**63}"):
        mh.Packed.from_arrays(np.array([2**63], dtype=np.uint64), [0, 1])
