"""The engine process: it owns the device, and decodes for all front-end processes.

Sentences of all front-ends join the same batches (decoding_scheduler.py), one of each client in turn. A job
that its front-end cancels, or whose front-end has ended, leaves the batch. Other work, such as forced
decoding or attention maps, runs beside it.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, get_args

from manyheads.errors import RequestError
from manyheads.inference.engine import Feature, decode_all
from manyheads.inference.engine_messages import encode_hypotheses
from manyheads.serve.decoding_scheduler import DecodingScheduler, StepReport
from manyheads.serve.engine_messages import (
    Message,
    MessageBuffer,
    decode_decoding,
    encode_error,
    encode_message,
)
from manyheads.serve.fair_feed import ScheduledJob
from manyheads.serve.merged_metrics import merge_metrics
from manyheads.serve.metrics import ServerMetrics
from manyheads.serve.sentence_tasks import create_sentence_task
from manyheads.serve.served_model import ServedModel, suppress_warnings

COLLECT_SECONDS = 1.0  # for a front-end to send its metrics
QUICK_METHODS = ("align", "score")  # which texts wait for; others may take long


def describe_engine(model: ServedModel) -> dict[str, Any]:
    """Return what RemoteEngine needs to know."""
    engine = model.translator.engine
    reasons = {}
    for feature in get_args(Feature):
        try:
            engine.require(feature)
        except RequestError as error:
            reasons[feature] = str(error)
    return {
        "name": engine.name,
        "objective": engine.objective,
        "read_ahead": engine.read_ahead,
        "threads": getattr(engine, "threads", 1),
        "can_join": model.can_join,
        "runs_on_cpu": model.runs_on_cpu,
        "capabilities": asdict(engine.capabilities),
        "reasons": reasons,
    }


class RemoteJob(ScheduledJob):
    """A job of a front-end."""

    def __init__(
        self, link: "FrontEndLink", number: int, client: str, model: ServedModel, arrived_at: float
    ) -> None:
        super().__init__(client, model, arrived_at)
        self.link, self.number, self.is_canceled = link, number, False

    @property
    def is_abandoned(self) -> bool:
        return self.is_canceled


class FrontEndLink(asyncio.Protocol):
    """The socket to a front-end, read and written on the event loop."""

    def __init__(self, server: "EngineServer") -> None:
        self.server, self.buffer = server, MessageBuffer()
        self.jobs: dict[int, RemoteJob] = {}
        self.collecting: dict[int, asyncio.Future[str]] = {}
        self.ready = asyncio.Event()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self.buffer.feed(data):
            self._handle(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.server.links.discard(self)
        for job in self.jobs.values():
            job.is_canceled = True

    def send(self, message: Message) -> None:
        if not self.is_lost:
            self.transport.write(encode_message(message))

    def _handle(self, message: Message) -> None:
        if "jobs" in message:
            self.server.scheduler.put([self._create_job(*row) for row in message["jobs"]])
        elif "cancel" in message:
            if job := self.jobs.pop(message["cancel"], None):
                job.is_canceled = True
        elif "call" in message:
            self.server.start_call(self, message)
        elif "collected" in message:
            future = self.collecting.pop(message["collected"], None)
            if future is not None and not future.done():
                future.set_result(message["text"])
        elif "wrong_key" in message:
            self.server.broadcast(message, self)
        elif "ready" in message:
            self.ready.set()

    def _create_job(
        self, number: int, client: str, model: str, arrived_at: float, has_started: bool, decoding: list[Any]
    ) -> RemoteJob:
        job = RemoteJob(self, number, client, self.server.models[model], arrived_at)
        job.has_started = has_started
        job.start_decoding(decode_decoding(*decoding))
        self.jobs[number] = job
        return job


class EngineServer:
    """The models, and the front-ends that they work for."""

    def __init__(self, models: Sequence[ServedModel], batch_tokens: int) -> None:
        self.models = {model.name: model for model in models}
        self.scheduler = DecodingScheduler(batch_tokens, self._report)
        self.metrics = ServerMetrics()
        self.metrics.track_models(models)
        self.links: set[FrontEndLink] = set()
        num_workers = max(model.num_workers for model in models)
        self.quick_executor = ThreadPoolExecutor(1, "manyheads-quick")
        self.executor = ThreadPoolExecutor(num_workers, "manyheads-worker")
        self.calls: set[asyncio.Task[None]] = set()
        self.num_collected = 0

    async def connect(self, engine_socket: socket.socket) -> FrontEndLink:
        """Serve a front-end at the other end of a socket."""
        self.loop = asyncio.get_running_loop()
        _, link = await self.loop.connect_accepted_socket(lambda: FrontEndLink(self), engine_socket)
        self.links.add(link)
        return link

    def close(self) -> None:
        self.scheduler.shutdown()
        for executor in (self.quick_executor, self.executor):
            executor.shutdown(wait=False, cancel_futures=True)

    def broadcast(self, message: Message, sender: FrontEndLink) -> None:
        for link in self.links - {sender}:
            link.send(message)

    # ---- batches

    def _report(self, report: StepReport) -> None:
        """Called in the engine's thread, which has no time to write messages."""
        self.loop.call_soon_threadsafe(self._send_report, report)

    def _send_report(self, report: StepReport) -> None:
        """Tell each front-end about its jobs, and one of them what the steps took, for its metrics."""
        started: Any = report.started
        decoded: Any = report.decoded
        failed: Any = report.failed
        links = dict.fromkeys(job.link for job in (*started, *decoded, *(job for job, _ in failed)))
        stats = report.stats and list(asdict(report.stats).values())
        for link in links:
            steps = {
                "started": [job.number for job in started if job.link is link],
                "decoded": [
                    [job.number, [encode_hypotheses(sentence.hypotheses) for sentence in job.sentences]]
                    for job in decoded
                    if job.link is link
                ],
                "failed": [[job.number, encode_error(error)] for job, error in failed if job.link is link],
                "stats": stats,
            }
            link.send({"steps": steps})
            stats = None
        for job in (*decoded, *(job for job, _ in failed)):
            job.is_done = True
            job.link.jobs.pop(job.number, None)

    # ---- calls

    def start_call(self, link: FrontEndLink, message: Message) -> None:
        task = asyncio.create_task(self._answer_call(link, message))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    async def _answer_call(self, link: FrontEndLink, message: Message) -> None:
        number, method = message.pop("call"), message.pop("method")
        try:
            if method == "metrics":
                result: Any = await self.collect_metrics()
            else:
                model = self.models[message.pop("model")]
                executor = self.quick_executor if method in QUICK_METHODS else self.executor
                result = await self.loop.run_in_executor(executor, partial(METHODS[method], model, **message))
        except Exception as error:
            link.send({"reply": number, "error": encode_error(error)})
        else:
            link.send({"reply": number, "result": result})

    async def collect_metrics(self) -> str:
        """Return the metrics of all front-ends and of this process, added up."""
        self.num_collected += 1
        futures = []
        for link in self.links:
            future = link.collecting[self.num_collected] = self.loop.create_future()
            futures.append(future)
            link.send({"collect": self.num_collected})
        if futures:
            await asyncio.wait(futures, timeout=COLLECT_SECONDS)
        texts = [future.result() for future in futures if future.done()]
        return merge_metrics([*texts, self.metrics.render()])


def run_decode(model: ServedModel, decoding: list[Any]) -> list[Any]:
    own = decode_decoding(*decoding)
    sources = [sentence.request.source for sentence in own.sentences]
    constraints = [sentence.request.constraints for sentence in own.sentences]
    results = decode_all(model.translator.engine, sources, constraints, own.config, scores=own.scores)
    return list(map(encode_hypotheses, results))


def run_score(model: ServedModel, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
    return model.translator.engine.score(sources, targets)


def run_align(model: ServedModel, sources: list[list[int]], targets: list[list[int]]) -> list[Any]:
    return [weights.tolist() for weights in model.translator.engine.align(sources, targets)]


def run_sentence_task(
    model: ServedModel, name: str, parameters: list[Any], source: str, target: str | None
) -> Any:
    task = create_sentence_task(name, model, parameters)
    with suppress_warnings():
        task.check(source, target)
        return task.run([(source, target)], lambda: None)[0]


METHODS: dict[str, Callable[..., Any]] = {
    "decode": run_decode,
    "score": run_score,
    "align": run_align,
    "run_sentence_task": run_sentence_task,
}
