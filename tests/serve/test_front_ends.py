"""Several front-end processes of one engine process: the same answers, limits, cancellation and failures."""

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import manyheads as mh
from manyheads.errors import ConfigError, RequestError
from manyheads.inference.engine_messages import decode_hypotheses, encode_hypotheses
from manyheads.loading import load_for_engine
from manyheads.pipeline.jobs import Decoding, SentenceJob
from manyheads.search.options import DecodingConstraints, Hypothesis, Request
from manyheads.search.request_source import RequestSource
from manyheads.serve.app import create_app
from manyheads.serve.engine_messages import (
    MessageBuffer,
    decode_decoding,
    decode_error,
    encode_decoding,
    encode_error,
    encode_message,
)
from manyheads.serve.engine_process import EngineServer, describe_engine
from manyheads.serve.frontends import choose_num_processes, divide_limits
from manyheads.serve.limits import ServerLimits
from manyheads.serve.merged_metrics import merge_metrics
from manyheads.serve.queue import JobQueue
from manyheads.serve.remote_engine import EngineConnection, RemoteEngine, RemoteScheduler
from manyheads.serve.responses import TooManyNumbersError
from manyheads.serve.served_model import ServedModel, name_models
from manyheads.serve.translation_tasks import TranslateTask
from support.server_process import ServerProcess, start_server

TEXTS = ["I go home today.", "We read a book at school. I go home.", "나는 집에 간다."]


class EngineThread:
    """An engine process in a thread of this one."""

    def __init__(self, model: ServedModel, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.connections: list[EngineConnection] = []
        self.server = EngineServer([model], 2**14)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def connect(self) -> tuple[EngineConnection, ServedModel]:
        """Return the connection and the model of a front-end."""
        own_socket, other_socket = socket.socketpair()
        asyncio.run_coroutine_threadsafe(self.server.connect(own_socket), self.loop).result(10)
        connection = EngineConnection(other_socket)
        self.connections.append(connection)
        engine: Any = RemoteEngine(connection, self.model.name, describe_engine(self.model))
        return connection, ServedModel(self.model.name, load_for_engine(self.folder, engine))

    def create_front_end(self, limits: ServerLimits | None = None, **options: Any) -> TestClient:
        connection, model = self.connect()
        app = create_app([model], limits, connection=connection, **options)
        return TestClient(app, base_url="http://localhost")

    def cut_connections(self) -> None:
        """Do what the end of an engine process does."""
        for link in list(self.server.links):
            self.loop.call_soon_threadsafe(link.transport.abort)

    async def _wait_for_links(self) -> None:
        while self.server.links:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        self.server.close()
        asyncio.run_coroutine_threadsafe(self._wait_for_links(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


@pytest.fixture
def engine(word_model: Path) -> Iterator[EngineThread]:
    (model,) = name_models([mh.load(word_model, device="cpu", engine="torch")])
    thread = EngineThread(model, word_model)
    yield thread
    thread.close()


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/translate", {"q": TEXTS}),
    ("/translate", {"q": TEXTS[1], "alternatives": 2, "details": True}),
    ("/translate", {"q": "<p>I go <b>home</b> today.</p>", "format": "html"}),
    ("/translate", {"q": "", "source": "auto"}),
    ("/score", {"q": TEXTS[:2], "translation": [TEXTS[2]] * 2}),
    ("/attention", {"q": TEXTS[0], "layer": 1}),
    ("/attention", {"q": TEXTS[0], "layer": 7}),
    ("/look", {"q": TEXTS[0]}),
    ("/walk", {"q": TEXTS[0], "stack": "decoder", "layer": 0, "width": 4}),
    ("/walk", {"q": TEXTS[0], "stack": "encoder", "layer": 0, "width": 4, "parameters": True}),
]


def test_front_ends_answer_as_one_process_does(engine: EngineThread) -> None:
    with ExitStack() as stack:
        alone = stack.enter_context(TestClient(create_app([engine.model]), base_url="http://localhost"))
        front_ends = [stack.enter_context(engine.create_front_end()) for _ in range(3)]
        for number, (path, fields) in enumerate(REQUESTS):
            body = {"source": "en", "target": "ko", **fields}
            expected = alone.post(path, json=body)
            response = front_ends[number % 3].post(path, json=body)
            assert (response.status_code, shorten(response.json())) == (
                expected.status_code,
                shorten(expected.json()),
            ), path
            assert expected.status_code == (400 if fields.get("layer") == 7 else 200)
        assert front_ends[0].get("/models").json() == alone.get("/models").json()
        assert front_ends[0].get("/health").json() == {"status": "ok"}


def shorten(value: Any) -> Any:
    """Round numbers: batches of another size are added up in another order."""
    if isinstance(value, float):
        return round(value, 3) + 0.0
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    return list(map(shorten, value)) if isinstance(value, list) else value


def test_metrics_are_those_of_all_front_ends(engine: EngineThread) -> None:
    with engine.create_front_end() as first, engine.create_front_end() as second:
        for client in (first, second, second):
            assert client.post("/translate", json={"q": TEXTS[0], "source": "en", "target": "ko"}).is_success
        for client in (first, second):
            lines = client.get("/metrics").text.splitlines()
            assert 'manyheads_requests_total{path="/translate",status="200"} 3.0' in lines
            assert "manyheads_queue_seconds_count 3.0" in lines
            assert f"manyheads_characters_total {3.0 * len(TEXTS[0])}" in lines
            assert len([line for line in lines if line.startswith("# TYPE manyheads_characters_total")]) == 1


def test_wrong_keys_of_all_front_ends_count_together(engine: EngineThread) -> None:
    limits = ServerLimits(max_wrong_keys=3)
    front_ends = [engine.create_front_end(limits, api_key="right") for _ in range(2)]
    with front_ends[0] as first, front_ends[1] as second:
        for client in (first, second, first):
            assert client.get("/models", params={"api_key": "wrong"}).status_code == 403
        end = time.monotonic() + 5
        codes = set[int]()
        while codes != {429} and time.monotonic() < end:
            responses = [client.get("/models", params={"api_key": "right"}) for client in (first, second)]
            codes = {response.status_code for response in responses}
        assert codes == {429}


def test_a_lost_engine_is_503(engine: EngineThread) -> None:
    release = threading.Event()
    real: Any = engine.model.translator.engine
    decode_batches = real.decode_batches
    real.decode_batches = lambda *a, **k: (release.wait(20), decode_batches(*a, **k))[1]
    body = {"q": TEXTS[0], "source": "en", "target": "ko"}
    with engine.create_front_end() as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/translate", json=body)
        wait_until(lambda: any(link.jobs for link in engine.server.links))
        engine.cut_connections()
        for response in (waiting.result(20), client.post("/translate", json=body)):
            assert response.status_code == 503
            assert response.json() == {"error": "the engine has stopped: retry later"}
            assert response.headers["retry-after"] == "5"
        assert client.post("/score", json={**body, "translation": "x"}).status_code == 503
        assert client.get("/health").status_code == client.get("/metrics").status_code == 503
    release.set()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_canceled_job_leaves_the_batch_of_the_engine(engine: EngineThread) -> None:
    connection, model = engine.connect()
    step, num_steps = engine.model.translator.engine.model.step, list[int]()  # type: ignore[attr-defined]

    def slow_step(*arguments: Any) -> Any:
        num_steps.append(1)
        time.sleep(0.01)
        return step(*arguments)

    engine.model.translator.engine.model.step = slow_step  # type: ignore[attr-defined]
    scheduler = engine.server.scheduler

    async def scenario() -> None:
        queue = JobQueue(ServerLimits(), create_scheduler=lambda report: RemoteScheduler(connection, report))
        connection.start()
        job = queue.submit(TranslateTask(model), ["We read a book at school and I go home today."])
        while len(num_steps) < 3:
            await asyncio.sleep(0.001)
        assert job not in queue.waiting, "it has started"
        job.future.cancel()
        while scheduler.is_running or any(link.jobs for link in engine.server.links):
            await asyncio.sleep(0.001)
        queue.continuous.shutdown()

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert 3 <= len(num_steps) <= 8


def test_jobs_of_a_lost_front_end_leave_the_batch(engine: EngineThread) -> None:
    connection, model = engine.connect()
    (link,) = engine.server.links
    request = Request([5] * 30 + [2], DecodingConstraints(30))
    decoding = Decoding(mh.DecodingConfig(), "total", [SentenceJob("", request)])
    connection.send({"jobs": [[0, "a", model.name, 0.0, False, encode_decoding(decoding)]]})
    wait_until(lambda: bool(link.jobs))
    (job,) = link.jobs.values()
    connection.close()
    wait_until(lambda: job.is_abandoned and not engine.server.scheduler.is_running)
    assert not engine.server.links


def test_an_error_of_the_engine_reaches_its_request_only(engine: EngineThread) -> None:
    real: Any = engine.model.translator.engine
    decode_batches = real.decode_batches

    def refuse(requests: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(requests, RequestSource):
            raise ValueError
        if len(requests) == 2:
            raise RequestError("two sentences are too many")
        return decode_batches(requests, *arguments, **options)

    real.decode_batches = refuse
    with engine.create_front_end() as client:
        body = {"source": "en", "target": "ko"}
        assert client.post("/translate", json={"q": TEXTS[0], **body}).status_code == 200
        response = client.post("/translate", json={"q": TEXTS[1], **body})
        assert (response.status_code, response.json()) == (400, {"error": "two sentences are too many"})


def test_front_ends_refuse_adapters(engine: EngineThread) -> None:
    with engine.create_front_end() as client:
        body = {"q": TEXTS[0], "source": "en", "target": "ko", "adapter": "talks"}
        for path in ("/translate", "/score", "/attention", "/look", "/walk"):
            response = client.post(path, json={**body, "translation": TEXTS[2]} if path == "/score" else body)
            assert response.status_code == 400, path
            assert response.json() == {
                "error": "adapters need a server with one process: serve with --processes 1"
            }


# ---- messages, limits and metrics


def test_messages_keep_what_is_decoded() -> None:
    constraints = DecodingConstraints(9, 1, (4,), ((5, 6), (7,)), ((8,),), ((7,),), frozenset({3, 9}), 2**50)
    config = mh.DecodingConfig(beam=3, nbest=2, alpha=0.7)
    requests = [Request([5, 2], DecodingConstraints(7)), Request([6, 2], constraints)]
    decoding = Decoding(config, "tokens", [SentenceJob("text", request) for request in requests])
    hypotheses = [Hypothesis([1, 2], [-0.1, -1e-9, 0.0], -0.3), Hypothesis([], [], float("-inf"), -1.5)]
    buffer = MessageBuffer()
    data = encode_message({"a": encode_decoding(decoding)})
    data += encode_message({"b": encode_hypotheses(hypotheses)})
    messages = [message for byte in data for message in buffer.feed(bytes([byte]))]
    decoded = decode_decoding(*messages[0]["a"])
    assert (decoded.config, decoded.scores) == (config, "tokens")
    assert [sentence.request for sentence in decoded.sentences] == requests
    assert decode_hypotheses(messages[1]["b"]) == hypotheses


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RequestError("a"), RequestError("a")),
        (ConfigError("b"), ConfigError("b")),
        (TooManyNumbersError("c"), TooManyNumbersError("c")),
        (MemoryError(), MemoryError("")),
        (RuntimeError("CUDA out of memory"), RuntimeError("CUDA out of memory")),
        (KeyError("d"), RuntimeError("KeyError: 'd'")),
    ],
)
def test_messages_keep_errors(error: Exception, expected: Exception) -> None:
    decoded = decode_error(*encode_error(error))
    assert (type(decoded), str(decoded)) == (type(expected), str(expected))


def test_limits_of_the_server_are_divided() -> None:
    limits = divide_limits(ServerLimits(queue_size=10, max_connections=100, max_buffered_bytes=2**25), 4)
    assert (limits.queue_size, limits.max_connections, limits.max_buffered_bytes) == (3, 25, 2**23)
    assert limits == replace(ServerLimits(), queue_size=3, max_connections=25, max_buffered_bytes=2**23)
    assert divide_limits(ServerLimits(max_body_bytes=2**24), 8).max_buffered_bytes == 2**24
    assert divide_limits(ServerLimits(max_requests_per_minute=60), 4).max_requests_per_minute == 15


def test_a_stopping_server_waits_for_documents() -> None:
    limits = ServerLimits(request_timeout=5, file_timeout=100, client_timeout=1)
    assert limits.stop_seconds == 102
    assert replace(limits, request_timeout=200).stop_seconds == 202


def test_metrics_are_added_up() -> None:
    head = "# HELP a Things.\n# TYPE a counter\n"
    first = f'{head}a{{b="1"}} 2.0\na_created 7.0\n'
    second = f'{head}a{{b="2"}} 1.0\na{{b="1"}} 3.0\na_created 5.0\n'
    other = "# HELP c Others.\n# TYPE c gauge\nc 1.5\n"
    merged = merge_metrics([first, second + other])
    assert merged == f'{head}a{{b="1"}} 5.0\na_created 5.0\na{{b="2"}} 1.0\n{other}'


def test_a_cpu_and_models_with_adapters_have_one_process_by_default(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_num_processes([engine.model]) == 1
    monkeypatch.setattr(ServedModel, "runs_on_cpu", False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert choose_num_processes([engine.model]) == 3
    monkeypatch.setattr(ServedModel, "list_adapters", lambda _: ["talks"])
    assert choose_num_processes([engine.model]) == 1


# ---- processes


def post(port: int, text: str = TEXTS[0]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"q": text, "source": "en", "target": "ko"})
    connection.request("POST", "/translate", body, {"content-type": "application/json"})
    response = connection.getresponse()
    try:
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def read_metrics(port: int) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    try:
        return connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()


def list_children(server: ServerProcess) -> list[int]:
    pid = server.process.pid
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.heavy
def test_processes_start_again_and_stop_together(word_model: Path) -> None:
    options = ("--processes=3", "--device=cpu", "--engine=torch")
    with start_server(*options, model=word_model) as server:
        assert "3 processes" in server.address_line
        expected = mh.load(word_model, device="cpu", engine="torch").translate(TEXTS[0], scores="total").text
        children = list_children(server)
        assert len(children) == 3
        assert not any("libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in children)
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: post(server.port), range(24)))
        assert [(status, body["translatedText"]) for status, body in results] == [(200, expected)] * 24
        metrics = read_metrics(server.port)
        assert 'manyheads_requests_total{path="/translate",status="200"} 24.0' in metrics
        os.kill(children[0], signal.SIGKILL)
        wait_until(lambda: len(list_children(server)) == 3 and children[0] not in list_children(server))
        assert post(server.port)[0] == 200
        children = list_children(server)
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert "starting it again" in server.log.read()
    assert not any(map(is_alive, children))


@pytest.mark.heavy
def test_the_end_of_the_engine_process_ends_the_front_ends(word_model: Path) -> None:
    with start_server("--processes=2", "--device=cpu", model=word_model) as server:
        assert post(server.port)[0] == 200
        children = list_children(server)
        server.process.kill()
        server.process.wait(20)
        wait_until(lambda: not any(map(is_alive, children)))
