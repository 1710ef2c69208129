"""Each pair once an epoch, whatever the ranks; the rest of an epoch the same wherever it is taken up."""

import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import manyheads as mh
from manyheads.config import BOS_ID, EOS_ID, DataConfig, SubwordConfig
from manyheads.data.batches import Batch, Batches, find_batch_bounds
from manyheads.data.store import Side, Split
from manyheads.data.subword_regularization import concat_ranges
from manyheads.text.subwords import SubwordPair, SubwordTokenizer

WORLDS = (1, 2, 3, 8)


def side(lengths: list[int], first: int = 3) -> Side:
    """Sentences of so many tokens, end included; every token but the end is a number of its own."""
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(first, first + offsets[-1])
    tokens[offsets[1:] - 1] = EOS_ID
    return Side(tokens.astype(np.uint32), offsets.astype(np.int64))


def split_of(lengths: list[tuple[int, int]], parts: list[tuple[str, float, int]] | None = None) -> Split:
    source, target = side([s for s, _ in lengths]), side([t for _, t in lengths], first=10**6)
    return Split(source, target, tuple(parts or [("all", 1.0, len(lengths))]))


def config(tokens: int = 40, max_length: int = 30, **more: float) -> DataConfig:
    return DataConfig(batch_tokens=tokens, max_length=max_length, **more)


LENGTHS = st.lists(st.tuples(st.integers(1, 35), st.integers(1, 35)), min_size=1, max_size=120)


def usable(lengths: list[tuple[int, int]]) -> list[int]:
    return [number for number, pair in enumerate(lengths) if max(pair) <= 30]


@given(LENGTHS, st.integers(0, 5), st.integers(0, 3))
def test_every_pair_is_read_exactly_once_an_epoch_for_any_number_of_ranks(
    lengths: list[tuple[int, int]], seed: int, epoch: int
) -> None:
    if not usable(lengths):
        return
    split = split_of(lengths)
    for world in WORLDS:
        ranks = [Batches(split, config(), seed=seed, rank=rank, world_size=world) for rank in range(world)]
        counts = {rank.count_batches(epoch) for rank in ranks}
        assert len(counts) == 1
        read = [
            pair
            for rank in ranks
            for index in range(rank.count_batches(epoch))
            for pair in rank.get_batch(epoch, index).pairs
        ]
        assert sorted(read) == usable(lengths)
        assert ranks[0].too_long.tolist() == [n for n in range(len(lengths)) if n not in usable(lengths)]


@given(LENGTHS, st.sampled_from(WORLDS), st.data())
def test_resuming_at_any_batch_gives_the_same_rest(
    lengths: list[tuple[int, int]], world: int, data: st.DataObject
) -> None:
    if not usable(lengths):
        return
    split = split_of(lengths)
    rank = data.draw(st.integers(0, world - 1))
    batches = Batches(split, config(), seed=2, rank=rank, world_size=world)
    num_batches = batches.count_batches(0)
    start = data.draw(st.integers(0, num_batches - 1))
    with batches.stream() as stream:
        expected = [next(stream) for _ in range(num_batches + 2)]
    with Batches(split, config(), seed=2, rank=rank, world_size=world).stream(0, start) as stream:
        again = [next(stream) for _ in range(num_batches + 2 - start)]
    assert [is_same(a, b) for a, b in zip(expected[start:], again, strict=True)] == [True] * len(again)


def is_same(batch: Batch, other: Batch) -> bool:
    return (
        (batch.epoch, batch.index) == (other.epoch, other.index)
        and batch.pairs.tolist() == other.pairs.tolist()
        and all(
            torch.equal(getattr(batch, part).tokens, getattr(other, part).tokens)
            and torch.equal(getattr(batch, part).offsets, getattr(other, part).offsets)
            for part in ("source", "inputs", "labels")
        )
    )


@given(LENGTHS)
def test_the_shares_of_all_ranks_are_the_batch_of_one_rank(lengths: list[tuple[int, int]]) -> None:
    if not usable(lengths):
        return
    split = split_of(lengths)
    alone = Batches(split, config(), seed=1)
    for world in WORLDS[1:]:
        for index in range(alone.count_batches(1)):
            shares = [
                Batches(split, config(), seed=1, rank=r, world_size=world).get_batch(1, index)
                for r in range(world)
            ]
            assert sorted(np.concatenate([share.pairs for share in shares])) == sorted(
                alone.get_batch(1, index).pairs
            )


@given(LENGTHS)
def test_no_side_of_a_batch_exceeds_the_budget_and_no_neighbor_would_fit(
    lengths: list[tuple[int, int]],
) -> None:
    if not usable(lengths):
        return
    split = split_of(lengths)
    order = np.array(usable(lengths))
    bounds = find_batch_bounds(split, order, 40)
    sizes = np.array(lengths)[order]
    for start, end in pairwise(bounds):
        assert (sizes[start:end].sum(0) <= 40).all()
        assert end == len(order) or (sizes[start : end + 1].sum(0) > 40).any()


def test_a_batch_holds_source_inputs_and_labels() -> None:
    split = split_of([(3, 2), (2, 4)])
    batch = Batches(split, config()).get_batch(0, 0)
    first, second = batch.pairs.tolist()
    sources = [[3, 4, EOS_ID], [6, EOS_ID]]
    labels = [[1000000, EOS_ID], [1000002, 1000003, 1000004, EOS_ID]]
    assert [part.tolist() for part in batch.source.split()] == [sources[first], sources[second]]
    assert [part.tolist() for part in batch.labels.split()] == [labels[first], labels[second]]
    assert [part.tolist() for part in batch.inputs.split()] == [
        [BOS_ID, *labels[first][:-1]],
        [BOS_ID, *labels[second][:-1]],
    ]
    assert batch.source.tokens.dtype == batch.inputs.tokens.dtype == torch.int64
    assert (batch.source.max_length, batch.inputs.max_length, batch.labels.max_length) == (3, 4, 4)


def test_sentences_of_similar_length_are_together() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(n), int(n) + 1) for n in rng.integers(1, 29, 5000)]
    batches = Batches(split_of(lengths), config(tokens=200))
    spans = []
    for index in range(batches.count_batches(0)):
        sizes = batches.get_batch(0, index).source.lengths
        spans.append(int(sizes.max() - sizes.min()))
    assert np.mean(spans) < 0.3


def test_ranks_have_about_the_same_work() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(a), int(b)) for a, b in rng.integers(1, 30, (5000, 2))]
    ranks = [Batches(split_of(lengths), config(tokens=2000), rank=rank, world_size=4) for rank in range(4)]
    for index in range(ranks[0].count_batches(0)):
        work = [len(rank.get_batch(0, index).source.tokens) for rank in ranks]
        assert max(work) - min(work) <= 60  # a sentence or two
    sums = [
        sum(len(rank.get_batch(0, i).labels.tokens) for i in range(rank.count_batches(0))) for rank in ranks
    ]
    assert max(sums) / min(sums) < 1.05


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    split = split_of([(5, 5)] * 300)
    orders = {
        (seed, epoch): Batches(split, config(), seed=seed).plan(epoch).order.tolist()
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len({tuple(order) for order in orders.values()}) == 4
    late_first = Batches(split, config(), seed=1)
    late_first.plan(1)
    assert late_first.plan(0).order.tolist() == orders[1, 0]


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.5, 3.0])
def test_an_input_is_read_as_often_as_its_weight_says(weight: float) -> None:
    lengths = [(4, 4)] * 200
    batches = Batches(split_of(lengths, [("once", 1.0, 100), ("weighted", weight, 100)]), config(), seed=4)
    counts = np.zeros(200, int)
    for epoch in range(10):
        readings = np.bincount(batches.plan(epoch).order, minlength=200)
        assert (readings[:100] == 1).all()
        assert set(readings[100:]) <= {int(np.floor(weight)), int(np.ceil(weight))}
        assert readings[100:].sum() == pytest.approx(100 * weight, abs=1)
        counts += readings
    assert (counts[100:] == round(10 * weight)).all()


def test_too_long_pairs_are_listed_and_never_truncated() -> None:
    batches = Batches(split_of([(3, 3), (31, 3), (3, 31), (30, 30)]), config())
    assert batches.too_long.tolist() == [1, 2]
    assert sorted(batches.plan(0).order) == [0, 3]
    smaller = Batches(split_of([(3, 3), (20, 3)]), config(tokens=10))
    assert smaller.too_long.tolist() == [1]
    with pytest.raises(mh.DataError, match="none of 1 pairs has at most 30 tokens a side"):
        Batches(split_of([(31, 31)]), config())


def test_with_more_ranks_than_pairs_some_batches_are_empty() -> None:
    shares = [
        Batches(split_of([(3, 3)] * 2), config(), rank=rank, world_size=8).get_batch(0, 0)
        for rank in range(8)
    ]
    assert [len(share.source) for share in shares] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert [len(share.labels.tokens) for share in shares] == [3, 3, 0, 0, 0, 0, 0, 0]


def test_purposes_seeds_and_epochs_have_independent_randomness() -> None:
    split = split_of([(5, 5)] * 50)
    far = [
        Batches(split, config(), seed=seed).plan(epoch).order.tolist() for seed, epoch in ((2**32, 0), (0, 1))
    ]
    assert far[0] != far[1]
    batches = Batches(split, config(), seed=3)
    assert batches._make_rng("order", 1).random() != batches._make_rng("phases", 1).random()


def test_a_batch_out_of_range_is_refused() -> None:
    batches = Batches(split_of([(3, 3)]), config())
    for epoch, index in ((0, 1), (0, -1), (-1, 0)):
        with pytest.raises(mh.DataError, match=f"batch {index} of epoch {epoch}, which has 1 batches"):
            batches.get_batch(epoch, index)
    with pytest.raises(mh.DataError, match="seed -1"):
        Batches(split_of([(3, 3)]), config(), seed=-1)


def test_an_unclosed_stream_is_garbage_collected() -> None:
    before = threading.active_count()
    stream = Batches(split_of([(3, 3)] * 50), config()).stream()
    thread = stream.thread
    next(stream)
    del stream
    thread.join(5)
    assert threading.active_count() == before


def test_a_wrong_rank_is_refused() -> None:
    with pytest.raises(mh.DataError, match="rank 2 of 2"):
        Batches(split_of([(3, 3)]), config(), rank=2, world_size=2)


def test_an_error_in_the_background_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(split_of([(3, 3)]), config())

    def fail(epoch: int, index: int) -> Batch:
        raise mh.DataError("torn")

    monkeypatch.setattr(batches, "get_batch", fail)
    with batches.stream() as stream:
        for _ in range(2):
            with pytest.raises(mh.DataError, match="torn"):
                next(stream)


def test_a_closed_stream_ends_and_leaves_no_thread() -> None:
    before = threading.active_count()
    stream = Batches(split_of([(3, 3)] * 50), config()).stream()
    next(stream)
    stream.close()
    assert threading.active_count() == before
    assert list(stream) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8))
def test_ranges_are_concatenated(spans: list[tuple[int, int]]) -> None:
    starts, sizes = (np.array([span[part] for span in spans], np.int64) for part in (0, 1))
    expected = [number for start, size in spans for number in range(start, start + size)]
    assert concat_ranges(starts, sizes).tolist() == expected


# ---- words split anew


def words(tmp_path: Path) -> tuple[Split, SubwordPair, list[str]]:
    texts = ["나는 오늘 집에 간다.", "너는 어제 학교에 갔다.", "우리는 점심을 먹었다."] * 3
    subwords = SubwordTokenizer.train(texts * 10, SubwordConfig(vocab_size=310))
    pieces = subwords.encode_batch(texts)
    side = Side(pieces.ids.astype(np.uint16), pieces.offsets)
    return Split(side, side, (("all", 1.0, len(texts)),)), SubwordPair(subwords, subwords), texts


@settings(max_examples=5)
@given(seed=st.integers(0, 9))
def test_sampling_changes_segmentations_with_the_epoch_but_never_the_text(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    split, subwords, texts = words(tmp_path_factory.mktemp("words"))
    sampling = config(tokens=1000, max_length=200, subword_regularization=0.5)
    batches = [Batches(split, sampling, seed=seed, subwords=subwords) for _ in range(2)]
    seen = []
    for epoch in (0, 1):
        first, again = (other.get_batch(epoch, 0) for other in batches)
        assert is_same(first, again)
        for part in ("source", "labels"):
            read = [subwords.source.decode(ids.tolist()) for ids in getattr(first, part).split()]
            assert read == [texts[pair] for pair in first.pairs]
        by_pair = dict(zip(first.pairs.tolist(), first.source.split(), strict=True))
        seen.append([by_pair[pair].tolist() for pair in sorted(by_pair)])
        assert first.inputs.tokens[first.inputs.offsets[:-1].long()].tolist() == [BOS_ID] * len(texts)
    assert seen[0] != seen[1]


def test_a_sentence_is_resampled_each_epoch() -> None:
    _, subwords, texts = words(Path())
    pieces = subwords.source.encode_batch(texts[:1])
    side = Side(pieces.ids.astype(np.uint16), pieces.offsets)
    split = Split(side, side, (("one", 1.0, 1),))
    batches = Batches(
        split, config(tokens=1000, max_length=200, subword_regularization=0.5), subwords=subwords
    )
    seen = {tuple(batches.get_batch(epoch, 0).source.tokens.tolist()) for epoch in range(6)}
    assert len(seen) > 2
    assert batches.get_batch(0, 0).source.tokens.tolist() != batches.get_batch(0, 0).labels.tokens.tolist()


def test_sampled_segmentations_do_not_depend_on_ranks_and_keep_the_limit() -> None:
    split, subwords, _ = words(Path())
    sampling = config(tokens=1000, max_length=16, subword_regularization=0.5)

    def read(world: int) -> dict[int, list[int]]:
        ranks = [
            Batches(split, sampling, rank=rank, world_size=world, subwords=subwords) for rank in range(world)
        ]
        batches = [rank.get_batch(0, 0) for rank in ranks]
        return {
            int(pair): tokens.tolist()
            for batch in batches
            for pair, tokens in zip(batch.pairs, batch.source.split(), strict=True)
        }

    assert read(1) == read(3)
    assert max(map(len, read(1).values())) <= 16


def test_sampling_needs_the_subwords(tmp_path: Path) -> None:
    split, _, _ = words(tmp_path)
    with pytest.raises(mh.DataError, match=r"data\.subword_regularization is 0\.1, which needs the subwords"):
        Batches(split, config(subword_regularization=0.1))
