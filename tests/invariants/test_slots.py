"""Searching in slots, as a GPU does it, is searching: the kernels here are interpreted, so all is small."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.inference import cuda_graph_search as slots_module
from manyheads.inference import prefill as reading_module
from manyheads.inference.cuda_graph_search import CudaGraphSearch, SearchSize, group_in_order, supports
from manyheads.inference.engine import ScoreDetail
from manyheads.inference.torch_engine import TorchEngine
from manyheads.ops.topk_triton import topk_logsumexp
from manyheads.search.beam import DecodingConstraints, Hypothesis
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
SOURCES += [
    [6, 5, 9, 4, EOS_ID]
]  # 32 tokens in all, so that what fills up the last part needs room beyond them


@pytest.mark.parametrize(
    ("how", "window", "places", "longest", "group"),
    [  # With 2 places some must wait; of 8, the few that are left go on in fewer.
        (mh.DecodingConfig(beam=1), None, 2, 4, 32),  # most sources are read as they are
        (mh.DecodingConfig(beam=1), None, 8, 8, 16),  # not all are encoded at once
        (mh.DecodingConfig(beam=3, nbest=2, alpha=0.6), None, 2, 8, 16),
        (mh.DecodingConfig(beam=3, nbest=2, alpha=0.6), None, 8, 8, 32),
        (mh.DecodingConfig(beam=2, alpha=0.0), 4, 8, 4, 32),
    ],
)
def test_captured_search_equals_eager_search(
    how: mh.DecodingConfig,
    window: int | None,
    places: int,
    longest: int,
    group: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("SHRINK", 2), ("FEWEST_ROWS", 1), ("LOOK_EVERY", 2), ("READ_TOKENS", 8)):
        monkeypatch.setattr(slots_module, name, value)
    monkeypatch.setattr(reading_module, "FILLER_LENGTH", 3)
    monkeypatch.setattr(reading_module, "LONGEST", longest)
    torch.manual_seed(5)
    model = mh.Transformer(replace(SMALL, window=window)).eval()
    randomize_weights(model)
    with torch.no_grad():
        model.output.bias[EOS_ID] = 3.0  # some end before they must
    wishes = [
        DecodingConstraints(max_length=len(source) + 5, min_length=number % 3 * 3)
        for number, source in enumerate(SOURCES)
    ]
    expected = TorchEngine(model)._search(SOURCES, wishes, how)
    size = replace(SearchSize.for_requests(SOURCES, wishes, how, 64), slots=places, source_tokens=group)
    assert sum(map(len, SOURCES)) == 32
    slots = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE)
    with torch.inference_mode():
        found = slots.run(SOURCES, wishes)
        again = slots.run(SOURCES[::-1], wishes[::-1])  # in places that others have left
        unread = slots.run(SOURCES, wishes, token_scores=False)
    for results in (found, again[::-1]):
        for ours, theirs in zip(results, expected, strict=True):
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
            for a, b in zip(ours, theirs, strict=True):
                assert a.score == pytest.approx(b.score, abs=1e-4)
                assert a.token_scores == pytest.approx(b.token_scores, abs=1e-4)
    for ours, theirs in zip(unread, found, strict=True):
        assert [(one.tokens, one.score) for one in ours] == [(one.tokens, one.score) for one in theirs]
        assert [one.log_probability for one in ours] == pytest.approx(
            [one.log_probability for one in theirs], abs=1e-4
        )
        assert not any(one.token_scores for one in ours)
    assert (
        slots.prefill.padded_batches > 0
    ) == slots.prefill.pads_batches  # float32 on a GPU is read as it is
    assert places == 2 or len(slots.steps) > 1
    assert any(len(results[0].tokens) < wish.max_length for results, wish in zip(found, wishes, strict=True))
    assert all(len(results[0].tokens) >= wish.min_length for results, wish in zip(found, wishes, strict=True))


@pytest.mark.parametrize("sources", [[[], []], [[5, EOS_ID], *[[]] * 5], [*[[]] * 5, [5, 6, 7, EOS_ID]]])
def test_more_sentences_than_tokens(sources: list[list[int]]) -> None:
    """Empty ones have no tokens, but each has its place."""
    model, how = mh.Transformer(SMALL).eval(), mh.DecodingConfig(beam=1)
    wishes = [DecodingConstraints(max_length=3)] * len(sources)
    expected = TorchEngine(model)._search(sources, wishes, how)
    size = SearchSize.for_requests(sources, wishes, how, 64)
    with torch.inference_mode():
        found = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE).run(sources, wishes)
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]


def test_other_wishes_are_left_to_the_general_search() -> None:
    model, how = mh.Transformer(SMALL), mh.DecodingConfig()
    assert supports(model, [DecodingConstraints(5)], how)
    for wish in (
        DecodingConstraints(5, prefix=(4,)),
        DecodingConstraints(5, required_phrases=((4,),)),
        DecodingConstraints(5, forbidden_phrases=((4,),)),
    ):
        assert not supports(model, [DecodingConstraints(5), wish], how)
    for other in (
        mh.DecodingConfig(temperature=1.0),
        mh.DecodingConfig(no_repeat_ngram=3),
        mh.DecodingConfig(beam=100),
    ):
        assert not supports(model, [DecodingConstraints(5)], other)
    for config in (replace(SMALL, attention="additive"), replace(SMALL, positions="learned")):
        assert not supports(mh.Transformer(config), [DecodingConstraints(5)], how)


def test_where_memory_is_short_less_waits_and_fewer_are_under_way() -> None:
    base = mh.presets.BASE
    asked = SearchSize(slots=512, beam=4, nbest=1, max_tokens=128, source_tokens=2**17, alpha=0.6)
    assert asked.shrink_to_fit(base, 2, 1e12, 100) == asked
    less = asked.shrink_to_fit(base, 2, asked.memory_bytes(base, 2) * 0.8, 100)
    assert less.slots == asked.slots
    assert less.source_tokens < asked.source_tokens
    little = asked.shrink_to_fit(base, 2, asked.memory_bytes(base, 2) * 0.1, 100)
    assert little.slots < asked.slots
    assert little.memory_bytes(base, 2) <= asked.memory_bytes(base, 2) * 0.1
    nothing = asked.shrink_to_fit(base, 2, 0, 20_000)
    assert (nothing.slots, nothing.source_tokens) == (1, 2**15)  # the longest source must fit


@pytest.mark.parametrize(("words", "count"), [(5, 3), (128, 9), (300, 5), (1000, 17)])
def test_the_best_words_of_rows_and_their_softmax(words: int, count: int) -> None:
    logits = 4 * torch.randn(3, words, device=DEVICE)
    logits[1, words // 2 :] = -torch.inf
    values, found, log_total = topk_logsumexp(logits, min(count, words))
    expected, places = logits.topk(min(count, words), dim=1)
    assert torch.equal(values, expected)
    real = expected.isfinite()
    assert torch.equal(found[real], places[real])
    assert found.max() < words
    torch.testing.assert_close(log_total, logits.logsumexp(1))


def test_groups_hold_no_more_tokens_than_there_is_room_for() -> None:
    sources = [[1] * 3, [1] * 3, [1] * 5, [1], [1] * 9]
    assert list(group_in_order(sources, 8)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(group_in_order([], 8)) == []


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
def test_every_kind_of_model_can_be_rounded(config: mh.ModelConfig) -> None:
    torch.manual_seed(6)
    model = mh.Transformer(config).eval()
    randomize_weights(model)
    engine = TorchEngine(model, DEVICE, "bfloat16")
    for buffer in model.buffers():
        buffer.fill_(3)
    engine.refresh_weights()
    assert all((buffer == 3).all() for buffer in engine.search_model.buffers())
    found = engine.search(SOURCES, [DecodingConstraints(6)] * len(SOURCES), mh.DecodingConfig(beam=2))
    assert all(results for results in found)


def test_empty_sources_are_searched_too() -> None:
    model = mh.Transformer(SMALL).eval()
    assert (
        len(TorchEngine(model).search([[], []], [DecodingConstraints(3)] * 2, mh.DecodingConfig(beam=2))) == 2
    )


@pytest.mark.parametrize("scores", ["none", "total", "tokens"])
def test_token_scores_are_read_where_somebody_asks(
    scores: ScoreDetail, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, how = TorchEngine(mh.Transformer(SMALL)), mh.DecodingConfig(beam=1)
    asked: list[bool] = []

    def search_in_slots(
        sources: list[list[int]],
        wishes: list[DecodingConstraints],
        how: mh.DecodingConfig,
        token_scores: bool,
    ) -> list[list[Hypothesis]]:
        asked.append(token_scores)
        return [[] for _ in sources]

    monkeypatch.setattr(engine, "device", torch.device("cuda"))
    monkeypatch.setattr(engine, "_search_in_slots", search_in_slots)
    engine.search(SOURCES, [DecodingConstraints(5)] * len(SOURCES), how, scores=scores)
    assert asked == [scores == "tokens"]


def test_a_wish_for_each_source() -> None:
    with pytest.raises(mh.RequestError, match="8 sources, but 1 wishes"):
        TorchEngine(mh.Transformer(SMALL)).search(SOURCES, [DecodingConstraints(5)], mh.DecodingConfig())
