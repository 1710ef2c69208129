"""Sentences that are canceled during a search in CUDA graphs leave it; the others are unchanged."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: its kernels cannot be interpreted")

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.cuda.transfer import IntArray
from manyheads.inference import cuda_graph_search, prefill
from manyheads.inference.cuda_graph_search import CudaGraphSearch, PendingResults, SearchSize
from manyheads.inference.prefill import PrefillQueue, SourcePrefill
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.scheduler import EMPTY, ListQueue, RequestQueue, SlotTable
from support.graph_search import make_requests, run_eager_search
from support.strategies import randomize_weights

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONFIG = mh.DecodingConfig(beam=2)
SMALL = mh.TransformerConfig(
    vocab_size=40, layers=1, d_model=8, d_ff=8, heads=1, tie_embeddings="none", output_bias=True
)


class CancelingQueue(ListQueue):
    """Cancels one sentence of each state as soon as there is one."""

    sources: PrefillQueue

    def __init__(self, requests: Sequence[Request], starts_at_once: bool) -> None:
        super().__init__(requests)
        self.starts_at_once = starts_at_once
        self.canceled: dict[str, int] = {}
        self.table = SlotTable(1)
        self.pending: list[int] = []

    def take_canceled(self) -> list[int]:
        indices = {
            "waiting": [queued.request_index for queued in self.waiting],
            "staged": [queued.request_index for queued in self.sources.staged],
            "encoded": [queued.request_index for queued, _ in self.sources.encoded],
            "active": self.table.occupants[self.table.occupants != EMPTY].tolist(),
            "pending": self.pending,
        }
        new = {
            state: own[-1]
            for state, own in indices.items()
            if own and state not in self.canceled and own[-1] not in self.canceled.values()
        }
        self.canceled |= new
        return list(new.values())


def observe_search(queue: CancelingQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the queue see the slots, the sources and the results that a search works with."""

    def create_table(num_slots: int) -> SlotTable:
        queue.table = SlotTable(num_slots)
        return queue.table

    def create_sources(encoder: SourcePrefill, requests: RequestQueue, capacity: int) -> PrefillQueue:
        queue.sources = PrefillQueue(encoder, requests, capacity)
        return queue.sources

    collect = CudaGraphSearch._collect

    def collect_and_note(
        self: CudaGraphSearch, slots: IntArray, indices: IntArray, token_scores: bool
    ) -> PendingResults:
        queue.pending = indices.tolist()
        return collect(self, slots, indices, token_scores)

    monkeypatch.setattr(cuda_graph_search, "SlotTable", create_table)
    monkeypatch.setattr(cuda_graph_search, "PrefillQueue", create_sources)
    monkeypatch.setattr(CudaGraphSearch, "_collect", collect_and_note)
    monkeypatch.setattr(prefill, "STAGED_REQUESTS", 3)
    monkeypatch.setattr(prefill, "FILLER_LENGTH", 3)
    for name, value in (("COMPACT_FACTOR", 2), ("MIN_ROWS", 1), ("POLL_INTERVAL", 1), ("PREFILL_TOKENS", 8)):
        monkeypatch.setattr(cuda_graph_search, name, value)


@pytest.mark.parametrize(
    ("slots", "starts_at_once", "states"),
    [
        (2, False, {"waiting", "staged", "encoded", "active", "pending"}),
        (4, True, {"waiting", "staged", "active", "pending"}),  # what has no slot is not encoded
    ],
)
def test_canceled_sentences_leave_the_search_and_the_others_are_unchanged(
    slots: int, starts_at_once: bool, states: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    model = mh.Transformer(SMALL).eval()
    randomize_weights(model)
    sources = [[*range(5 + n, 6 + n + n % 3), EOS_ID] for n in range(16)]
    lengths = [3 + 5 * n % 7 for n in range(len(sources))]
    constraints = [DecodingConstraints(length, length) for length in lengths]
    expected = run_eager_search(model, sources, constraints, CONFIG)
    requests = make_requests(sources, constraints)
    queue = CancelingQueue(requests, starts_at_once)
    observe_search(queue, monkeypatch)
    size = replace(SearchSize.for_requests(requests, CONFIG, 64), slots=slots, source_tokens=16)
    results: dict[int, list[Hypothesis]] = {}
    with torch.inference_mode():
        search = CudaGraphSearch(model.to(DEVICE), size, torch.float32, DEVICE)
        for finished in search.run(queue):
            assert not results.keys() & dict(finished).keys()
            results |= finished
    assert queue.canceled.keys() == states
    assert sorted([*results, *queue.canceled.values()]) == list(range(len(sources)))
    for index, hypotheses in results.items():
        assert [own.tokens for own in hypotheses] == [own.tokens for own in expected[index]]
    assert np.array_equal(queue.table.occupants, np.full(slots, EMPTY))
    assert queue.sources.regions == {}
    assert queue.sources.buffer.regions == []


def test_sentences_that_come_after_few_slots_were_computed_are_compacted() -> None:
    """The last sentences of a stream may fill slots that a step did not compute for a while."""
    table = SlotTable(64)
    table.occupants[:3] = [1, 2, 3]
    table.fit(factor=4, min_slots=2)
    assert table.num_active == 4
    table.occupants[3:43] = range(4, 44)
    old, new = table.compact(factor=4, min_slots=2)
    assert table.num_active == 64
    assert not len(old), "all that is there fits nowhere else"
    assert not len(new)
    table.release(np.arange(0, 35))
    old, new = table.compact(factor=4, min_slots=2)
    assert table.num_active == 16
    assert old.tolist() == [*range(35, 43)]
    assert new.tolist() == [*range(8)]
    assert table.occupants[:8].tolist() == [*range(36, 44)]
    assert (table.occupants[8:] == EMPTY).all()
