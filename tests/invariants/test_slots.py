"""Searching in slots, as a GPU does it, is searching: the kernels here are interpreted, so all is small."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.config import END
from manyheads.inference import cuda_graph_search as slots_module
from manyheads.inference import prefill as reading_module
from manyheads.inference.cuda_graph_search import SearchSize, SlotSearch, can_serve, groups_of
from manyheads.inference.engine import Scores
from manyheads.inference.torch_engine import TorchEngine
from manyheads.ops.topk_triton import best_words
from manyheads.search.beam import Hypothesis, DecodingConstraints
from support.draw import stir

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = mh.ModelConfig(vocabulary=40, layers=1, d_model=8, d_ff=8, heads=1, ties="none", output_bias=True)
SOURCES = [[5, 6, 7, END], [9, END], [11, 12, 13, 14, 15, 8, END], [], [END], [20, 21, END], [8] * 9 + [END]]
SOURCES += [[6, 5, 9, 4, END]]  # 32 tokens in all, so that what fills up the last part needs room beyond them


@pytest.mark.parametrize(
    ("how", "window", "places", "longest", "group"),
    [  # With 2 places some must wait; of 8, the few that are left go on in fewer.
        (mh.SearchConfig(beam=1), None, 2, 4, 32),  # most sources are read as they are
        (mh.SearchConfig(beam=1), None, 8, 8, 16),  # not all are encoded at once
        (mh.SearchConfig(beam=3, nbest=2, alpha=0.6), None, 2, 8, 16),
        (mh.SearchConfig(beam=3, nbest=2, alpha=0.6), None, 8, 8, 32),
        (mh.SearchConfig(beam=2, alpha=0.0), 4, 8, 4, 32),
    ],
)
def test_searching_in_slots_is_searching(
    how: mh.SearchConfig,
    window: int | None,
    places: int,
    longest: int,
    group: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("SHRINK", 2), ("FEWEST_ROWS", 1), ("LOOK_EVERY", 2), ("READ_TOKENS", 8)):
        monkeypatch.setattr(slots_module, name, value)
    monkeypatch.setattr(reading_module, "FILLER", 3)
    monkeypatch.setattr(reading_module, "LONGEST", longest)
    torch.manual_seed(5)
    model = mh.Transformer(replace(SMALL, window=window)).eval()
    stir(model)
    with torch.no_grad():
        model.output.bias[END] = 3.0  # some end before they must
    wishes = [DecodingConstraints(limit=len(source) + 5, least=number % 3 * 3) for number, source in enumerate(SOURCES)]
    expected = TorchEngine(model)._search(SOURCES, wishes, how)
    size = replace(SearchSize.of(SOURCES, wishes, how, 64), places=places, source_tokens=group)
    assert sum(map(len, SOURCES)) == 32
    slots = SlotSearch(model.to(DEVICE), size, torch.float32, DEVICE)
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
        assert [one.total for one in ours] == pytest.approx([one.total for one in theirs], abs=1e-4)
        assert not any(one.token_scores for one in ours)
    assert (slots.reading.filled > 0) == slots.reading.fills  # float32 on a GPU is read as it is
    assert places == 2 or len(slots.steps) > 1
    assert any(len(results[0].tokens) < wish.limit for results, wish in zip(found, wishes, strict=True))
    assert all(len(results[0].tokens) >= wish.least for results, wish in zip(found, wishes, strict=True))


@pytest.mark.parametrize("sources", [[[], []], [[5, END], *[[]] * 5], [*[[]] * 5, [5, 6, 7, END]]])
def test_more_sentences_than_tokens(sources: list[list[int]]) -> None:
    """Empty ones have no tokens, but each has its place."""
    model, how = mh.Transformer(SMALL).eval(), mh.SearchConfig(beam=1)
    wishes = [DecodingConstraints(limit=3)] * len(sources)
    expected = TorchEngine(model)._search(sources, wishes, how)
    size = SearchSize.of(sources, wishes, how, 64)
    with torch.inference_mode():
        found = SlotSearch(model.to(DEVICE), size, torch.float32, DEVICE).run(sources, wishes)
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]


def test_other_wishes_are_left_to_the_general_search() -> None:
    model, how = mh.Transformer(SMALL), mh.SearchConfig()
    assert can_serve(model, [DecodingConstraints(5)], how)
    for wish in (DecodingConstraints(5, prefix=(4,)), DecodingConstraints(5, required=((4,),)), DecodingConstraints(5, forbidden=((4,),))):
        assert not can_serve(model, [DecodingConstraints(5), wish], how)
    for other in (
        mh.SearchConfig(temperature=1.0),
        mh.SearchConfig(no_repeat=3),
        mh.SearchConfig(beam=100),
    ):
        assert not can_serve(model, [DecodingConstraints(5)], other)
    for config in (replace(SMALL, attention="additive"), replace(SMALL, positions="learned")):
        assert not can_serve(mh.Transformer(config), [DecodingConstraints(5)], how)


def test_where_memory_is_short_less_waits_and_fewer_are_under_way() -> None:
    base = mh.presets.BASE
    asked = SearchSize(places=512, width=4, results=1, room=128, source_tokens=2**17, alpha=0.6)
    assert asked.that_fits(base, 2, 1e12, 100) == asked
    less = asked.that_fits(base, 2, asked.bytes(base, 2) * 0.8, 100)
    assert less.places == asked.places
    assert less.source_tokens < asked.source_tokens
    little = asked.that_fits(base, 2, asked.bytes(base, 2) * 0.1, 100)
    assert little.places < asked.places
    assert little.bytes(base, 2) <= asked.bytes(base, 2) * 0.1
    nothing = asked.that_fits(base, 2, 0, 20_000)
    assert (nothing.places, nothing.source_tokens) == (1, 2**15)  # the longest source must fit


@pytest.mark.parametrize(("words", "count"), [(5, 3), (128, 9), (300, 5), (1000, 17)])
def test_the_best_words_of_rows_and_their_softmax(words: int, count: int) -> None:
    logits = 4 * torch.randn(3, words, device=DEVICE)
    logits[1, words // 2 :] = -torch.inf
    values, found, log_total = best_words(logits, min(count, words))
    expected, places = logits.topk(min(count, words), dim=1)
    assert torch.equal(values, expected)
    real = expected.isfinite()
    assert torch.equal(found[real], places[real])
    assert found.max() < words
    torch.testing.assert_close(log_total, logits.logsumexp(1))


def test_groups_hold_no_more_tokens_than_there_is_room_for() -> None:
    sources = [[1] * 3, [1] * 3, [1] * 5, [1], [1] * 9]
    assert list(groups_of(sources, 8)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(groups_of([], 8)) == []


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
    stir(model)
    engine = TorchEngine(model, DEVICE, "bfloat16")
    for buffer in model.buffers():
        buffer.fill_(3)
    engine.refresh()
    assert all((buffer == 3).all() for buffer in engine.searcher.buffers())
    found = engine.search(SOURCES, [DecodingConstraints(6)] * len(SOURCES), mh.SearchConfig(beam=2))
    assert all(results for results in found)


def test_empty_sources_are_searched_too() -> None:
    model = mh.Transformer(SMALL).eval()
    assert len(TorchEngine(model).search([[], []], [DecodingConstraints(3)] * 2, mh.SearchConfig(beam=2))) == 2


@pytest.mark.parametrize("scores", ["none", "total", "tokens"])
def test_token_scores_are_read_where_somebody_asks(scores: Scores, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, how = TorchEngine(mh.Transformer(SMALL)), mh.SearchConfig(beam=1)
    asked: list[bool] = []

    def search_in_slots(
        sources: list[list[int]], wishes: list[DecodingConstraints], how: mh.SearchConfig, token_scores: bool
    ) -> list[list[Hypothesis]]:
        asked.append(token_scores)
        return [[] for _ in sources]

    monkeypatch.setattr(engine, "device", torch.device("cuda"))
    monkeypatch.setattr(engine, "_search_in_slots", search_in_slots)
    engine.search(SOURCES, [DecodingConstraints(5)] * len(SOURCES), how, scores=scores)
    assert asked == [scores == "tokens"]


def test_a_wish_for_each_source() -> None:
    with pytest.raises(mh.RequestError, match="8 sources, but 1 wishes"):
        TorchEngine(mh.Transformer(SMALL)).search(SOURCES, [DecodingConstraints(5)], mh.SearchConfig())
