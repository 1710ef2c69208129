"""Fuzzed, oversized and slow requests get documented responses, in time and in little memory."""

import asyncio
import json
import random
import re
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
from pydantic import BaseModel

from manyheads.serve import schemas
from manyheads.serve.deepl_schemas import DeepLTranslateRequest
from support.office_files import make_docx, make_odt
from support.server_process import ServerProcess, start_server
from support.untrained_model import save_untrained_model

pytestmark = pytest.mark.heavy
REQUESTS = 100_000
MODEL_REQUESTS = 4_000
USER_REQUESTS = 2_000
DOCUMENTED = {200, 204, 400, 403, 404, 405, 408, 413, 415, 429, 503}
POST_PATHS = [
    "/translate", "/detect", "/score", "/attention", "/look", "/walk", "/v2/translate", "/translate_file",
]  # fmt: skip
CORRECTION_PATHS = ["/suggest", "/suggest/undo"]  # 403 where corrections are off
GET_PATHS = [
    "/languages",
    "/models",
    "/training",
    "/health",
    "/metrics",
    "/",
    "/docs",
    "/spec",
    "/v2/languages",
    "/glossaries",
    "/frontend/settings",
    "/download_file/x.txt",
]
PATHS = [*POST_PATHS * 3, *CORRECTION_PATHS, *GET_PATHS]
SCHEMAS: dict[str, type[BaseModel]] = {
    "/translate": schemas.TranslateRequest,
    "/detect": schemas.DetectRequest,
    "/score": schemas.ScoreRequest,
    "/attention": schemas.AttentionRequest,
    "/look": schemas.LookRequest,
    "/walk": schemas.WalkRequest,
    "/translate_file": schemas.FileRequest,
    "/suggest": schemas.SuggestRequest,
    "/suggest/undo": schemas.UndoRequest,
    "/v2/translate": DeepLTranslateRequest,
}
FIELDS = {path: set(schema.model_fields) for path, schema in SCHEMAS.items()}
COMMON_FIELDS = {"q", "text", "source", "target", "translation", "s"}
RARE_FIELDS = sorted({name for own in FIELDS.values() for name in own} - COMMON_FIELDS)
FILES = ["a.txt", "a.html", "a.md", "a.srt", "a.po", "a.docx", "a.odt", "a", "../a.exe"]
CONTENT_TYPES = (
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
    {"one": "나는", "": "", "a b": "\n"},
    {"x" * 600: "y"},
    "../secret",
    "terms",
    "keep",
    "decoder",
    "more",
    0.5,
    3,
]


DOCX = make_docx("<w:p><w:r><w:t>one two</w:t></w:r></w:p>")
ODT = make_odt("<text:p>one <text:span>two</text:span></text:p>")


class RequestFuzzer:
    """Generates requests that are nearly valid, or not at all."""

    def __init__(self, seed: int, keys: Sequence[str] = ()) -> None:
        self.rng, self.keys = random.Random(seed), keys

    def request(self) -> bytes:
        rng = self.rng
        path = rng.choice(PATHS) if rng.random() < 0.95 else f"/{rng.randbytes(9).hex()}"
        method = "POST" if path in FIELDS else "GET"
        if rng.random() < 0.05:
            method = rng.choice(["GET", "POST", "PUT", "OPTIONS", "HEAD", "BREW"])
        content_type = (
            rng.choice(CONTENT_TYPES)
            if rng.random() < 0.95
            else rng.choice(["", "text/plain", "x" * 300, "/"])
        )
        if path == "/translate_file" and rng.random() < 0.9:
            content_type = "multipart/form-data; boundary=b"
        body = self.body(content_type, path)
        host = (
            "localhost" if rng.random() < 0.97 else rng.choice(["", "evil.org", "[::", "a b", "localhost:x"])
        )
        query = f"?{self.form(path)}" if rng.random() < 0.1 else ""
        head = f"{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {content_type}\r\n"
        if self.keys:
            head += f"Authorization: Bearer {rng.choice(self.keys)}\r\n"
        elif rng.random() < 0.03:
            head += rng.choice(
                ["Origin: null\r\n", "Origin: http://localhost\r\n", "Authorization: Bearer\r\n"]
            )
        return self.corrupt(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1", "replace") + body)

    def corrupt(self, request: bytes) -> bytes:
        """Make one in fifty invalid HTTP."""
        if self.rng.random() > 0.02:
            return request
        at = self.rng.randrange(len(request))
        return request[:at] + self.rng.randbytes(self.rng.randint(1, 9)) + request[at:] + b"\r\n\r\n"

    def body(self, content_type: str, path: str) -> bytes:
        rng = self.rng
        if rng.random() < 0.05:
            return rng.randbytes(rng.randint(0, 300))
        if content_type.startswith("application/json"):
            body = json.dumps(self.fields(path)).encode("utf-8", "surrogatepass")
        elif content_type.startswith("multipart"):
            body = b"".join(
                f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode(
                    "utf-8", "replace"
                )
                for key, value in self.fields(path).items()
            )
            body += self.file() if path == "/translate_file" else b""
            body += b"--b--\r\n"
        else:
            body = self.form(path).encode()
        if rng.random() < 0.1:
            at = rng.randrange(len(body) + 1)
            body = body[:at] + rng.choice([b"", rng.randbytes(3), b"[" * 3000]) + body[at + 1 :]
        return body

    def file(self) -> bytes:
        """A part with a document, of which some have damaged bytes."""
        rng = self.rng
        name = rng.choice(FILES)
        content = f"{self.text()}\n{self.text()}\n".encode("utf-8", "replace")
        if name.endswith((".docx", ".odt")):
            content = DOCX if name.endswith(".docx") else ODT
        if rng.random() < 0.2:
            at = rng.randrange(len(content) + 1)
            content = content[:at] + rng.randbytes(2) + content[at + 1 :]
        head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        return head.encode() + content + b"\r\n"

    def form(self, path: str) -> str:
        return urlencode({k: str(v).encode("utf-8", "replace") for k, v in self.fields(path).items()})

    def fields(self, path: str) -> dict[str, object]:
        """Return the fields that a path knows, and now and then others."""
        values = self.draw_fields()
        if path == "/v2/translate":
            values |= {"text": values.get("q", "a b"), "target_lang": "KO", "source_lang": "EN"}
        known = FIELDS.get(path, {"type", "auth_key"})
        return {key: value for key, value in values.items() if key in known or self.rng.random() < 0.005}

    def draw_fields(self) -> dict[str, object]:
        rng = self.rng
        values: dict[str, object] = {"q": self.text(), "source": "en", "target": "ko"}
        if rng.random() < 0.3:
            values["q"] = [self.text() for _ in range(rng.choice([0, 1, 3, 101]))]
        if rng.random() < 0.2:
            values["format"] = "html"
        if rng.random() < 0.3:
            values["translation"] = values["s"] = values["q"]
        values |= {key: rng.choice(VALUES) for key in RARE_FIELDS if rng.random() < 0.03}
        for key in ("q", "source", "target", "format", "translation", "s"):
            if rng.random() < 0.05:
                values[key] = rng.choice(VALUES)
            if rng.random() < 0.03:
                values.pop(key, None)
        return values

    def text(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(0, 4)))


class Connection:
    """A connection that is reused as long as the server keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> int:
        """Return the status; 0 if the server closed without one, as it may after invalid HTTP."""
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
            # After invalid HTTP it is not known where the next response begins.
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


async def fuzz(port: int, count: int, seed: int, seen: "Counter[int]", keys: Sequence[str] = ()) -> None:
    requests, connection = RequestFuzzer(seed, keys), Connection(port)
    for _ in range(count):
        request = requests.request()
        status = await asyncio.wait_for(connection.send(request), 60)
        seen[status] += 1
        assert status in DOCUMENTED or status == 0, (status, request)
    await connection.close()


def test_a_hundred_thousand_fuzzed_requests_get_documented_responses() -> None:
    seen: Counter[int] = Counter()

    async def run_all(port: int) -> None:
        await asyncio.gather(*(fuzz(port, REQUESTS // 20, seed, seen) for seed in range(20)))

    with start_server("--quiet", "--client-timeout=2") as server:
        before = server.megabytes
        asyncio.run(run_all(server.port))
        assert sum(seen.values()) == REQUESTS
        assert seen[200] > REQUESTS / 5, seen
        assert seen[0] < REQUESTS / 30, seen
        assert server.megabytes - before < 64
        server.process.terminate()
        assert "Traceback" not in server.read_log()
    print(dict(seen))


def test_fuzzed_requests_to_a_model_get_documented_responses(tmp_path: Path) -> None:
    """Fewer requests, but with search, alignment, tag placement and attention maps."""
    seen: Counter[int] = Counter()

    async def run_all(port: int) -> None:
        await asyncio.gather(*(fuzz(port, MODEL_REQUESTS // 8, 100 + seed, seen) for seed in range(8)))

    with start_server(
        "--quiet", "--client-timeout=2", model=save_untrained_model(tmp_path / "model")
    ) as server:
        asyncio.run(run_all(server.port))
        assert sum(seen.values()) == MODEL_REQUESTS
        assert seen[200] > MODEL_REQUESTS / 5, seen
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as response:
            metrics = response.read().decode()
        for path in POST_PATHS:
            assert re.search(rf'_total{{path="{path}",status="200"}} \d{{2,}}', metrics), path
        server.process.terminate()
        assert "Traceback" not in server.read_log()
    print(dict(seen))


def test_fuzzed_requests_of_two_users_to_two_front_ends_get_documented_responses(tmp_path: Path) -> None:
    """API keys, corrections that are stored, used and undone, and stored glossaries."""
    seen: Counter[int] = Counter()
    (tmp_path / "keys").write_text("ann key-of-ann\nben key-of-ben\n")
    (tmp_path / "glossaries").mkdir()
    (tmp_path / "glossaries" / "terms.tsv").write_text("one\t나는\n")
    options = [f"--api-keys={tmp_path / 'keys'}", f"--glossaries={tmp_path / 'glossaries'}"]

    async def run_all(port: int) -> None:
        keys = ["key-of-ann", "key-of-ben"]
        await asyncio.gather(*(fuzz(port, USER_REQUESTS // 8, 200 + seed, seen, keys) for seed in range(8)))

    model = save_untrained_model(tmp_path / "model")
    with start_server(
        "--quiet", "--client-timeout=2", "--corrections", "--processes=2", *options, model=model
    ) as server:
        asyncio.run(run_all(server.port))
        assert sum(seen.values()) == USER_REQUESTS
        assert seen[200] > USER_REQUESTS / 5, seen
        url = f"http://127.0.0.1:{server.port}/metrics?api_key=key-of-ann"
        with urllib.request.urlopen(url) as response:
            metrics = response.read().decode()
        for path in CORRECTION_PATHS:
            assert f'_total{{path="{path}",status="200"}}' in metrics, path
        server.process.terminate()
        assert "Traceback" not in server.read_log()
    print(dict(seen))


# ---- oversized and slow requests


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FORM = HEAD.replace(b"application/json", b"application/x-www-form-urlencoded")


def with_length(head: bytes, body: bytes) -> bytes:
    return head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def send_gigabyte(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 1073741824\r\n\r\n")
    for _ in range(2**14):
        connection.sendall(b" " * 2**16)


def send_gigabyte_chunked(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(2**14):
        connection.sendall(b"10000\r\n" + b" " * 2**16 + b"\r\n")


def send_million_fields(connection: socket.socket) -> None:
    connection.sendall(with_length(FORM, b"a=1&" * 1_000_000))


def send_max_fields(connection: socket.socket) -> None:
    connection.sendall(with_length(FORM, b"a=1&" * 250_000))


def send_max_keys(connection: socket.socket) -> None:
    keys = b",".join(b'"%d":0' % n for n in range(95_000))
    connection.sendall(with_length(HEAD, b"{%s}" % keys))


def send_deep_json(connection: socket.socket) -> None:
    connection.sendall(with_length(HEAD, b'{"q":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


def send_many_parts(connection: socket.socket) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    content_type = HEAD.replace(b"application/json", b"multipart/form-data; boundary=b")
    connection.sendall(with_length(content_type, part * 19_000 + b"--b--\r\n"))


@pytest.fixture(scope="module")
def server() -> object:
    with start_server("--quiet", "--client-timeout=2") as process:
        send_and_read_status(process.port, lambda connection: connection.sendall(with_length(HEAD, b"{}")))
        yield process


def send_and_read_status(port: int, send: Callable[[socket.socket], None]) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(OSError):  # the server has answered already
            send(connection)
        received = b""
        with suppress(ConnectionResetError):
            while b"\r\n" not in received and (chunk := connection.recv(65536)):
                received += chunk
        return int(received.split()[1]) if received else 0


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (send_gigabyte, 413),
        (send_gigabyte_chunked, 413),
        (send_million_fields, 413),
        (send_max_fields, 400),
        (send_max_keys, 400),
        (send_deep_json, 400),
        (send_many_parts, 400),
    ],
)
def test_oversized_requests_are_rejected_within_a_second_in_little_memory(
    server: ServerProcess, send: Callable[[socket.socket], None], status: int
) -> None:
    before = server.megabytes
    start = time.monotonic()
    assert send_and_read_status(server.port, send) == status
    assert time.monotonic() - start < 1
    assert server.megabytes - before < 64


def test_slow_clients_time_out_in_little_memory_while_others_are_served(
    server: ServerProcess,
) -> None:
    before = server.megabytes
    start = time.monotonic()
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(300)]
    for number, connection in enumerate(slow):
        begin = HEAD + b"Content-Length: 1000000\r\n\r\n" if number % 2 else HEAD
        connection.sendall(begin + b"x" * 20_000 * (number % 2))
    good = with_length(HEAD, b'{"q": "a b", "source": "en", "target": "ko"}')
    assert send_and_read_status(server.port, lambda connection: connection.sendall(good)) == 200
    ends = [read_to_end(connection) for connection in slow]
    assert all(end.startswith(b"HTTP/1.1 408") for end in ends[1::2])
    assert time.monotonic() - start < 2 + 3
    assert server.megabytes - before < 64


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    with connection, suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            received += chunk
    return received
