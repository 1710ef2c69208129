"""The engine as a front-end process sees it: it runs in the engine process (engine_process.py)."""

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

from manyheads.config import DecodingConfig
from manyheads.errors import RequestError
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.inference.engine_messages import decode_alignments, decode_hypotheses
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.search.options import Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.serve.decoding_scheduler import ReportStep, StepReport
from manyheads.serve.engine_messages import (
    Message,
    MessageBuffer,
    decode_error,
    encode_decoding,
    encode_message,
)
from manyheads.serve.fair_feed import ScheduledJob
from manyheads.serve.jobs import BatchStats, Job

READ_BYTES = 2**18


class EngineLost(Exception):
    """The engine process has ended."""


class EngineConnection:
    """The socket to the engine process. The event loop reads it, and any thread may write to it."""

    def __init__(self, engine_socket: socket.socket) -> None:
        self._socket = engine_socket
        self._socket.setblocking(True)
        self._buffer = MessageBuffer()
        self._lock = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_lost = False
        self.handlers: dict[str, Callable[[Message], None]] = {"reply": self._handle_reply}
        self.on_lost: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to read. Call it on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def send(self, message: Message) -> None:
        """Send a message. The engine process always reads, so that this never waits for long."""
        data = encode_message(message)
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            raise EngineLost("the engine has stopped") from None

    def notify(self, message: Message) -> None:
        """Send a message that nobody needs if the engine process has ended."""
        if not self.is_lost:
            with suppress(EngineLost):
                self.send(message)

    def start_call(self, method: str, **arguments: Any) -> "Future[Any]":
        number, future = next(self._numbers), Future[Any]()
        self._calls[number] = future
        if self.is_lost:
            self._fail_calls()
        else:
            self.send({"call": number, "method": method, **arguments})
        return future

    def call(self, method: str, **arguments: Any) -> Any:
        """Return the result of a call. Not for the event loop, which this blocks."""
        return self.start_call(method, **arguments).result()

    def close(self) -> None:
        """Stop reading. The engine process drops what it does for this one."""
        if not self.is_lost and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self.is_lost = True
        self._fail_calls()
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for message in self._buffer.feed(data):
            for name in message.keys() & self.handlers.keys():
                self.handlers[name](message)

    def _handle_reply(self, message: Message) -> None:
        future = self._calls.pop(message["reply"])
        if "error" in message:
            future.set_exception(decode_error(*message["error"]))
        else:
            future.set_result(message["result"])

    def _lose(self) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._socket)
        self.is_lost = True
        self._fail_calls()
        for callback in self.on_lost:
            callback()

    def _fail_calls(self) -> None:
        while self._calls:
            self._calls.popitem()[1].set_exception(EngineLost("the engine has stopped"))


class RemoteScheduler:
    """Has jobs decoded by the engine process, together with those of other front-ends."""

    def __init__(self, connection: EngineConnection, report: ReportStep) -> None:
        self.connection, self.report = connection, report
        self._numbers = itertools.count()
        self._jobs: dict[int, ScheduledJob] = {}  # in work, by number
        self._numbers_of_jobs: dict[Job, int] = {}
        connection.handlers["steps"] = self._handle_steps
        connection.on_lost.append(self._fail_all)

    def put(self, jobs: Sequence[ScheduledJob]) -> None:
        rows = []
        for scheduled in jobs:
            assert scheduled.decoding is not None
            number = next(self._numbers)
            self._jobs[number] = scheduled
            self._numbers_of_jobs[get_job(scheduled)] = number
            head = [number, scheduled.client, scheduled.model.name, scheduled.arrived_at]
            rows.append([*head, scheduled.has_started, encode_decoding(scheduled.decoding)])
        try:
            if self.connection.is_lost:
                raise EngineLost
            self.connection.send({"jobs": rows})
        except EngineLost:
            self._fail_all()

    def cancel(self, job: Job) -> None:
        number = self._numbers_of_jobs.pop(job, None)
        if number is not None and self._jobs.pop(number, None) is not None:
            self.connection.notify({"cancel": number})

    def shutdown(self) -> None: ...

    def _handle_steps(self, message: Message) -> None:
        """Give jobs what the engine process says of them; those that were canceled meanwhile are unknown."""
        steps, report = message["steps"], StepReport()
        for number in steps["started"]:
            if job := self._jobs.get(number):
                job.has_started = True
                report.started.append(job)
        for number, rows in steps["decoded"]:
            if job := self._remove(number):
                for sentence, hypotheses in zip(job.sentences, rows, strict=True):
                    sentence.hypotheses = decode_hypotheses(hypotheses)
                report.decoded.append(job)
        for number, error in steps["failed"]:
            if job := self._remove(number):
                report.failed.append((job, decode_error(*error)))
        report.stats = BatchStats(*steps["stats"]) if steps["stats"] else None
        self.report(report)

    def _remove(self, number: int) -> ScheduledJob | None:
        job = self._jobs.pop(number, None)
        if job is not None:
            self._numbers_of_jobs.pop(get_job(job), None)
        return job

    def _fail_all(self) -> None:
        jobs = [job for number in list(self._jobs) if (job := self._remove(number))]
        self.report(StepReport(failed=[(job, EngineLost("the engine has stopped")) for job in jobs]))


def get_job(scheduled: ScheduledJob) -> Job:
    return cast(Any, scheduled).job  # type: ignore[no-any-return]


class RemoteEngine:
    """The engine of one model in the engine process, as `describe_engine` describes it."""

    def __init__(self, connection: EngineConnection, model: str, description: dict[str, Any]) -> None:
        self.connection, self.model_name = connection, model
        self.name: str = description["name"]
        self.objective: str = description["objective"]
        self.read_ahead: int = description["read_ahead"]
        self.threads: int = description["threads"]
        self.can_join: bool = description["can_join"]
        self.runs_on_cpu: bool = description["runs_on_cpu"]
        capabilities = {**description["capabilities"]}
        self.capabilities = Capabilities(**capabilities | {"devices": tuple(capabilities["devices"])})
        self._reasons: dict[str, str] = description["reasons"]  # by feature that is missing

    def require(self, feature: Feature) -> None:
        if feature in self._reasons:
            raise RequestError(self._reasons[feature])

    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the hypotheses of each request in order, when all of them are decoded."""
        sentences = [SentenceJob("", request) for request in cast(Iterable[Request], requests)]
        rows = self._call("decode", decoding=encode_decoding(Decoding(config, scores, sentences)))
        yield from enumerate(map(decode_hypotheses, rows))

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        scores: list[list[float]] = self._call("score", sources=sources, targets=targets)
        return scores

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Any:
        rows = self._call("align", sources=sources, targets=targets)
        return decode_alignments(rows, sources, targets)

    def trace(self, source: list[int], target: list[int]) -> Any:
        raise RequestError("attention weights stay in the engine process: use run_sentence_task")

    def run_sentence_task(self, name: str, parameters: Sequence[Any], source: str, target: str | None) -> str:
        """Run a task of attention_tasks.py. Return its JSON."""
        text: str = self._call(
            "run_sentence_task", name=name, parameters=parameters, source=source, target=target
        )
        return text

    def _call(self, method: str, **arguments: Any) -> Any:
        return self.connection.call(method, model=self.model_name, **arguments)
