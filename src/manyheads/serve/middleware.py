"""What stands before everything else: who may ask, how much may be sent, and how long that may take.

It is plain ASGI and reads the body itself, piece by piece, so that nothing is parsed that is too large.
"""

import asyncio
import ipaddress
import json
import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from manyheads.errors import ConfigError
from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import JobQueue

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("manyheads.serve")
INTERNAL_ERROR = "a fault of the server; its log says where"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARD_ADDRESSES = ("0.0.0.0", "::", "")
QUEUED_PATHS = frozenset(["/translate", "/score", "/attention", "/look", "/walk"])  # what waits for the model
HOST_PATTERN = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)
ORIGIN_PATTERN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
DEFAULT_PORTS = {"http": "80", "https": "443"}
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class RequestRejected(Exception):
    """An answer that is no result."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class ClientDisconnected(Exception):
    """Nobody waits for an answer."""


@dataclass(frozen=True)
class AllowedHosts:
    """Under which names the server may be called, and from which pages.

    A page elsewhere that has a name lead here (DNS rebinding) is told by its Host; one that asks across
    by its Origin. Bound to every address, the server may be called by any address, but by no other name.
    """

    hosts: frozenset[str]
    allow_any_address: bool = False
    origins: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def for_host(cls, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> "AllowedHosts":
        names = {*LOOPBACK, host.strip("[]").lower(), *(one.strip("[]").lower() for one in hosts)}
        return cls(
            frozenset(names - set(WILDCARD_ADDRESSES)),
            host in WILDCARD_ADDRESSES,
            frozenset(map(normalize_origin, origins)),
        )

    def check(self, hosts: list[str], origins: list[str]) -> None:
        name = parse_host(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self.hosts or (self.allow_any_address and is_address(name))):
            raise RequestRejected(
                403, f"Host {','.join(hosts)[:100]!r} is not this server's: start it with --allow-host"
            )
        for origin in origins:
            own = parse_origin_host(origin) == hosts[0].lower()
            if len(origins) > 1 or not (own or origin in self.origins):
                raise RequestRejected(
                    403, f"Origin {origin[:100]!r} may not ask: start the server with --allow-origin"
                )


def parse_host(host: str) -> str | None:
    found = HOST_PATTERN.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else None


def normalize_origin(origin: str) -> str:
    """As browsers write it: in small letters, without a slash, without its scheme's own port."""
    found = ORIGIN_PATTERN.fullmatch(origin.strip().lower())
    if not found:
        raise ConfigError(
            f"--allow-origin is {origin!r}, but must be a scheme and a name, such as https://example.org"
        )
    port = "" if found["port"] in (None, DEFAULT_PORTS.get(found["scheme"])) else f":{found['port']}"
    return f"{found['scheme']}://{found['host']}{port}"


def parse_origin_host(origin: str) -> str | None:
    try:
        found = urlsplit(origin)
    except ValueError:
        return None
    return found.netloc.lower() if found.scheme in ("http", "https") else None


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class RequestMiddleware:
    """Around the application."""

    def __init__(
        self,
        app: App,
        limits: ServerLimits,
        allowed_hosts: AllowedHosts,
        queue: JobQueue,
        paths: Iterable[str],
        record_request: Callable[[str, int, float], None],
    ) -> None:
        self.app, self.limits, self.allowed_hosts, self.queue, self.record_request = (
            app,
            limits,
            allowed_hosts,
            queue,
            record_request,
        )
        self.paths = frozenset(paths)
        self.buffered_bytes = 0  # bytes of bodies
        self.parse_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = ResponseSender(send, scope, self.allowed_hosts)
        start = time.monotonic()
        try:
            await self._handle(scope, receive, answer)
        except RequestRejected as no:
            await answer.send_error(no)
        except ClientDisconnected:
            answer.status = answer.status or 499
        except Exception as fault:
            log_exception(fault)
            if not answer.status:
                await answer.send_error(RequestRejected(500, INTERNAL_ERROR))
        self.record_request(self._metric_path(scope), answer.status, time.monotonic() - start)

    def _metric_path(self, scope: Scope) -> str:
        """The path if it is one of ours: others may hold anything."""
        return scope["path"] if scope["path"] in self.paths else "other"

    async def _handle(self, scope: Scope, receive: Receive, answer: "ResponseSender") -> None:
        said: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            said.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        self.allowed_hosts.check(said.get("host", []), said.get("origin", []))
        if scope["method"] == "OPTIONS" and answer.cross_origin:
            await answer.send_response(204, {**PREFLIGHT_HEADERS}, b"")
            return
        if scope["path"] in QUEUED_PATHS and scope["method"] == "POST" and self.queue.is_full:
            raise queue_full_error(self.queue)
        taken = BodyBuffer(self)
        try:
            body = await self._read_body(said.get("content-length", []), receive, taken)
            if scope["path"] in QUEUED_PATHS:
                await self._wait_for_turn()
            await self.app(scope, replay_body(body, receive), answer.send)
        finally:
            taken.release()

    async def _wait_for_turn(self) -> None:
        """Of many requests that come at once one is read at a time: so /health never waits for them all."""
        self.queue.incoming += 1
        try:
            async with self.parse_lock:
                await asyncio.sleep(0)
        finally:
            self.queue.incoming -= 1

    async def _read_body(self, lengths: list[str], receive: Receive, taken: "BodyBuffer") -> bytes:
        most = self.limits.max_body_bytes
        if any(length.isdecimal() and int(length[:20]) > most for length in lengths):
            raise body_too_large_error(most)
        pieces = []
        try:
            async with asyncio.timeout(self.limits.client_timeout):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    pieces.append(message.get("body", b""))
                    taken.add(len(pieces[-1]))
                    if taken.num_bytes > most:
                        raise body_too_large_error(most)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RequestRejected(
                408,
                f"the request did not come within {self.limits.client_timeout:g} seconds",
                connection="close",
            ) from None
        return b"".join(pieces)


class BodyBuffer:
    """Room for one body, out of that for all."""

    def __init__(self, guard: RequestMiddleware) -> None:
        self.middleware, self.num_bytes = guard, 0

    def add(self, count: int) -> None:
        self.middleware.buffered_bytes += count
        self.num_bytes += count
        if self.middleware.buffered_bytes > self.middleware.limits.max_buffered_bytes:
            raise RequestRejected(503, "too much is being sent at once", retry_after="1", connection="close")

    def release(self) -> None:
        self.middleware.buffered_bytes -= self.num_bytes


PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class ResponseSender:
    """An answer on its way: its status is remembered, and the headers are added that all of ours have."""

    def __init__(self, send: Send, scope: Scope, doors: AllowedHosts) -> None:
        self._send, self.status = send, 0
        origin = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"origin"), None)
        self.cross_origin = origin if origin in doors.origins else None

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ours = SECURITY_HEADERS if self.cross_origin is None else SECURITY_HEADERS | {
                "access-control-allow-origin": self.cross_origin,
                "cross-origin-resource-policy": "cross-origin",
                "vary": "Origin",
            }  # fmt: skip
            message["headers"] = [*message.get("headers", []), *encode_headers(ours)]
        await self._send(message)

    async def send_error(self, no: RequestRejected) -> None:
        body = json.dumps({"error": no.error}).encode()
        await self.send_response(no.status, {"content-type": "application/json", **no.headers}, body)

    async def send_response(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {} if status == 204 else {"content-length": str(len(body))}
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": encode_headers({**headers, **length}),
        }
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def replay_body(body: bytes, receive: Receive) -> Receive:
    """The body as one message, and then what comes after it: that the client leaves."""
    waiting: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return next_message


def queue_full_error(queue: JobQueue) -> RequestRejected:
    return RequestRejected(
        503, f"{queue.limits.queue_size} requests are waiting already", retry_after=str(queue.retry_after)
    )


def body_too_large_error(most: int) -> RequestRejected:
    # The connection is closed, or the rest of the body would have to be read.
    return RequestRejected(413, f"the body has more than {most} bytes", connection="close")


def log_exception(fault: BaseException) -> None:
    """Where it happened, but not its message, which may quote a text."""
    where = "".join(traceback.format_tb(fault.__traceback__))
    LOG.error("%s\n%s", type(fault).__name__, where)
