"""Continuous batching in the server: requests that join, fairness, cancellation and errors."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities
from manyheads.search.options import Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.serve.jobs import BatchStats
from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import JobQueue
from manyheads.serve.served_model import ServedModel, name_models
from manyheads.serve.translation_tasks import TranslateTask


@dataclass
class SlotEngine:
    """Decodes a sentence in as many steps as it has tokens; `log` holds what joined at each step."""

    capabilities: Capabilities
    name: str = "scripted"
    objective: str = "scripted"
    num_slots: int = 2
    log: list[list[int]] = field(default_factory=list)
    bad_length: int | None = None  # sources of so many tokens are an error
    on_step: Any = None  # is called before each step with its number

    def decode_batches(
        self, source: RequestSource, config: mh.DecodingConfig, **_: Any
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        active: dict[int, tuple[int, Request]] = {}
        num_taken = 0
        while not source.is_exhausted:
            if self.on_step:
                self.on_step(len(self.log))
            new = source.take(self.num_slots - len(active))
            self.log.append([len(request.source) for request in new])
            for request in new:
                if len(request.source) == self.bad_length:
                    raise RequestError("a bad sentence")
                active[num_taken] = (len(request.source), request)
                num_taken += 1
            done = [index for index, (left, _) in active.items() if left == 1]
            active = {index: (left - 1, request) for index, (left, request) in active.items() if left > 1}
            yield [(index, [Hypothesis([5], [], 0.0, 0.0)]) for index in done]

    def decode(self, requests: Any, config: mh.DecodingConfig, **_: Any) -> Iterator[Any]:
        for index, request in enumerate(requests):
            if len(request.source) == self.bad_length:
                raise RequestError("a bad sentence")
            yield index, [Hypothesis([5], [], 0.0, 0.0)]


@pytest.fixture
def model(translator: mh.Translator) -> ServedModel:
    engine = SlotEngine(replace(translator.engine.capabilities, alignment=False, max_positions=None))
    languages = {"source": "en", "target": "ko"}
    scripted = mh.Translator(engine, translator.subwords, languages)  # type: ignore[arg-type]
    return name_models([scripted])[0]


def run(queue: JobQueue, scenario: Coroutine[Any, Any, None]) -> None:
    async def run_both() -> None:
        worker = asyncio.create_task(queue.run())
        try:
            await asyncio.wait_for(scenario, 20)
        finally:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    asyncio.run(run_both())


def count_tokens(model: ServedModel, text: str) -> int:
    return model.count_tokens(text) + 1


SHORT, LONG = "I go home.", "We read a book at school and I go home today."


def test_a_request_joins_the_running_batch_and_leaves_before_the_others_end(model: ServedModel) -> None:
    batches: list[BatchStats] = []
    queue, task = JobQueue(ServerLimits(), batches.append), TranslateTask(model)
    engine: Any = model.translator.engine
    order: list[str] = []

    async def scenario() -> None:
        loop, joined = asyncio.get_running_loop(), asyncio.Event()

        def on_step(number: int) -> None:
            if number == 2:  # the first request has been decoded for two steps
                asyncio.run_coroutine_threadsafe(submit_second(), loop).result()

        async def submit_second() -> None:
            second = queue.submit(task, [SHORT])
            second.future.add_done_callback(lambda _: order.append("second"))
            while not engine_has(second):
                await asyncio.sleep(0.001)
            joined.set()

        def engine_has(job: Any) -> bool:
            streams = queue.continuous.streams.values()
            return any(own.job is job for stream in streams for own in stream.feed.waiting)

        engine.on_step = on_step
        first = queue.submit(task, [LONG])
        first.future.add_done_callback(lambda _: order.append("first"))
        result = (await first.future)[0]
        assert (result.source, result.sentences) == (LONG, 1)
        assert joined.is_set()

    run(queue, scenario())
    assert order == ["second", "first"]
    joined_at = [number for number, new in enumerate(engine.log) if new]
    assert joined_at == [0, 2]
    assert max(batch.num_jobs for batch in batches) == 2
    assert sum(len(batch.wait_seconds) for batch in batches) == 2


def test_a_long_document_does_not_delay_a_small_request(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits()), TranslateTask(model)
    engine: Any = model.translator.engine

    order: list[str] = []

    def wait_for_both(number: int) -> None:
        """Begin when both requests are in the queue."""
        (stream,) = queue.continuous.streams.values()
        while number == 0 and len(stream.feed.waiting) < 2:
            time.sleep(0.001)

    async def scenario() -> None:
        engine.on_step = wait_for_both
        document, small = queue.submit(task, [LONG] * 30), queue.submit(task, [SHORT])
        document.future.add_done_callback(lambda _: order.append("document"))
        small.future.add_done_callback(lambda _: order.append("small"))
        assert len(await document.future) == 30

    run(queue, scenario())
    assert order == ["small", "document"]
    lengths = [length for new in engine.log for length in new]
    assert lengths.index(count_tokens(model, SHORT)) <= engine.num_slots + 1


def test_a_canceled_request_is_not_decoded_further(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits()), TranslateTask(model)
    engine: Any = model.translator.engine

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def cancel() -> None:
            document.future.cancel()

        engine.on_step = lambda number: (
            number == 3 and asyncio.run_coroutine_threadsafe(cancel(), loop).result()
        )
        document = queue.submit(task, [LONG] * 30)
        with pytest.raises(asyncio.CancelledError):
            await document.future
        engine.on_step = None
        assert (await queue.submit(task, [SHORT]).future)[0].sentences == 1
        assert not queue.waiting

    run(queue, scenario())
    assert sum(map(len, engine.log)) < 20


def test_a_failing_request_does_not_affect_those_it_is_decoded_with(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits()), TranslateTask(model)
    engine: Any = model.translator.engine
    bad = "home " * 7
    engine.bad_length = count_tokens(model, bad)
    assert engine.bad_length not in (count_tokens(model, SHORT), count_tokens(model, LONG))

    async def scenario() -> None:
        jobs = [queue.submit(task, [text]) for text in (LONG, bad, SHORT)]
        results = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["list", "RequestError", "list"]
        assert len(await queue.submit(task, [LONG]).future) == 1, "the server goes on"

    run(queue, scenario())


def test_tokens_in_the_batch_are_limited_and_texts_without_words_need_none(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits(batch_tokens=1)), TranslateTask(model)
    engine: Any = model.translator.engine

    async def scenario() -> None:
        jobs = [queue.submit(task, [text]) for text in (SHORT, "", SHORT)]
        results = [(await job.future)[0] for job in jobs]
        assert [result.sentences for result in results] == [1, 0, 1]

    run(queue, scenario())
    assert max(map(len, engine.log)) == 1


def test_the_torch_engine_gives_joined_requests_the_same_translations(translator: mh.Translator) -> None:
    (served,) = name_models([translator])
    queue = JobQueue(ServerLimits())
    texts = [SHORT, LONG, f"{SHORT} {LONG}", "", "나는 오늘 집에 간다."]

    async def scenario() -> None:
        for nbest, details in ((1, False), (2, True)):
            task = TranslateTask(served, nbest, details)
            assert task.can_join
            jobs = [queue.submit(task, [text]) for text in texts]
            results = [(await job.future)[0] for job in jobs]
            for ours, theirs in zip(results, task.run(texts), strict=True):
                assert ours.text == theirs.text
                assert [a.text for a in ours.alternatives] == [a.text for a in theirs.alternatives]
                assert ours.token_scores == pytest.approx(theirs.token_scores, abs=1e-4)
                assert ours.alignment == theirs.alignment

    run(queue, scenario())


def test_a_sentence_that_lost_text_to_copy_joins_again_in_parts(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits(), lambda stats: None), TranslateTask(model)
    engine: Any = model.translator.engine

    async def scenario() -> None:
        jobs = [queue.submit(task, ["We read https://a.org/x at home.", SHORT]), queue.submit(task, [SHORT])]
        (repaired, whole), _ = [await job.future for job in jobs]
        assert "https://a.org/x" in repaired.text
        assert repaired.notes == ["copied text repaired"]
        assert (repaired.sentences, whole.sentences, whole.notes) == (2, 1, [])

    run(queue, scenario())
    assert sum(map(len, engine.log)) == 5  # three sentences, and two parts of the first
