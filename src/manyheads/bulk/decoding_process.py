"""A process that runs an engine for another one, which prepares texts and writes translations.

`python -m manyheads.bulk.decoding_process` is started by process_engine.py. On a GPU the search is driven by
Python, whose lock it would share with the work on texts. Requests of a stream join the batch as they arrive.
Lists of requests, such as second tries, are decoded between the results of the stream.
"""

import os
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from manyheads.bulk.interpreter_settings import stream_settings
from manyheads.bulk.messages import write_message
from manyheads.bulk.worker import describe_failure, open_channel
from manyheads.inference.engine import Engine, ScoreDetail, decode_all
from manyheads.inference.engine_messages import (
    decode_config,
    decode_request,
    encode_hypotheses,
)
from manyheads.search.options import Request

SENT_RESULTS = 256  # at once
SEND_SECONDS = 0.05  # for which results may wait for others
Message = dict[str, Any]


def main() -> None:
    """Serve the process at the other end of stdin and stdout until it closes the pipe."""
    messages, replies = open_channel()
    try:
        engine = open_engine(**messages.get())
    except Exception as error:
        write_message(replies, describe_failure(error))
        os._exit(1)  # the thread that reads would keep an orderly exit from its lock
    with stream_settings():
        EngineProcess(engine, messages.get, replies).run()
    os._exit(1)


def open_engine(folder: str, engine: str, device: str | None) -> Engine:
    from manyheads.loading import load_with_engine

    return load_with_engine(Path(folder), (), device, engine, None, None).engine


class EngineProcess:
    """Answers the messages of one ProcessEngine."""

    def __init__(self, engine: Engine, receive: Callable[..., Message], replies: IO[bytes]) -> None:
        """`receive` is that of a queue: it waits for the next message, unless it is called with False."""
        self.engine, self.receive, self.replies = engine, receive, replies

    def run(self) -> None:
        """Answer until something fails: the other process then ends this one."""
        try:
            while True:
                message = self.receive()
                if "stream" in message:
                    DecodedStream(self).run(**message["stream"])
                else:
                    self.answer_call(message)
        except Exception as error:
            self.send(describe_failure(error))

    def answer_call(self, message: Message) -> None:
        method = METHODS[message["call"]]
        self.send({"reply": method(self.engine, **message["arguments"])})

    def send(self, message: Message) -> None:
        write_message(self.replies, message)


class DecodedStream:
    """A stream of requests, which arrive among calls. Both are read in the engine's thread.

    Calls are answered between results, and when the engine asks for requests that are not there.
    """

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        self.requests: deque[Request] = deque()  # that have arrived
        self.has_ended = False  # no more will
        self.results: list[Any] = []  # to be sent
        self.send_time = 0.0

    def run(self, config: str, scores: ScoreDetail, window: int | None) -> None:
        decoded = self.process.engine.decode(
            self._take_requests(), decode_config(config), scores=scores, window=window
        )
        for index, hypotheses in decoded:
            self.results.append([index, encode_hypotheses(hypotheses)])
            if len(self.results) >= SENT_RESULTS or time.monotonic() >= self.send_time:
                self._send_results()
                self._read_messages()
        self.process.send({"results": self.results, "ended": True})

    def _take_requests(self) -> Iterator[Request]:
        while True:
            self._read_messages()
            if not self.requests and not self.has_ended:
                self._send_results()
                self._handle(self.process.receive())
            while self.requests:
                yield self.requests.popleft()
            if self.has_ended:
                return

    def _send_results(self) -> None:
        if self.results:
            self.process.send({"results": self.results})
        self.results, self.send_time = [], time.monotonic() + SEND_SECONDS

    def _read_messages(self) -> None:
        """Handle the messages that are there."""
        with suppress(queue.Empty):
            while True:
                self._handle(self.process.receive(False))

    def _handle(self, message: Message) -> None:
        if "call" in message:
            self.process.answer_call(message)
        elif "requests" in message:
            self.requests.extend([decode_request(*row) for row in message["requests"]])
        else:
            self.has_ended = True


def run_decode(engine: Engine, config: str, scores: ScoreDetail, requests: list[list[Any]]) -> list[Any]:
    decoded = [decode_request(*row) for row in requests]
    sources, constraints = [own.source for own in decoded], [own.constraints for own in decoded]
    results = decode_all(engine, sources, constraints, decode_config(config), scores=scores)
    return list(map(encode_hypotheses, results))


def run_score(engine: Engine, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
    return engine.score(sources, targets)


def run_align(engine: Engine, sources: list[list[int]], targets: list[list[int]]) -> list[Any]:
    return [weights.tolist() for weights in engine.align(sources, targets)]


METHODS: dict[str, Callable[..., Any]] = {"decode": run_decode, "score": run_score, "align": run_align}


if __name__ == "__main__":
    main()
