"""Continuous batching in the server: requests that join, fairness, cancellation and errors."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

import manyheads as mh
from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities
from manyheads.pipeline.assembly import ALIGNED_TOKENS, Assembler
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.serve.decoding_scheduler import DecodingScheduler, Stream, StreamKey
from manyheads.serve.fair_feed import FairFeed, JoiningJob
from manyheads.serve.jobs import BatchStats, Job
from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import JobQueue
from manyheads.serve.served_model import ServedModel, name_models
from manyheads.serve.translation_tasks import TranslateTask
from manyheads.text.term_matching import Glossary


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


def scheduler_of(queue: JobQueue) -> DecodingScheduler:
    assert isinstance(queue.continuous.scheduler, DecodingScheduler)
    return queue.continuous.scheduler


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
            streams = scheduler_of(queue).streams.values()
            return any(stream.feed.has_waiting(job) for stream in streams)

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
        (stream,) = scheduler_of(queue).streams.values()
        while number == 0 and stream.feed.num_waiting < 2:
            time.sleep(0.001)

    async def scenario() -> None:
        engine.on_step = wait_for_both
        document, small = queue.submit(task, [LONG] * 20), queue.submit(task, [SHORT])
        document.future.add_done_callback(lambda _: order.append("document"))
        small.future.add_done_callback(lambda _: order.append("small"))
        assert len(await document.future) == 20

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
            for ours, theirs in zip(results, task.run(texts, lambda: None), strict=True):
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


def test_sentences_that_end_in_the_same_step_are_processed_together(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, task = JobQueue(ServerLimits()), TranslateTask(model)
    engine: Any = model.translator.engine
    engine.num_slots = 8
    counts: list[int] = []
    process_decoded = Assembler.process_decoded

    def count(assembler: Assembler, sentences: list[SentenceJob]) -> None:
        counts.append(len(sentences))
        process_decoded(assembler, sentences)
        assert all(sentence.outputs is not None for sentence in sentences)

    monkeypatch.setattr(Assembler, "process_decoded", count)

    def wait_for_all(number: int) -> None:
        (stream,) = scheduler_of(queue).streams.values()
        while number == 0 and stream.feed.num_waiting < 4:
            time.sleep(0.001)

    async def scenario() -> None:
        engine.on_step = wait_for_all
        jobs = [queue.submit(task, [SHORT]) for _ in range(4)]
        results = [(await job.future)[0] for job in jobs]
        assert [result.sentences for result in results] == [1] * 4

    run(queue, scenario())
    assert counts == [4]


# ---- large requests


def test_a_canceled_request_leaves_the_batch_between_two_steps(translator: mh.Translator) -> None:
    """A sentence of the real engine that would take dozens of steps is gone after the next one."""
    (served,) = name_models([translator])
    queue, task = JobQueue(ServerLimits()), TranslateTask(served)
    model: Any = translator.engine.model  # type: ignore[attr-defined]
    num_rows: list[int] = []
    step = model.step

    def count_rows(tokens: Any, state: Any) -> Any:
        num_rows.append(len(tokens))
        time.sleep(0.01)
        return step(tokens, state)

    async def scenario() -> None:
        job = queue.submit(task, [LONG])
        while len(num_rows) < 3:
            await asyncio.sleep(0.001)
        job.future.cancel()
        (stream,) = scheduler_of(queue).streams.values()
        while stream.feed.active or scheduler_of(queue).is_running:
            await asyncio.sleep(0.001)

    model.step = count_rows
    try:
        run(queue, scenario())
    finally:
        del model.step
    assert 3 <= len(num_rows) <= 6


def test_steps_of_a_large_request_do_not_delay_a_small_one(model: ServedModel) -> None:
    queue, task = JobQueue(ServerLimits()), TranslateTask(model)
    engine: Any = model.translator.engine
    engine.num_slots = 64
    order: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def on_step(number: int) -> None:
            time.sleep(0.005)
            if number == 2:
                loop.call_soon_threadsafe(submit_small)

        def submit_small() -> None:
            queue.submit(task, [SHORT]).future.add_done_callback(lambda _: order.append("small"))

        engine.on_step = on_step
        large = queue.submit(task, [LONG * 2] * 60)
        large.future.add_done_callback(lambda _: order.append("large"))
        assert len(await large.future) == 60

    run(queue, scenario())
    assert order == ["small", "large"]
    assert [key.is_large for key in scheduler_of(queue).streams] == [True, False]
    small = [number for number, new in enumerate(engine.log) if new == [count_tokens(model, SHORT)]]
    assert small[0] < len(engine.log) // 2, "its first step comes soon"


class AligningEngine(SlotEngine):
    """Aligns every source with all its tokens; a call takes as long as it has sources."""

    def require(self, feature: str) -> None: ...

    def align(self, sources: list[list[int]], targets: list[list[int]]) -> list[Any]:
        self.log.append([-len(sources)])
        time.sleep(0.002 * len(sources))
        return [np.ones((len(t) + 1, len(s))) for s, t in zip(sources, targets, strict=True)]


@pytest.fixture
def aligning(translator: mh.Translator) -> ServedModel:
    engine = AligningEngine(replace(translator.engine.capabilities, alignment=True, max_positions=None))
    languages = {"source": "en", "target": "ko"}
    scripted = mh.Translator(engine, translator.subwords, languages)  # type: ignore[arg-type]
    return name_models([scripted])[0]


def test_the_alignment_of_a_large_request_does_not_delay_a_small_one(aligning: ServedModel) -> None:
    """It is found in the thread for texts, which small requests need as well."""
    queue, task = JobQueue(ServerLimits()), TranslateTask(aligning)
    engine: Any = aligning.translator.engine
    engine.num_slots = 100
    order: list[str] = []

    async def scenario() -> None:
        large = queue.submit(TranslateTask(aligning, details=True), [LONG] * 100)
        canceled = queue.submit(TranslateTask(aligning, details=True), [LONG] * 100)
        large.future.add_done_callback(lambda _: order.append("large"))
        while not any(entry < 0 for step in engine.log for entry in step):
            await asyncio.sleep(0.001)
        canceled.future.cancel()
        small = queue.submit(task, [SHORT])
        small.future.add_done_callback(lambda _: order.append("small"))
        await small.future
        results = await large.future
        assert all(result.alignment == [(0, 0)] for result in results)

    run(queue, scenario())
    assert order == ["small", "large"]
    parts = [-step[0] for step in engine.log if step and step[0] < 0]
    assert max(parts) * count_tokens(aligning, LONG) <= ALIGNED_TOKENS + count_tokens(aligning, LONG)
    assert 100 <= sum(parts) < 200, "nobody waits for the second one"


def test_streams_share_time_by_weight_and_an_idle_one_saves_up_none(model: ServedModel) -> None:
    batcher = scheduler_of(JobQueue(ServerLimits()))
    for is_large in (False, True):
        key = StreamKey(model, mh.DecodingConfig(), "total", is_large)
        batcher.streams[key] = stream = Stream(key, 100, lambda job: None)
        stream.feed.active[0] = cast(Any, None)
    small, large = batcher.streams.values()
    large.virtual_time, large.is_busy, batcher.virtual_clock = 7.0, True, 7.0
    shares = []
    for _ in range(50):
        next_stream = batcher._next_stream()
        assert next_stream is not None
        next_stream.account_time(1.0)
        shares.append(next_stream.key.is_large)
    assert shares.count(True) == 10
    assert small.virtual_time >= 7.0
    busy, small.feed.active = small.feed.active, {}  # idle, after it has used much time
    small.virtual_time = batcher.virtual_clock = 1000.0
    large.virtual_time, large.is_busy = 0.0, False
    for _ in range(3):
        batcher._next_stream().account_time(1.0)
    small.feed.active = busy
    assert batcher._next_stream() is small, "it does not wait until the other has used as much"


def test_requests_with_too_much_work_are_refused(model: ServedModel) -> None:
    limits = ServerLimits(max_sentences=20, max_beam_tokens=2000)
    queue = JobQueue(limits)

    async def scenario() -> None:
        for texts, nbest, message in (
            (["I\n" * 21], 1, "21 sentences, but the maximum is 20"),
            (["We go home. " * 21], 1, "21 sentences, but the maximum is 20"),
            (["xyz " * 200], 1, r"tokens, but the maximum is 500 for a search with 4 hypotheses"),
            ([LONG] * 12, 9, "tokens, but the maximum is 222 for a search with 9 hypotheses"),
        ):
            with pytest.raises(RequestError, match=message):
                await queue.submit(TranslateTask(model, nbest), texts).future
        assert len(await queue.submit(TranslateTask(model), [LONG] * 12).future) == 12

    run(queue, scenario())


def test_what_a_request_forces_counts_as_work(model: ServedModel) -> None:
    """Each token of a required phrase is a hypothesis more, and a prefix is decoded for every sentence."""
    queue = JobQueue(ServerLimits(max_beam_tokens=2000))
    long_term, short_term = Glossary({"home": "x" * 300}), Glossary({"home": "x" * 10})

    async def scenario() -> None:
        for task, text, message in (
            (TranslateTask(model, glossary=long_term), "We go home.", "times hypotheses, but the maximum"),
            (TranslateTask(model, glossary=Glossary({"home": "x" * 900})), "We go home.", "tokens, but the"),
            (TranslateTask(model, prefix="x" * 900), "We go home.", "tokens, but the maximum is 500"),
            (TranslateTask(model, prefix="x" * 90), "We go home.\n" * 9, "tokens, but the maximum is 500"),
        ):
            with pytest.raises(RequestError, match=message):
                await queue.submit(task, [text]).future
        for task in (TranslateTask(model, glossary=short_term), TranslateTask(model, prefix="x" * 90)):
            assert len(await queue.submit(task, ["We go home."]).future) == 1

    run(queue, scenario())


def test_a_sentence_with_a_long_required_phrase_is_large() -> None:
    constraints = DecodingConstraints(200, prefix=(4, 5), required_phrases=((6,) * 60, (7,) * 39))
    sentences = [SentenceJob("a", Request([5, 6], own)) for own in (constraints, DecodingConstraints(9))]
    assert Decoding(mh.DecodingConfig(beam=4), "total", sentences).num_tokens == 103 * 100 + 2 * 4


def make_joining_job(client: str, num_sentences: int) -> JoiningJob:
    future: Any = Future()
    sentences = [
        SentenceJob(client, Request([5, 6], DecodingConstraints(9)), None) for _ in range(num_sentences)
    ]
    job = Job(cast(Any, None), [client], future, client)
    joining = JoiningJob(job, iter([Decoding(mh.DecodingConfig(), "total", sentences)]), list)
    joining.start_next_step()
    return joining


def test_the_batch_takes_one_sentence_of_each_client_in_turn() -> None:
    feed = FairFeed(1000, 1000, lambda job: None)
    jobs = [make_joining_job("a", 3), make_joining_job("a", 3), make_joining_job("b", 3)]
    for job in jobs:
        feed.put(job)
    order = [(feed.take(1), feed.active[number][0])[1] for number in range(9)]
    first, second, other = jobs
    assert order[:6] == [first, other, second, other, first, other]
    assert feed.take(1) == []


def test_canceled_sentences_free_their_tokens_and_few_start_at_once() -> None:
    feed = FairFeed(10, 4, lambda job: None)
    job, other = make_joining_job("a", 9), make_joining_job("b", 1)
    feed.put(job)
    assert len(feed.take(8)) == 2, "at most four tokens start at once"
    feed.put(other)
    assert len(feed.take(8)) == 2
    assert len(feed.take(8)) == 1, "at most ten are decoded at once"
    assert feed.take_canceled() == []
    job.job.future.cancel()
    assert len(feed.take_canceled()) == 4
    assert feed.take_canceled() == []
    assert [own for own, _ in feed.active.values()] == [other]
    assert feed.active_tokens == 2
    assert feed.take(8) == []
    assert not feed.waiting


def test_long_texts_are_prepared_after_short_ones_and_with_pauses(
    model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, task = JobQueue(ServerLimits(max_beam_tokens=10**6)), TranslateTask(model)
    batcher, order = queue.continuous, list[tuple[int, float]]()
    prepare = batcher._prepare

    def record(job: Job) -> JoiningJob:
        order.append((len(job.items[0]), time.monotonic()))
        time.sleep(0.05)
        return prepare(job)

    monkeypatch.setattr(batcher, "_prepare", record)

    async def scenario() -> None:
        texts = ["home " * 500, "home " * 500, SHORT]
        await asyncio.gather(*(queue.submit(task, [text]).future for text in texts))

    run(queue, scenario())
    assert sorted(length for length, _ in order) == [len(SHORT), 2500, 2500]
    times = [then for length, then in order if length == 2500]
    assert times[1] - times[0] >= 0.05 + 3 * 0.05, "three times as long as the first took"
    assert order[-1][0] == 2500
