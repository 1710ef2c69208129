"""An engine in a process of its own (decoding_process.py), as the process that handles the texts sees it."""

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from manyheads import checkpoint
from manyheads.bulk.coordinator import raise_failure
from manyheads.bulk.local_workers import describe_exit
from manyheads.bulk.messages import read_messages, write_message
from manyheads.checkpoint.manifest import parse_info
from manyheads.config import DecodingConfig, ModelConfig
from manyheads.errors import RequestError, ResourceError
from manyheads.inference import torch_facts
from manyheads.inference.batching import MAX_WINDOW_TOKENS
from manyheads.inference.engine import Capabilities, Feature, ScoreDetail
from manyheads.inference.engine_messages import (
    decode_alignments,
    decode_hypotheses,
    encode_config,
    encode_request,
)
from manyheads.search.options import Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.worker_processes import create_module_command

COMMAND = create_module_command("manyheads.bulk.decoding_process")
SENT_REQUESTS = 256  # at once
SIGNAL_SECONDS = 0.1  # a signal that comes just before the main thread blocks is handled when it wakes up
Message = dict[str, Any]
Results = Iterator[tuple[int, list[Hypothesis]]]


class EngineProcessLink:
    """The process, and the messages that it has sent: results of a stream, and replies to calls."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the other one
        )
        self.results: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.replies: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.failure: Message | None = None  # the first one: there is nothing after it
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the end of its output says so too
            write_message(self.process.stdin, message)

    def call(self, method: str, **arguments: Any) -> Any:
        """Return the result of a method of decoding_process.py."""
        self.send({"call": method, "arguments": arguments})
        return self.receive(self.replies)["reply"]

    def receive(self, messages: "queue.SimpleQueue[Message]") -> Message:
        """Wait for a message. Raise the error that the process reports, or that it has ended."""
        while self.failure is None:
            with suppress(queue.Empty):
                message = messages.get(timeout=SIGNAL_SECONDS)
                if "error" not in message and "lost" not in message:
                    return message
                self.failure = message
        if "error" in self.failure:
            raise_failure(self.failure["error"], self.failure["exit_code"])
        code = self.failure["lost"]
        hint = ": use --device cpu, or a smaller --beam" if code == -signal.SIGKILL else ""
        raise ResourceError(f"the engine's process {describe_exit(code)}{hint}")

    def close(self) -> None:
        """End the process: it holds nothing that is worth saving."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what was still to be sent
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for message in read_messages(self.process.stdout):
                if "results" in message:
                    self.results.put(message)
                elif "error" in message:
                    self._put_last(message)
                else:
                    self.replies.put(message)
        finally:
            self.process.kill()
            self._put_last({"lost": self.process.wait()})

    def _put_last(self, message: Message) -> None:
        """Report what ends every wait."""
        self.results.put(message)
        self.replies.put(message)


class ProcessEngine:
    """The torch engine of another process. Use it in one thread, and read its streams to their ends.

    What it can do is known from the model's configuration, so that texts are prepared while it starts.
    """

    name = torch_facts.NAME
    objective = torch_facts.OBJECTIVE

    def __init__(self, link: EngineProcessLink, config: ModelConfig, runs_on_gpu: bool) -> None:
        self.config, self.runs_on_gpu = config, runs_on_gpu
        self.read_ahead = torch_facts.GPU_READ_AHEAD if runs_on_gpu else torch_facts.READ_AHEAD
        self._link = link
        self._is_streaming = False

    @property
    def capabilities(self) -> Capabilities:
        return torch_facts.describe_capabilities(self.config, self.config.position_limit)

    def require(self, feature: Feature) -> None:
        torch_facts.require_feature(self.config, feature)

    def decode(
        self,
        requests: Iterable[Request] | RequestSource,
        config: DecodingConfig,
        *,
        scores: ScoreDetail = "total",
        window: int | None = None,
    ) -> Results:
        """Yield results as they come. Those of a list come together, also while there is a stream."""
        if isinstance(requests, Sequence):
            encoded = list(map(encode_request, requests))
            rows = self._link.call("decode", config=encode_config(config), scores=scores, requests=encoded)
            yield from enumerate(map(decode_hypotheses, rows))
            return
        if isinstance(requests, RequestSource) or self._is_streaming:
            raise RequestError("an engine in another process decodes one stream, or lists of requests")
        self._is_streaming = True
        self._link.send({"stream": {"config": encode_config(config), "scores": scores, "window": window}})
        yield from self._exchange(iter(requests), window or sys.maxsize)
        self._is_streaming = False

    def _exchange(self, requests: Iterator[Request], window: int) -> Results:
        """Send requests, at most `window` ahead of their results, and yield what has come between them."""
        lengths: dict[int, int] = {}  # of the sources of unfinished requests, by index
        num_sent = num_tokens = 0
        has_sent_all = False
        while True:
            if not has_sent_all and len(lengths) < window and num_tokens < MAX_WINDOW_TOKENS:
                chunk = list(islice(requests, SENT_REQUESTS))
                self._link.send({"requests": list(map(encode_request, chunk))})
                own_lengths = [len(request.source) for request in chunk]
                lengths.update(enumerate(own_lengths, num_sent))
                num_sent, num_tokens = num_sent + len(chunk), num_tokens + sum(own_lengths)
                has_sent_all = len(chunk) < SENT_REQUESTS
                if has_sent_all:
                    self._link.send({"end": True})
                if self._link.results.empty() and not has_sent_all:
                    continue
            message = self._link.receive(self._link.results)
            for index, hypotheses in message["results"]:
                num_tokens -= lengths.pop(index)
                yield index, decode_hypotheses(hypotheses)
            if message.get("ended"):
                return

    def score(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        scores: list[list[float]] = self._link.call("score", sources=sources, targets=targets)
        return scores

    def align(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Any:
        rows = self._link.call("align", sources=sources, targets=targets)
        return decode_alignments(rows, sources, targets)

    def trace(self, source: list[int], target: list[int]) -> Any:
        raise RequestError("attention weights stay in the engine's process: use one process")


@contextmanager
def start_engine_process(
    folder: Path, engine: str, device: str | None, command: Sequence[str] = COMMAND
) -> Iterator[ProcessEngine]:
    """Yield the engine of a model folder, and end its process. What fails there is raised when it is used."""
    info = parse_info(folder, checkpoint.read_model_manifest(folder))
    link = EngineProcessLink(command)
    try:
        link.send({"folder": str(folder), "engine": engine, "device": device})
        yield ProcessEngine(link, info.config.model, runs_on_gpu=device != "cpu")
    finally:
        link.close()
