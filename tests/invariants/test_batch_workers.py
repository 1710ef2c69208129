"""Batches of a CPU are decoded by several threads, with the results of one."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import manyheads as mh
from manyheads.config import EOS_ID
from manyheads.inference import torch_engine
from manyheads.inference.torch_engine import TorchEngine
from manyheads.search.options import DecodingConstraints, Hypothesis, Request

CONFIG = mh.TransformerConfig(vocab_size=40, layers=1, d_model=16, d_ff=16, heads=2, dropout=0.0)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchEngine]:
    """An engine in a process with two threads, and batches of few rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(1)
    monkeypatch.setattr(torch_engine, "MAX_ROWS", 24)
    yield TorchEngine(mh.Transformer(CONFIG).double())
    torch.set_num_threads(before)


def make_requests(count: int) -> list[Request]:
    chance = random.Random(1)
    lengths = [chance.randint(1, 12) for _ in range(count)]
    return [
        Request([chance.randint(4, 39) for _ in range(length)] + [EOS_ID], DecodingConstraints(length + 3))
        for length in lengths
    ]


def decode(engine: TorchEngine, config: mh.DecodingConfig) -> dict[int, list[Hypothesis]]:
    return dict(engine.decode(iter(make_requests(100)), config, window=64))


@pytest.mark.parametrize("config", [{"beam": 1}, {"beam": 3, "nbest": 2}, {"temperature": 0.8}])
def test_several_threads_find_what_a_single_thread_finds(
    engine: TorchEngine, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    step = engine.search_model.step

    def record(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        assert torch.get_num_threads() == 1
        return step(*arguments)

    monkeypatch.setattr(engine.search_model, "step", record)
    results = decode(engine, mh.DecodingConfig(**config))
    assert len(threads) == 2
    assert torch.get_num_threads() == 2, "the setting of the process comes back"
    monkeypatch.setattr(engine.search_model, "step", step)
    monkeypatch.setattr(torch_engine, "MAX_WORKERS", 1)
    expected = decode(engine, mh.DecodingConfig(**config))
    assert sorted(results) == sorted(expected) == list(range(100))
    for index, hypotheses in expected.items():
        assert [own.tokens for own in results[index]] == [own.tokens for own in hypotheses]
        assert [own.score for own in results[index]] == pytest.approx([own.score for own in hypotheses])


def test_the_threads_end_when_nobody_reads_the_results(engine: TorchEngine) -> None:
    results = engine.decode(iter(make_requests(100)), mh.DecodingConfig(beam=2), window=64)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("manyheads decoder")]
    assert torch.get_num_threads() == 2


def test_the_caller_gets_the_error_of_a_thread(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise mh.RequestError("no step today")

    monkeypatch.setattr(engine.search_model, "step", fail)
    with pytest.raises(mh.RequestError, match="no step today"):
        decode(engine, mh.DecodingConfig(beam=2))
    assert torch.get_num_threads() == 2
