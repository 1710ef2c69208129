"""The server on a socket: simultaneous, slow, disconnected and oversized clients, and the command."""

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


def send_request(
    port: int, method: str = "POST", path: str = "/translate", body: bytes = BODY
) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), dict(response.getheaders())
    finally:
        connection.close()


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the connection is closed or reset."""
    received = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def test_requests_that_arrive_during_a_batch_form_the_next_batch(run_server: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with run_server(translator) as port, ThreadPoolExecutor(21) as clients:
        first = clients.submit(send_request, port)
        assert translator.started.wait(5)
        others = [clients.submit(send_request, port) for _ in range(20)]
        wait_for_metric(port, "manyheads_waiting_requests 20.0")
        start = time.monotonic()
        assert send_request(port, "GET", "/health")[0] == 200, "health answers while the model works"
        assert time.monotonic() - start < 1
        translator.release.set()  # type: ignore[union-attr]
        assert all(future.result()[1] == {"translatedText": "two one"} for future in (first, *others))
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


def test_a_full_queue_is_503_with_retry_after(run_server: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with run_server(translator, limits=ServerLimits(queue_size=2)) as port, ThreadPoolExecutor(3) as clients:
        accepted = [clients.submit(send_request, port)]
        assert translator.started.wait(5)
        accepted += [clients.submit(send_request, port) for _ in range(2)]
        wait_for_metric(port, "manyheads_waiting_requests 2.0")
        start = time.monotonic()
        status, response, headers = send_request(port)
        assert (status, response) == (503, {"error": "the queue is full: 2 requests are waiting"})
        assert int(headers["retry-after"]) >= 1
        assert time.monotonic() - start < 1
        assert send_request(port, "GET", "/health")[0] == 200
        translator.release.set()  # type: ignore[union-attr]
        assert [future.result()[0] for future in accepted] == [200] * 3


def test_a_disconnected_client_frees_its_slot(run_server: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with run_server(translator, limits=ServerLimits(queue_size=1)) as port, ThreadPoolExecutor(3) as clients:
        first = clients.submit(send_request, port)
        assert translator.started.wait(5)
        leaving = socket.create_connection(("127.0.0.1", port))
        leaving.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        wait_for_metric(port, "manyheads_waiting_requests 1.0")
        assert send_request(port)[0] == 503
        leaving.close()
        wait_for_metric(port, "manyheads_waiting_requests 0.0")
        last = clients.submit(send_request, port)
        wait_for_metric(port, "manyheads_waiting_requests 1.0")
        translator.release.set()  # type: ignore[union-attr]
        assert (first.result()[0], last.result()[0]) == (200, 200)
    assert [len(call) for call in translator.calls] == [1, 1], "the canceled request did not run"


def test_requests_time_out(run_server: Any) -> None:
    translator = ScriptedTranslator(release=threading.Event())
    with run_server(translator, limits=ServerLimits(request_timeout=0.3)) as port:
        start = time.monotonic()
        status, response, headers = send_request(port)
        translator.release.set()  # type: ignore[union-attr]
        assert (status, response) == (503, {"error": "not completed within 0.3 seconds"})
        assert "retry-after" in headers
        assert 0.2 < time.monotonic() - start < 2
        assert send_request(port)[0] == 200


@pytest.mark.parametrize("has_length", [True, False])
def test_an_endless_body_is_rejected_once_it_is_too_large(run_server: Any, has_length: bool) -> None:
    """A gigabyte with a Content-Length, or in chunks without one."""
    head = HEAD + (
        b"Content-Length: 1000000000\r\n\r\n" if has_length else b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"x" * 65536 if has_length else b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with run_server() as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head)
            sent = 0
            try:
                while sent < 10**9:
                    connection.sendall(chunk)
                    sent += len(chunk)
            except OSError:
                pass
            assert read_to_end(connection).startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - start < 1
        assert sent < 2**25
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("begin", [b"", b"POST /trans", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"])
def test_slow_senders_time_out(run_server: Any, begin: bytes) -> None:
    with run_server(limits=ServerLimits(client_timeout=0.4)) as port:
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(begin)
            threading.Thread(target=send_slowly, args=(connection, bool(begin)), daemon=True).start()
            received = read_to_end(connection)
        assert 0.3 < time.monotonic() - start < 2
        if b"\r\n\r\n" in begin:
            assert received.startswith(b"HTTP/1.1 408 ")


def send_slowly(connection: socket.socket, enabled: bool) -> None:
    try:
        while enabled:
            connection.sendall(b"x")
            time.sleep(0.1)
    except OSError:
        pass


def test_clients_that_do_not_read_their_response_time_out(run_server: Any) -> None:
    text = json.dumps({"q": ["word " * 1900], "source": "en", "target": "ko", "alternatives": 8}).encode()
    request = HEAD + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
    with run_server(limits=ServerLimits(client_timeout=0.4)) as port:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            connection.connect(("127.0.0.1", port))
            connection.settimeout(5)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                send_repeatedly(connection, request)
        assert send_request(port, "GET", "/health")[0] == 200


def send_repeatedly(connection: socket.socket, request: bytes) -> None:
    """Request responses of 90 KB each, and read none of them."""
    for _ in range(200):
        connection.sendall(request)
        time.sleep(0.01)


def test_invalid_http_is_answered_in_json(run_server: Any) -> None:
    with run_server() as port:
        for begin in (b"\x16\x03\x01\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /" + b"x" * 131_080):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(begin)
                assert b'{"error": ' in read_to_end(connection)


def test_a_long_text_fits_into_the_query_string(run_server: Any) -> None:
    from urllib.parse import urlencode

    query = urlencode({"q": "가" * 5000, "source": "en", "target": "ko"})
    with run_server() as port:
        assert send_request(port, path=f"/translate?{query}", body=b"")[0] == 200


# ---- the command


def test_sigterm_finishes_accepted_requests_and_the_log_holds_no_texts() -> None:
    with start_server(seconds=0.6) as server:
        assert server.loading_line.endswith(" loading .\n")
        assert " en-ko (scripted) on http://127.0.0.1:" in server.address_line
        port, process = server.port, server.process
        with ThreadPoolExecutor(4) as clients:
            futures = [clients.submit(send_request, port) for _ in range(4)]
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert [future.result()[0] for future in futures] == [200] * 4
            assert {future.result()[2].get("connection") for future in futures} == {"close"}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2)
        log = server.read_log()
        assert process.returncode == 0
    assert log.count("/translate 200") == 4
    assert "one two" not in log


def run_manyheads(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "manyheads", *arguments]
    return subprocess.run(run, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_model_that_cannot_be_loaded_is_a_one_line_error(tmp_path: Path) -> None:
    process = run_manyheads("serve", str(tmp_path / "nowhere"), "--port=0")
    assert process.returncode == 3
    loading, message = process.stderr.splitlines()
    assert loading.endswith(f" loading {tmp_path}/nowhere")
    assert message.startswith(f"manyheads: {tmp_path}/nowhere")


def test_a_port_in_use_is_an_error_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RequestError, match=f"cannot listen on 127.0.0.1:{port} .*choose another --host"):
            bind_socket("127.0.0.1", port)


def test_limits_must_be_greater_than_zero() -> None:
    process = run_manyheads("serve", ".", "--queue-size=0")
    assert (process.returncode, process.stderr) == (
        2,
        "manyheads: the server limit queue_size is 0, but must be greater than 0\n",
    )


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_limits_must_be_finite(value: str) -> None:
    for limit in ("request_timeout", "client_timeout"):
        with pytest.raises(ConfigError, match=f"the server limit {limit} is {value}, but must be finite"):
            ServerLimits(**{limit: float(value)})


def test_an_empty_api_key_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYHEADS_API_KEY", "")
    process = run_manyheads("serve", ".", "--port=0")
    assert (process.returncode, process.stderr) == (
        2,
        "manyheads: the API key is empty: set one with --api-key or MANYHEADS_API_KEY, or unset both\n",
    )
