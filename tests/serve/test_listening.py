"""On a socket: clients that are many, slow, gone or too large."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manyheads.errors import ConfigError, RequestError
from manyheads.serve.limits import ServerLimits
from manyheads.serve.server import bind_socket
from support.scripted_translator import ScriptedTranslator
from support.server_process import start_server

BODY = json.dumps({"q": "one two", "source": "en", "target": "ko"}).encode()
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def ask(
    port: int, method: str = "POST", path: str = "/translate", body: bytes = BODY
) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.getheaders())
    finally:
        connection.close()


def everything(connection: socket.socket) -> bytes:
    """Up to the end, however it ends."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found


def test_requests_that_come_while_it_works_are_translated_together(listening: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with listening(translator) as port, ThreadPoolExecutor(21) as clients:
        first = clients.submit(ask, port)
        assert translator.started.wait(5)
        others = [clients.submit(ask, port) for _ in range(20)]
        wait_for_metric(port, "manyheads_waiting_requests 20.0")
        start = time.monotonic()
        assert ask(port, "GET", "/health")[0] == 200, "health answers while the model works"
        assert time.monotonic() - start < 1
        translator.release.set()  # type: ignore[union-attr]
        assert all(one.result()[1] == {"translatedText": "two one"} for one in (first, *others))
    assert [len(call) for call in translator.calls] == [1, 20]


def wait_for_metric(port: int, line: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(200):
        connection.request("GET", "/metrics")
        if line in connection.getresponse().read().decode():
            connection.close()
            return
        time.sleep(0.02)
    raise AssertionError(line)


def test_a_full_queue_is_503_with_retry_after_at_once(listening: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with listening(translator, limits=ServerLimits(queue_size=2)) as port, ThreadPoolExecutor(3) as clients:
        accepted = [clients.submit(ask, port)]
        assert translator.started.wait(5)
        accepted += [clients.submit(ask, port) for _ in range(2)]
        wait_for_metric(port, "manyheads_waiting_requests 2.0")
        start = time.monotonic()
        status, answer, headers = ask(port)
        assert (status, answer) == (503, {"error": "2 requests are waiting already"})
        assert int(headers["retry-after"]) >= 1
        assert time.monotonic() - start < 1
        assert ask(port, "GET", "/health")[0] == 200
        translator.release.set()  # type: ignore[union-attr]
        assert [one.result()[0] for one in accepted] == [200] * 3


def test_a_client_that_leaves_frees_its_place(listening: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with listening(translator, limits=ServerLimits(queue_size=1)) as port, ThreadPoolExecutor(3) as clients:
        first = clients.submit(ask, port)
        assert translator.started.wait(5)
        leaving = socket.create_connection(("127.0.0.1", port))
        leaving.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        wait_for_metric(port, "manyheads_waiting_requests 1.0")
        assert ask(port)[0] == 503
        leaving.close()
        wait_for_metric(port, "manyheads_waiting_requests 0.0")
        last = clients.submit(ask, port)
        wait_for_metric(port, "manyheads_waiting_requests 1.0")
        translator.release.set()  # type: ignore[union-attr]
        assert (first.result()[0], last.result()[0]) == (200, 200)
    assert [len(call) for call in translator.calls] == [1, 1], "nobody worked for the one that left"


def test_a_request_has_a_deadline(listening: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with listening(translator, limits=ServerLimits(request_timeout=0.3)) as port:
        start = time.monotonic()
        status, answer, headers = ask(port)
        translator.release.set()  # type: ignore[union-attr]
        assert (status, answer) == (503, {"error": "not done within 0.3 seconds"})
        assert "retry-after" in headers
        assert 0.2 < time.monotonic() - start < 2
        assert ask(port)[0] == 200


@pytest.mark.parametrize("said", [True, False])
def test_a_body_without_end_is_refused_as_soon_as_it_is_too_large(listening: Any, said: bool) -> None:
    """A gigabyte with its length said before, or in pieces without one."""
    head = HEAD + (b"Content-Length: 1000000000\r\n\r\n" if said else b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"x" * 65536 if said else b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with listening() as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head)
            sent = 0
            try:
                while sent < 10**9:
                    connection.sendall(piece)
                    sent += len(piece)
            except OSError:
                pass
            assert everything(connection).startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - start < 1
        assert sent < 2**25
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("begin", [b"", b"POST /trans", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"])
def test_a_slow_sender_is_not_waited_for(listening: Any, begin: bytes) -> None:
    with listening(limits=ServerLimits(client_timeout=0.4)) as port:
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(begin)
            threading.Thread(target=dribble, args=(connection, bool(begin)), daemon=True).start()
            found = everything(connection)
        assert 0.3 < time.monotonic() - start < 2
        if b"\r\n\r\n" in begin:
            assert found.startswith(b"HTTP/1.1 408 ")


def dribble(connection: socket.socket, some: bool) -> None:
    try:
        while some:
            connection.sendall(b"x")
            time.sleep(0.1)
    except OSError:
        pass


def test_a_client_that_does_not_take_its_answer_is_not_waited_for(listening: Any) -> None:
    text = json.dumps({"q": ["word " * 1900], "source": "en", "target": "ko", "alternatives": 8}).encode()
    request = HEAD + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
    with listening(limits=ServerLimits(client_timeout=0.4)) as port:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.connect(("127.0.0.1", port))
            connection.settimeout(5)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send_often(connection, request)
        assert ask(port, "GET", "/health")[0] == 200


def send_often(connection: socket.socket, request: bytes) -> None:
    """Answers of 90 KB each, none of which is read."""
    for _ in range(200):
        connection.sendall(request)
        time.sleep(0.01)


def test_what_is_no_http_is_told_so_in_json(listening: Any) -> None:
    with listening() as port:
        for begin in (b"\x16\x03\x01\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /" + b"x" * 131_080):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(begin)
                assert b'{"error": ' in everything(connection)


def test_a_long_text_fits_into_the_query_string(listening: Any) -> None:
    from urllib.parse import urlencode

    query = urlencode({"q": "가" * 5000, "source": "en", "target": "ko"})
    with listening() as port:
        assert ask(port, path=f"/translate?{query}", body=b"")[0] == 200


# ---- the command


def test_sigterm_finishes_what_was_accepted_and_the_log_holds_no_text() -> None:
    with start_server(seconds=0.6) as server:
        assert " en-ko (scripted) on http://127.0.0.1:" in server.first_line
        port, process = server.port, server.process
        with ThreadPoolExecutor(4) as clients:
            asked = [clients.submit(ask, port) for _ in range(4)]
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert [one.result()[0] for one in asked] == [200] * 4
            assert {one.result()[2].get("connection") for one in asked} == {"close"}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2)
        log = server.read_log()
        assert process.returncode == 0
    assert log.count("/translate 200") == 4
    assert "one two" not in log


def manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "manyheads", *arguments]
    return subprocess.run(run, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_model_that_cannot_be_loaded_is_one_clear_line(tmp_path: Path) -> None:
    done = manyheads("serve", str(tmp_path / "nowhere"), "--port=0")
    assert done.returncode == 3
    assert done.stderr.startswith(f"manyheads: {tmp_path}/nowhere")
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_told_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RequestError, match=f"cannot listen on 127.0.0.1:{port} .*choose another --host"):
            bind_socket("127.0.0.1", port)


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    done = manyheads("serve", "nowhere", "--queue=0")
    assert (done.returncode, done.stderr) == (
        2,
        "manyheads: the server's limit queue is 0, but must be above 0\n",
    )


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_that_is_not_finite_is_refused(value: str) -> None:
    for limit in ("deadline", "patience"):
        with pytest.raises(ConfigError, match=f"the server's limit {limit} is {value}, but must be finite"):
            ServerLimits(**{limit: float(value)})


def test_an_empty_key_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHEADS_API_KEY", "")
    done = manyheads("serve", "nowhere", "--port=0")
    assert (done.returncode, done.stderr) == (
        2,
        "manyheads: the API key is empty: give one (--api-key or MANYHEADS_API_KEY), or none at all\n",
    )
