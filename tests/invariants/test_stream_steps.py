"""How many decoding steps a stream takes: slots stay full from the first sentence to the last."""

import random
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.inference import cuda_graph_search, torch_engine
from manyheads.inference.cuda_graph_search import CapturedDecodingStep, CudaGraphSearch, SearchSize
from manyheads.inference.prefill import SourcePrefill
from manyheads.inference.torch_engine import TorchEngine
from manyheads.ops import dispatch
from manyheads.search.options import DecodingConstraints, Request

SLOTS = 64
CONFIG = mh.TransformerConfig(vocab_size=40, layers=1, d_model=8, d_ff=8, heads=1)


def finish_at_max_length(step: CapturedDecodingStep) -> None:
    """A decoding step without a model: every output has its maximum length."""
    beams = step.beams
    beams.lengths.add_(1)
    beams.done.logical_or_(beams.lengths > beams.max_lengths)
    beams.finished_scores.fill_(-1.0)
    beams.finished_lengths.copy_((beams.max_lengths + 1)[:, None])


def make_stream(count: int) -> list[Request]:
    """Requests with lengths as in Europarl: 30 tokens on average, few above 100."""
    chance = random.Random(1)
    lengths = [min(250, int(chance.lognormvariate(3.2, 0.65)) + 1) for _ in range(count)]
    outputs = [max(1, int(length * chance.uniform(0.8, 1.25))) for length in lengths]
    return [
        Request([5] * length + [EOS_ID], DecodingConstraints(output, output))
        for length, output in zip(lengths, outputs, strict=True)
    ]


@pytest.fixture
def count_steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decode requests in a batch of 64 slots, and return how many steps of all slots that took."""
    monkeypatch.setattr(CapturedDecodingStep, "_step", finish_at_max_length)
    monkeypatch.setattr(SourcePrefill, "encode", lambda prefill, sources, start: None)
    monkeypatch.setattr(dispatch, "has_decode_kernels", lambda device: True)
    monkeypatch.setattr(torch_engine, "MAX_GRAPH_SLOTS", SLOTS)
    monkeypatch.setattr(torch_engine, "MIN_WAITING", SLOTS)
    monkeypatch.setattr(cuda_graph_search, "MIN_ROWS", 4)
    monkeypatch.setattr(cuda_graph_search, "PREFILL_TOKENS", 512)

    def count(requests: list[Request], window: int | None) -> float:
        engine = TorchEngine(mh.Transformer(CONFIG).eval(), precision="float32")
        rows: list[int] = []

        def create(size: SearchSize, max_source_length: int) -> CudaGraphSearch:
            search = CudaGraphSearch(engine.model, size, torch.float32, torch.device("cpu"))
            step_of = search._step_of

            def count_rows(num_slots: int) -> CapturedDecodingStep:
                rows.append(4 * num_slots)
                return step_of(num_slots)

            monkeypatch.setattr(search, "_step_of", count_rows)
            return search

        monkeypatch.setattr(engine, "_create_graph_search", create)
        results = list(engine.decode(iter(requests), mh.DecodingConfig(beam=1), scores="none", window=window))
        assert sorted(index for index, _ in results) == list(range(len(requests)))
        return sum(rows) / SLOTS

    return count


def test_a_bounded_window_needs_few_more_steps_than_the_whole_stream(count_steps: Any) -> None:
    requests = make_stream(4000)
    steps, least = count_steps(requests, 1024), count_steps(requests, None)
    num_tokens = sum(request.constraints.max_length for request in requests)
    assert num_tokens / SLOTS < least < 1.35 * num_tokens / SLOTS
    assert steps < 1.1 * least
    assert count_steps(requests, SLOTS) > 1.3 * least, "a window of as many sentences as slots drains them"
