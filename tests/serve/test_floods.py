"""Whatever is sent, however much of it: an answer that was promised, in time, and in little memory."""

import asyncio
import json
import random
import re
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from support.server_process import ServerProcess, start_server
from support.untrained_model import save_untrained_model

pytestmark = pytest.mark.heavy
REQUESTS = 100_000
OF_A_MODEL = 4_000
PROMISED = {200, 204, 400, 403, 404, 405, 408, 413, 415, 503}
ASKED = ["/translate", "/detect", "/score", "/attention", "/look", "/walk"]
PATHS = [*ASKED * 3, "/languages", "/models", "/training", "/health", "/metrics", "/"]
KINDS = (
    ["application/json"] * 6 + ["application/x-www-form-urlencoded"] * 3 + ["multipart/form-data; boundary=b"]
)
WORDS = [
    "one",
    "나는",
    "🙂",
    "<b>",
    "</b>",
    "<a",
    "<a" * 2000,
    "<p class=notranslate",
    "&amp;",
    "\x00",
    "\ud800",
    "impossible",
    "",
    "a" * 500,
    "%",
    "\u2028",
]
VALUES = [
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    "",
    "en",
    "ko",
    "auto",
    "html",
    [],
    {},
    [[]],
    ["a"],
    {"a": {"b": []}},
]


class Fuzz:
    """Requests that are nearly right, or not at all."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def request(self) -> bytes:
        chance = self.chance
        path = chance.choice(PATHS) if chance.random() < 0.95 else f"/{chance.randbytes(9).hex()}"
        method = "POST" if path in ASKED else "GET"
        if chance.random() < 0.05:
            method = chance.choice(["GET", "POST", "PUT", "OPTIONS", "HEAD", "BREW"])
        kind = (
            chance.choice(KINDS)
            if chance.random() < 0.95
            else chance.choice(["", "text/plain", "x" * 300, "/"])
        )
        body = self.body(kind)
        host = (
            "localhost"
            if chance.random() < 0.97
            else chance.choice(["", "evil.org", "[::", "a b", "localhost:x"])
        )
        query = f"?{self.form()}" if chance.random() < 0.1 else ""
        head = f"{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\n"
        if chance.random() < 0.03:
            head += chance.choice(
                ["Origin: null\r\n", "Origin: http://localhost\r\n", "Authorization: Bearer\r\n"]
            )
        return self.broken(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1", "replace") + body)

    def broken(self, request: bytes) -> bytes:
        """One in fifty is no sound HTTP."""
        if self.chance.random() > 0.02:
            return request
        at = self.chance.randrange(len(request))
        return request[:at] + self.chance.randbytes(self.chance.randint(1, 9)) + request[at:] + b"\r\n\r\n"

    def body(self, kind: str) -> bytes:
        chance = self.chance
        if chance.random() < 0.05:
            return chance.randbytes(chance.randint(0, 300))
        if kind.startswith("application/json"):
            body = json.dumps(self.fields()).encode("utf-8", "surrogatepass")
        elif kind.startswith("multipart"):
            body = b"".join(
                f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode(
                    "utf-8", "replace"
                )
                for key, value in self.fields().items()
            )
            body += b"--b--\r\n"
        else:
            body = self.form().encode()
        if chance.random() < 0.1:
            at = chance.randrange(len(body) + 1)
            body = body[:at] + chance.choice([b"", chance.randbytes(3), b"[" * 3000]) + body[at + 1 :]
        return body

    def form(self) -> str:
        return urlencode({k: str(v).encode("utf-8", "replace") for k, v in self.fields().items()})

    def fields(self) -> dict[str, object]:
        chance = self.chance
        said: dict[str, object] = {"q": self.text(), "source": "en", "target": "ko"}
        if chance.random() < 0.3:
            said["q"] = [self.text() for _ in range(chance.choice([0, 1, 3, 101]))]
        if chance.random() < 0.2:
            said["format"] = "html"
        for key in (
            "q",
            "source",
            "target",
            "format",
            "alternatives",
            "details",
            "translation",
            "model",
            "api_key",
        ):
            if chance.random() < 0.1:
                said[key] = chance.choice(VALUES)
            if chance.random() < 0.03:
                said.pop(key, None)
        return said

    def text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(0, 4)))


class Connection:
    """To the server, kept as long as it keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def status_of(self, request: bytes) -> int:
        """0 if the server closed without one, as it may if it was no HTTP."""
        self.streams = self.streams or await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        status, closing = 0, True
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            lengths = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            if lengths and not request.startswith(b"HEAD"):
                await reader.readexactly(int(lengths[0]))
            status = int(head.split()[1])
            # After what is no sound HTTP nobody knows where the next answer begins.
            closing = b"connection: close" in head or request.endswith(b"\r\n\r\n")
        if closing:
            await self.close()
        return status

    async def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            with suppress(ConnectionError):
                await self.streams[1].wait_closed()
        self.streams = None


async def fuzz(port: int, count: int, seed: int, seen: "Counter[int]") -> None:
    requests, connection = Fuzz(seed), Connection(port)
    for _ in range(count):
        request = requests.request()
        status = await asyncio.wait_for(connection.status_of(request), 10)
        seen[status] += 1
        assert status in PROMISED or status == 0, (status, request)
    await connection.close()


def test_a_hundred_thousand_fuzzed_requests_get_answers_that_were_promised() -> None:
    seen: Counter[int] = Counter()

    async def all_of_them(port: int) -> None:
        await asyncio.gather(*(fuzz(port, REQUESTS // 20, seed, seen) for seed in range(20)))

    with start_server("--quiet", "--patience=2") as server:
        before = server.megabytes
        asyncio.run(all_of_them(server.port))
        assert sum(seen.values()) == REQUESTS
        assert seen[200] > REQUESTS / 5, seen
        assert seen[0] < REQUESTS / 30, seen
        assert server.megabytes - before < 64
        server.process.terminate()
        assert "Traceback" not in server.read_log()
    print(dict(seen))


def test_fuzzed_requests_to_a_model_get_answers_that_were_promised(tmp_path: Path) -> None:
    """Fewer, but through searching, aligning, placing tags and attention maps."""
    seen: Counter[int] = Counter()

    async def all_of_them(port: int) -> None:
        await asyncio.gather(*(fuzz(port, OF_A_MODEL // 8, 100 + seed, seen) for seed in range(8)))

    with start_server("--quiet", "--patience=2", model=save_untrained_model(tmp_path / "model")) as server:
        asyncio.run(all_of_them(server.port))
        assert sum(seen.values()) == OF_A_MODEL
        assert seen[200] > OF_A_MODEL / 5, seen
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as told:
            metrics = told.read().decode()
        for path in ASKED:
            assert re.search(rf'_total{{path="{path}",status="200"}} \d{{2,}}', metrics), path
        server.process.terminate()
        assert "Traceback" not in server.read_log()
    print(dict(seen))


# ---- too much


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FORM = HEAD.replace(b"application/json", b"application/x-www-form-urlencoded")


def sized(head: bytes, body: bytes) -> bytes:
    return head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def a_gigabyte(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 1073741824\r\n\r\n")
    for _ in range(2**14):
        connection.sendall(b" " * 2**16)


def a_gigabyte_in_chunks(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(2**14):
        connection.sendall(b"10000\r\n" + b" " * 2**16 + b"\r\n")


def a_million_fields(connection: socket.socket) -> None:
    connection.sendall(sized(FORM, b"a=1&" * 1_000_000))


def as_many_fields_as_fit(connection: socket.socket) -> None:
    connection.sendall(sized(FORM, b"a=1&" * 250_000))


def as_many_keys_as_fit(connection: socket.socket) -> None:
    keys = b",".join(b'"%d":0' % n for n in range(95_000))
    connection.sendall(sized(HEAD, b"{%s}" % keys))


def deep_json(connection: socket.socket) -> None:
    connection.sendall(sized(HEAD, b'{"q":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


def many_parts(connection: socket.socket) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    kind = HEAD.replace(b"application/json", b"multipart/form-data; boundary=b")
    connection.sendall(sized(kind, part * 19_000 + b"--b--\r\n"))


@pytest.fixture(scope="module")
def server() -> object:
    with start_server("--quiet", "--patience=2") as found:
        status_after(found.port, lambda connection: connection.sendall(sized(HEAD, b"{}")))
        yield found


def status_after(port: int, send: Callable[[socket.socket], None]) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(OSError):  # the server has said what it has to say
            send(connection)
        found = b""
        with suppress(ConnectionResetError):
            while b"\r\n" not in found and (piece := connection.recv(65536)):
                found += piece
        return int(found.split()[1]) if found else 0


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (a_gigabyte, 413),
        (a_gigabyte_in_chunks, 413),
        (a_million_fields, 413),
        (as_many_fields_as_fit, 400),
        (as_many_keys_as_fit, 400),
        (deep_json, 400),
        (many_parts, 400),
    ],
)
def test_what_is_too_much_is_refused_within_a_second_and_in_little_memory(
    server: ServerProcess, send: Callable[[socket.socket], None], status: int
) -> None:
    before = server.megabytes
    start = time.monotonic()
    assert status_after(server.port, send) == status
    assert time.monotonic() - start < 1
    assert server.megabytes - before < 64


def test_three_hundred_slow_senders_time_out_in_little_memory_while_others_are_served(
    server: ServerProcess,
) -> None:
    before = server.megabytes
    start = time.monotonic()
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(300)]
    for number, connection in enumerate(slow):
        begin = HEAD + b"Content-Length: 1000000\r\n\r\n" if number % 2 else HEAD
        connection.sendall(begin + b"x" * 20_000 * (number % 2))
    good = sized(HEAD, b'{"q": "a b", "source": "en", "target": "ko"}')
    assert status_after(server.port, lambda connection: connection.sendall(good)) == 200
    ends = [ended(connection) for connection in slow]
    assert all(end.startswith(b"HTTP/1.1 408") for end in ends[1::2])
    assert time.monotonic() - start < 2 + 3
    assert server.megabytes - before < 64


def ended(connection: socket.socket) -> bytes:
    found = b""
    with connection, suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            found += piece
    return found
