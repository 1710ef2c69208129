"""Requests that a proxy could read differently, guesses of the API key, and requests with too much work."""

import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import h11
import pytest

from manyheads.serve.clients import MAX_TRACKED_CLIENTS, ClientLimiter, identify_client
from manyheads.serve.limits import ServerLimits
from manyheads.serve.responses import RequestRejected
from manyheads.serve.strict_http import MAX_CHUNKS, StrictReceiveBuffer, find_problem

BODY = b'{"q": "one two", "source": "en", "target": "ko"}'
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
SECOND = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # must not be answered

AMBIGUOUS = {
    "length and encoding": HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "encoding and length": HEAD + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKED,
    "other case": HEAD + b"transfer-ENCODING: chunked\r\n" + LENGTH + b"\r\n" + CHUNKED,
    "two lengths": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": HEAD + b"Content-Length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
    "an encoding in HTTP/1.0": HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "two encodings": HEAD + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n" + CHUNKED,
    "bare LF after a header": HEAD + LENGTH[:-2] + b"\n\r\n" + BODY,
    "bare LF after the request line": HEAD.replace(b"1.1\r\n", b"1.1\n") + LENGTH + b"\r\n" + BODY,
    "bare LF after the headers": HEAD + LENGTH + b"\n" + BODY,
    "bare LF everywhere": (HEAD + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "bare CR": HEAD + b"X: a\rb\r\n" + LENGTH + b"\r\n" + BODY,
    "folded by a space": HEAD + b"X: a\r\n b\r\n" + LENGTH + b"\r\n" + BODY,
    "folded by a tab": HEAD + b"X: a\r\n\tTransfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
    "leading LF": b"\n" + HEAD + LENGTH + b"\r\n" + BODY,
}


def exchange(port: int, request: bytes) -> bytes:
    """Send a request, and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        response = b""
        while part := connection.recv(65536):
            response += part
        return response


def test_ambiguous_requests_are_refused_and_the_connection_is_closed(run_server: Any) -> None:
    with run_server() as port:
        for name, request in AMBIGUOUS.items():
            response = exchange(port, request + SECOND)
            assert response.startswith(b"HTTP/1.1 400 "), name
            assert response.count(b"HTTP/1.1") == 1, f"{name}: the second request was answered"
            assert b'"error"' in response
        chunked_head = HEAD + b"Transfer-Encoding: chunked\r\n"
        for body in (
            CHUNKED[:-2] + b"X: a\n\r\n",
            *(CHUNKED.replace(b"\r\n", end + b"\r\n", 1) for end in (b";a\rb", b";\r", b"\r")),
            CHUNKED.replace(b"\r\n", b";a\nb\r\n", 1),
            CHUNKED.replace(b"}\r\n", b"}XX", 1),
        ):
            assert exchange(port, chunked_head + b"\r\n" + body + SECOND) == b"", body
        close = b"Connection: close\r\n\r\n"
        for request in (HEAD + LENGTH + close + BODY, chunked_head + close + CHUNKED):
            assert exchange(port, request).startswith(b"HTTP/1.1 200 ")


def test_a_pipelined_request_is_looked_at_as_the_first(run_server: Any) -> None:
    with run_server() as port:
        response = exchange(port, HEAD + LENGTH + b"\r\n" + BODY + AMBIGUOUS["bare LF everywhere"])
        assert [part[:3] for part in response.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_a_body_in_countless_chunks_is_refused() -> None:
    """A chunk takes microseconds, however small it is: a megabyte in chunks of a byte takes seconds."""
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for num_chunks in (MAX_CHUNKS - 1, 100 * MAX_CHUNKS):
        connection = h11.Connection(h11.SERVER)
        connection._receive_buffer = StrictReceiveBuffer()
        connection.receive_data(head + b"1\r\nx\r\n" * num_chunks + b"0\r\n\r\n")
        events = 0
        with suppress(h11.RemoteProtocolError):
            while connection.next_event() not in (h11.NEED_DATA, h11.PAUSED):
                events += 1
        assert events == min(num_chunks, MAX_CHUNKS) + (2 if num_chunks < MAX_CHUNKS else 1)


def test_ordinary_heads_have_no_problem() -> None:
    assert find_problem(HEAD + LENGTH + b"X:\r\nY: a b\tc\r\n\r\n") == ""
    assert find_problem(b"\r\n") == ""


# ---- the API key


def test_guesses_of_the_api_key_are_limited(create_client: Any) -> None:
    body = {"q": "a", "source": "en", "target": "ko"}
    with create_client(api_key="right", limits=ServerLimits(max_wrong_keys=3)) as client:
        assert client.post("/translate", json={**body, "api_key": "right"}).status_code == 200
        for _ in range(5):
            assert client.post("/translate", json=body).status_code == 403, "without a key it is no guess"
        codes = [client.post("/translate", json={**body, "api_key": f"{n}"}).status_code for n in range(6)]
        assert codes == [403, 403, 403, 429, 429, 429]
        response = client.post("/translate", json={**body, "api_key": "right"})
        assert response.status_code == 429, "whatever the key is"
        assert "too many wrong API keys" in response.json()["error"]
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert client.get("/models", headers={"Authorization": "Bearer right"}).status_code == 429
        assert client.get("/health").status_code == 200


def test_events_are_forgotten_at_a_steady_rate() -> None:
    now = [0.0]
    limiter = ClientLimiter("wrong API keys", 4, 60, clock=lambda: now[0])
    for _ in range(4):
        limiter.check("a")
        limiter.record("a")
    with pytest.raises(RequestRejected) as caught:
        limiter.check("a")
    assert caught.value.headers == {"retry-after": "15"}
    limiter.check("b")
    now[0] = 15.1
    limiter.check("a")
    limiter.record("a")
    with pytest.raises(RequestRejected):
        limiter.check("a")


def test_the_number_of_clients_that_are_remembered_is_bounded() -> None:
    limiter = ClientLimiter("wrong API keys", 4, 60)
    for number in range(MAX_TRACKED_CLIENTS + 5):
        limiter.record(str(number))
    assert len(limiter._events) == MAX_TRACKED_CLIENTS


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:9::1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", ""),  # no address: all such clients are one
    ],
)
def test_clients_are_known_by_their_address_or_network(host: str, client: str) -> None:
    request: Any = SimpleNamespace(client=SimpleNamespace(host=host))
    assert identify_client(request) == client


# ---- work


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": "a\n" * 6}, "the request has 6 sentences, but the maximum is 5: send fewer at once"),
        ({"q": ["a\n\nb", "c\nd", "e\nf"]}, "the request has 6 sentences"),
        ({"q": "a " * 101}, "the request has 101 tokens, but the maximum is 100 for a search with 4"),
        ({"q": "a " * 60, "alternatives": 7}, "60 tokens, but the maximum is 50 for a search with 8"),
        ({"q": "<p>a</p>" * 6, "format": "html"}, "the request has 6 sentences"),
    ],
)
def test_a_request_with_too_much_work_is_a_400(create_client: Any, fields: Any, message: str) -> None:
    limits = ServerLimits(max_sentences=5, max_beam_tokens=400)
    with create_client(limits=limits) as client:
        response = client.post("/translate", json={"source": "en", "target": "ko", **fields})
        assert response.status_code == 400
        assert message in response.json()["error"]
        fields = {"q": "a b c", "source": "en", "target": "ko"}
        assert client.post("/translate", json=fields).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/translate", {"q": [1] * 20_000}, "q has 20000 texts, but the maximum is 100"),
        ("/translate", {"q": "a", "forbid": [1] * 20_000}, "forbid has 20000 items, but the maximum is 1000"),
        (
            "/translate",
            {"q": "a", "glossary": {str(n): n for n in range(20_000)}},
            "glossary has 20000 items, but the maximum is 1000",
        ),
        ("/score", {"q": "a", "translation": [1] * 20_000}, "translation has 20000 texts"),
        ("/v2/translate", {"text": [1] * 20_000, "target_lang": "ko"}, "text has 20000 texts"),
        (
            "/v2/translate",
            {"text": "a", "target_lang": "ko", "custom_instructions": [1] * 20_000},
            "custom_instructions has 20000 items",
        ),
    ],
)
def test_long_lists_are_refused_before_their_items_are_looked_at(
    create_client: Any, path: str, fields: Any, message: str
) -> None:
    """A megabyte of wrong items took three seconds, in which nobody was answered."""
    languages = {} if path == "/v2/translate" else {"source": "en", "target": "ko"}
    with create_client() as client:
        response = client.post(path, json={**languages, **fields})
        assert response.status_code == 400
        error = response.json()
        assert message in (error.get("error") or error["message"])
