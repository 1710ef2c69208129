"""Search in CUDA graphs equals eager search. On a CPU the kernels are interpreted, so everything is small."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.errors import RequestError
from manyheads.inference import cuda_graph_search, prefill
from manyheads.inference.batching import GroupQueue, RequestWindow, group_in_order
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, is_plain, supports_search
from manyheads.inference.engine import ScoreDetail, decode_all
from manyheads.inference.prefill import SourceBuffer
from manyheads.inference.torch_engine import TorchEngine
from manyheads.ops.topk_triton import topk_logsumexp
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.request_source import RequestFeed
from support.graph_search import make_requests, run_eager_search, run_graph_search
from support.strategies import randomize_weights

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = mh.TransformerConfig(
    vocab_size=40, layers=1, d_model=8, d_ff=8, heads=1, tie_embeddings="none", output_bias=True
)
SOURCES = [
    [5, 6, 7, EOS_ID],
    [9, EOS_ID],
    [11, 12, 13, 14, 15, 8, EOS_ID],
    [],
    [EOS_ID],
    [20, 21, EOS_ID],
    [8] * 9 + [EOS_ID],
]
SOURCES += [[6, 5, 9, 4, EOS_ID]]  # 32 tokens in all, so that a padded prefill writes beyond the last one


@pytest.mark.parametrize(
    ("config", "window", "slots", "max_length", "source_tokens"),
    [  # With 2 slots some sentences wait; of 8, the last sentences go on in fewer.
        (mh.DecodingConfig(beam=1), None, 2, 4, 32),  # most sources are encoded without padding
        (mh.DecodingConfig(beam=1), None, 8, 8, 16),  # not all are encoded at once
        (mh.DecodingConfig(beam=3, nbest=2, alpha=0.6), None, 2, 8, 16),
        (mh.DecodingConfig(beam=3, nbest=2, alpha=0.6), None, 8, 8, 32),
        (mh.DecodingConfig(beam=2, alpha=0.0), 4, 8, 4, 32),
        (mh.DecodingConfig(beam=2, alpha=0.6, no_repeat_ngram=2), None, 2, 8, 16),
        (mh.DecodingConfig(beam=1, no_repeat_ngram=1), None, 8, 8, 32),
    ],
)
def test_graph_search_equals_eager_search(
    config: mh.DecodingConfig,
    window: int | None,
    slots: int,
    max_length: int,
    source_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("COMPACT_FACTOR", 2),
        ("MIN_ROWS", 1),
        ("POLL_INTERVAL", 2),
        ("PREFILL_TOKENS", 8),
    ):
        monkeypatch.setattr(cuda_graph_search, name, value)
    monkeypatch.setattr(prefill, "FILLER_LENGTH", 3)
    monkeypatch.setattr(prefill, "MAX_LENGTH", max_length)
    torch.manual_seed(5)
    model = mh.Transformer(replace(SMALL, window=window)).eval()
    randomize_weights(model)
    with torch.no_grad():
        model.output.bias[EOS_ID] = 3.0  # some end before they must
    constraints = [
        DecodingConstraints(max_length=len(source) + 5, min_length=number % 3 * 3)
        for number, source in enumerate(SOURCES)
    ]
    expected = run_eager_search(model, SOURCES, constraints, config)
    size = SearchSize.for_requests(make_requests(SOURCES, constraints), config, 64)
    size = replace(size, slots=slots, source_tokens=source_tokens)
    assert sum(map(len, SOURCES)) == 32
    search = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE)
    results = run_graph_search(search, SOURCES, constraints)
    again = run_graph_search(search, SOURCES[::-1], constraints[::-1])  # in slots that others have left
    without_scores = run_graph_search(search, SOURCES, constraints, token_scores=False)
    for hypotheses in (results, again[::-1]):
        for ours, theirs in zip(hypotheses, expected, strict=True):
            assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
            for a, b in zip(ours, theirs, strict=True):
                assert a.score == pytest.approx(b.score, abs=1e-4)
                assert a.token_scores == pytest.approx(b.token_scores, abs=1e-4)
    for ours, theirs in zip(without_scores, results, strict=True):
        assert [(a.tokens, a.score) for a in ours] == [(b.tokens, b.score) for b in theirs]
        assert [a.log_probability for a in ours] == pytest.approx(
            [b.log_probability for b in theirs], abs=1e-4
        )
        assert not any(a.token_scores for a in ours)
    # float32 on a GPU is encoded without padding
    assert (search.prefill.padded_batches > 0) == search.prefill.pads_batches
    assert slots == 2 or len(search.steps) > 1
    pairs = list(zip(results, constraints, strict=True))
    assert any(len(hypotheses[0].tokens) < own.max_length for hypotheses, own in pairs)
    assert all(len(hypotheses[0].tokens) >= own.min_length for hypotheses, own in pairs)


@pytest.mark.parametrize("sources", [[[], []], [[5, EOS_ID], *[[]] * 5], [*[[]] * 5, [5, 6, 7, EOS_ID]]])
def test_there_may_be_more_sentences_than_tokens(sources: list[list[int]]) -> None:
    """Empty sources have no tokens, but each has a slot."""
    model, config = mh.Transformer(SMALL).eval(), mh.DecodingConfig(beam=1)
    constraints = [DecodingConstraints(max_length=3)] * len(sources)
    expected = run_eager_search(model, sources, constraints, config)
    size = SearchSize.for_requests(make_requests(sources, constraints), config, 64)
    search = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE)
    results = run_graph_search(search, sources, constraints)
    assert [own[0].tokens for own in results] == [own[0].tokens for own in expected]


def test_other_constraints_and_models_are_left_to_the_eager_search() -> None:
    model, config = mh.Transformer(SMALL), mh.DecodingConfig()
    assert supports_search(model, config)
    assert is_plain(DecodingConstraints(5, min_length=3))
    for constraints in (
        DecodingConstraints(5, prefix=(4,)),
        DecodingConstraints(5, required_phrases=((4,),)),
        DecodingConstraints(5, forbidden_phrases=((4,),)),
    ):
        assert not is_plain(constraints)
    for other in (
        mh.DecodingConfig(temperature=1.0),
        mh.DecodingConfig(beam=100),
    ):
        assert not supports_search(model, other)
    for model_config in (replace(SMALL, attention="additive"), replace(SMALL, positions="learned")):
        assert not supports_search(mh.Transformer(model_config), config)


def test_a_search_shrinks_where_memory_is_short() -> None:
    base = mh.presets.BASE
    size = SearchSize(slots=512, beam=4, nbest=1, max_tokens=128, source_tokens=2**17, alpha=0.6)
    assert size.shrink_to_fit(base, 2, 1e12, 100) == size
    smaller = size.shrink_to_fit(base, 2, size.memory_bytes(base, 2) * 0.8, 100)
    assert smaller.slots == size.slots
    assert smaller.source_tokens < size.source_tokens
    small = size.shrink_to_fit(base, 2, size.memory_bytes(base, 2) * 0.1, 100)
    assert small.slots < size.slots
    assert small.memory_bytes(base, 2) <= size.memory_bytes(base, 2) * 0.1
    smallest = size.shrink_to_fit(base, 2, 0, 20_000)
    assert (smallest.slots, smallest.source_tokens) == (1, 2**15)  # the longest source must fit


@pytest.mark.parametrize(("vocab_size", "count"), [(5, 3), (128, 9), (300, 5), (1000, 17)])
def test_topk_and_logsumexp_of_rows(vocab_size: int, count: int) -> None:
    logits = 4 * torch.randn(3, vocab_size, device=DEVICE)
    logits[1, vocab_size // 2 :] = -torch.inf
    values, tokens, log_total = topk_logsumexp(logits, min(count, vocab_size))
    expected, indices = logits.topk(min(count, vocab_size), dim=1)
    assert torch.equal(values, expected)
    is_finite = expected.isfinite()
    assert torch.equal(tokens[is_finite], indices[is_finite])
    assert tokens.max() < vocab_size
    torch.testing.assert_close(log_total, logits.logsumexp(1))


# ---- batching


def test_groups_in_order_hold_at_most_so_many_tokens() -> None:
    assert list(group_in_order([3, 3, 5, 1, 9], 8)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(group_in_order([], 8)) == []


def make_window(lengths: list[int], size: int | None) -> tuple[RequestWindow, list[int]]:
    """A window over requests with sources of these lengths, and the lengths that were read so far."""
    requests, read = make_requests_and_record(lengths)
    return RequestWindow(requests, size, lambda request: 0), read


def make_requests_and_record(lengths: list[int]) -> tuple[Iterator[Request], list[int]]:
    read: list[int] = []

    def stream() -> Iterator[Request]:
        for length in lengths:
            read.append(length)
            yield Request([5] * length, DecodingConstraints(9))

    return stream(), read


def take_lengths(queue: GroupQueue, count: int) -> list[int]:
    return [len(queued.request.source) for queued in queue.take(count)]


def test_a_window_hands_out_the_longest_first_and_groups_similar_lengths() -> None:
    window, _ = make_window([3, 200, 90, 100, 64, 5], None)
    queue = window.open_group(window.next_key(), short_length=64)
    assert take_lengths(queue, 9) == [200, 100]  # none is less than half as long
    assert queue.is_exhausted
    queue = window.open_group(window.next_key(), short_length=64)
    assert take_lengths(queue, 9) == [90, 64]
    queue = window.open_group(window.next_key(), short_length=64)
    assert take_lengths(queue, 1) == [5]
    assert not queue.is_exhausted
    assert take_lengths(queue, 9) == [3]
    assert window.next_key() is None


def test_a_window_reads_on_when_its_oldest_chunk_is_finished() -> None:
    window, read = make_window([*range(1, 21)], 8)
    queue = window.open_group(window.next_key(), short_length=64)
    assert take_lengths(queue, 9) == [2, 1, 4, 3, 6, 5, 8, 7]  # chunks of a quarter, the older first
    assert len(read) == 8
    for index in (7, 6, 5, 4, 3, 2, 0):  # all but one of the first chunk
        window.finish([index])
    assert take_lengths(queue, 9) == []
    assert not queue.is_exhausted
    window.finish([1])
    assert take_lengths(queue, 3) == [10, 9, 12]
    assert len(read) == 16  # all chunks were finished
    small, read = make_window([4, 4, 4], 1)
    queue = small.open_group(small.next_key(), short_length=64)
    assert take_lengths(queue, 9) == [4]
    assert len(read) == 1


def test_a_window_reads_few_requests_at_first_and_more_with_time() -> None:
    requests, _ = make_requests_and_record([5] * 200)
    window = RequestWindow(requests, 100, lambda request: 0, min_waiting=4)
    queue, sizes = window.open_group(window.next_key(), short_length=64), []
    while indices := [queued.request_index for queued in queue.take(99)]:
        sizes.append(len(indices))
        window.finish(indices)
    assert sizes == [4, 8, 16, 25, 25, 25, 25, 25, 25, 22]


def test_a_window_holds_a_bounded_number_of_tokens() -> None:
    requests, read = make_requests_and_record([30] * 100)
    window = RequestWindow(requests, 40, lambda request: 0, max_tokens=500)
    assert len(read) == 20, "chunks of 10 are read as long as fewer than 500 tokens are held"
    queue = window.open_group(window.next_key(), short_length=64)
    window.finish([queued.request_index for queued in queue.take(10)])
    assert len(read) == 30


# ---- requests that arrive while others are decoded


def test_a_feed_gives_what_is_there_and_ends_when_it_is_closed() -> None:
    feed, requests = RequestFeed(), [Request([n], DecodingConstraints(9)) for n in range(5)]
    assert feed.take(9) == []
    assert not feed.is_exhausted
    feed.put(requests[:3])
    assert feed.take(2) == requests[:2]
    feed.put(requests[3:])
    feed.close()
    assert not feed.is_exhausted
    assert list(feed) == requests[2:], "engines without live requests iterate over it"
    assert feed.is_exhausted


def test_an_error_of_a_feed_is_raised_after_the_requests_before_it() -> None:
    feed = RequestFeed()
    feed.put([Request([5], DecodingConstraints(9))])
    feed.close(RequestError("unreadable"))
    assert len(feed.take(9)) == 1
    assert not feed.is_exhausted
    with pytest.raises(RequestError, match="unreadable"):
        feed.take(9)
    assert feed.is_exhausted


def test_a_waiting_feed_wakes_for_a_request_and_for_its_end() -> None:
    feed = RequestFeed()
    threading.Timer(0.02, feed.put, [[Request([5], DecodingConstraints(9))]]).start()
    feed.wait()
    assert len(feed.take(1)) == 1
    threading.Timer(0.02, feed.close).start()
    feed.wait()
    assert feed.is_exhausted


@pytest.mark.parametrize("starts_at_once", [False, True])
def test_requests_that_join_a_running_batch_get_the_same_results(starts_at_once: bool) -> None:
    """The feed has one sentence at first; each result brings the next ones."""
    torch.manual_seed(5)
    model = mh.Transformer(SMALL).eval()
    randomize_weights(model)
    config, sources = mh.DecodingConfig(beam=2), [*SOURCES, [7] * 90 + [EOS_ID], [6] * 40 + [EOS_ID]]
    constraints = [DecodingConstraints(6 + 2 * n) for n in range(len(sources))]
    expected = run_eager_search(model, sources, constraints, config)
    requests = make_requests(sources, constraints)
    feed, engine = RequestFeed(starts_at_once=starts_at_once), TorchEngine(model)
    feed.put(requests[:1])
    num_put, results = 1, {}
    for index, hypotheses in engine.decode(feed, config, window=8):
        results[index] = hypotheses
        feed.put(requests[num_put : num_put + 3])
        num_put += 3
        if num_put >= len(requests):
            feed.close()
    assert len(results) == len(requests)
    for index, own in enumerate(expected):
        assert [a.tokens for a in results[index]] == [a.tokens for a in own]


def test_a_queue_that_starts_requests_at_once_takes_no_more_than_there_are_slots() -> None:
    feed = RequestFeed(starts_at_once=True)
    feed.put([Request([5] * n, DecodingConstraints(9)) for n in (3, 200, 70, 4, 90)])
    window = RequestWindow(feed, 16, lambda request: 0)
    queue = window.open_group(window.next_key(), short_length=64)
    assert take_lengths(queue, 2) == [3, 200], "in order of arrival"
    assert len(feed) == 3
    feed.put([Request([5] * n, DecodingConstraints(9)) for n in (6, 7)])
    assert sorted(take_lengths(queue, 2)) == [4, 70]
    assert len(feed) == 3
    assert sorted(take_lengths(queue, 9)) == [6, 7, 90]


def test_a_source_buffer_reuses_what_is_released_and_never_overwrites() -> None:
    buffer = SourceBuffer(18)
    first, second = buffer.allocate(6, 8, 2), buffer.allocate(8, 8, 1)
    assert first is not None
    assert second is not None
    assert (first.start, second.start) == (0, 6)
    assert buffer.allocate(5, 8, 1) is None  # a padded batch would be written beyond the end
    buffer.release(first)
    assert buffer.allocate(5, 6, 1) is None  # another sentence still needs the region
    buffer.release(first)
    assert buffer.allocate(5, 8, 1) is None  # it would be written over the second region
    third = buffer.allocate(5, 6, 1)
    assert third is not None
    assert third.start == 0


def test_a_stream_is_decoded_without_draining_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of the next chunk take free slots while others of the first are still decoded."""
    for name, value in (("POLL_INTERVAL", 1), ("PREFILL_TOKENS", 8)):
        monkeypatch.setattr(cuda_graph_search, name, value)
    monkeypatch.setattr(prefill, "FILLER_LENGTH", 3)
    torch.manual_seed(5)
    model = mh.Transformer(SMALL).eval()
    config, lengths = mh.DecodingConfig(beam=2), [2, 12, 3, 2, 2, 3, 2, 2]
    sources = [[5 + n, 6, EOS_ID] for n in range(len(lengths))]
    constraints = [DecodingConstraints(length, length) for length in lengths]
    expected = run_eager_search(model, sources, constraints, config)
    requests = make_requests(sources, constraints)
    window = RequestWindow(iter(requests), 4, lambda request: 0)
    queue = window.open_group(window.next_key(), short_length=64)
    size = replace(SearchSize.for_requests(requests, config, 64), slots=3, source_tokens=8)
    order = []
    with torch.inference_mode():
        search = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE)
        for finished in search.run(queue):
            for index, hypotheses in finished:
                order.append(index)
                window.finish([index])
                assert [a.tokens for a in hypotheses] == [a.tokens for a in expected[index]]
    assert sorted(order) == list(range(8))
    assert order.index(1) > order.index(3)  # the longest output of the first chunk ends after the next began
    assert window.next_key() is None


# ---- the engine


@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL, norm="pre"),
        replace(SMALL, attention="additive"),
        replace(SMALL, normalization="batch"),
        replace(SMALL, positions="learned", residuals=False),
    ],
    ids=["pre", "additive", "batch", "learned"],
)
def test_every_transformer_can_be_searched_in_bfloat16(config: mh.TransformerConfig) -> None:
    torch.manual_seed(6)
    model = mh.Transformer(config).eval()
    randomize_weights(model)
    engine = TorchEngine(model, DEVICE, "bfloat16")
    for buffer in model.buffers():
        buffer.fill_(3)
    engine.refresh_weights()
    assert all((buffer == 3).all() for buffer in engine.search_model.buffers())
    constraints = [DecodingConstraints(6)] * len(SOURCES)
    assert all(decode_all(engine, SOURCES, constraints, mh.DecodingConfig(beam=2)))


def test_empty_sources_are_decoded_too() -> None:
    engine = TorchEngine(mh.Transformer(SMALL).eval())
    constraints = [DecodingConstraints(3)] * 2
    assert len(decode_all(engine, [[], []], constraints, mh.DecodingConfig(beam=2))) == 2


@pytest.mark.parametrize("scores", ["none", "total", "tokens"])
def test_token_scores_are_read_where_they_are_requested(
    scores: ScoreDetail, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, config = TorchEngine(mh.Transformer(SMALL)), mh.DecodingConfig(beam=1)
    requested: list[bool] = []

    def decode_with_graphs(
        queue: GroupQueue, config: mh.DecodingConfig, token_scores: bool
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        requested.append(token_scores)
        return iter([[(queued.request_index, []) for queued in queue.take(99)]])

    monkeypatch.setattr(engine, "device", torch.device("cuda"))
    monkeypatch.setattr(engine, "_decode_with_graphs", decode_with_graphs)
    decode_all(engine, SOURCES, [DecodingConstraints(5)] * len(SOURCES), config, scores=scores)
    assert requested == [scores == "tokens"]


def test_every_source_needs_constraints() -> None:
    engine = TorchEngine(mh.Transformer(SMALL))
    with pytest.raises(mh.RequestError, match="8 sources, but 1 constraints"):
        decode_all(engine, SOURCES, [DecodingConstraints(5)], mh.DecodingConfig())
