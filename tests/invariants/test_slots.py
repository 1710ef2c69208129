"""Search in CUDA graphs equals eager search. On a CPU the kernels are interpreted, so everything is small."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.inference import cuda_graph_search, prefill
from manyheads.inference.batching import GroupQueue, RequestWindow, group_in_order
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, is_plain, supports_search
from manyheads.inference.engine import ScoreDetail, decode_all
from manyheads.inference.prefill import SourceBuffer
from manyheads.inference.torch_engine import TorchEngine
from manyheads.ops.topk_triton import topk_logsumexp
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
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
        mh.DecodingConfig(no_repeat_ngram=3),
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
    read: list[int] = []

    def stream() -> Iterator[Request]:
        for length in lengths:
            read.append(length)
            yield Request([5] * length, DecodingConstraints(9))

    return RequestWindow(stream(), size, lambda request: 0), read


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
    assert take_lengths(queue, 9) == [4, 3, 2, 1, 8, 7, 6, 5]  # the older chunk first
    assert len(read) == 8
    for index in (7, 6, 5, 4, 0, 1, 2):  # all but one of the first chunk
        window.finish([index])
    assert take_lengths(queue, 9) == []
    assert not queue.is_exhausted
    window.finish([3])
    assert take_lengths(queue, 3) == [12, 11, 10]
    assert len(read) == 16  # both chunks were finished
    small, read = make_window([4, 4, 4], 1)
    queue = small.open_group(small.next_key(), short_length=64)
    assert take_lengths(queue, 9) == [4]
    assert len(read) == 1


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
