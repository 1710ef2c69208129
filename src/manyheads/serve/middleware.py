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
from manyheads.serve.limits import Limits
from manyheads.serve.queue import Queue

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("manyheads.serve")
BUG = "a fault of the server; its log says where"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
QUEUED = frozenset(["/translate", "/score", "/attention", "/look", "/walk"])  # what waits for the model
HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)
ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
DEFAULT_PORTS = {"http": "80", "https": "443"}
SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Refused(Exception):
    """An answer that is no result."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error
        self.sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}


class ClientLeft(Exception):
    """Nobody waits for an answer."""


@dataclass(frozen=True)
class Doors:
    """Under which names the server may be called, and from which pages.

    A page elsewhere that has a name lead here (DNS rebinding) is told by its Host; one that asks across
    by its Origin. Bound to every address, the server may be called by any address, but by no other name.
    """

    hosts: frozenset[str]
    any_address: bool = False
    origins: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, host: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> "Doors":
        names = {*LOOPBACK, host.strip("[]").lower(), *(one.strip("[]").lower() for one in hosts)}
        return cls(
            frozenset(names - set(EVERYWHERE)), host in EVERYWHERE, frozenset(map(normal_origin, origins))
        )

    def check(self, hosts: list[str], origins: list[str]) -> None:
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self.hosts or (self.any_address and is_address(name))):
            raise Refused(
                403, f"Host {','.join(hosts)[:100]!r} is not this server's: start it with --allow-host"
            )
        for origin in origins:
            own = urlsplit_or_none(origin) == hosts[0].lower()
            if len(origins) > 1 or not (own or origin in self.origins):
                raise Refused(
                    403, f"Origin {origin[:100]!r} may not ask: start the server with --allow-origin"
                )


def host_name(host: str) -> str | None:
    found = HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else None


def normal_origin(origin: str) -> str:
    """As browsers write it: in small letters, without a slash, without its scheme's own port."""
    found = ORIGIN.fullmatch(origin.strip().lower())
    if not found:
        raise ConfigError(
            f"--allow-origin is {origin!r}, but must be a scheme and a name, such as https://example.org"
        )
    port = "" if found["port"] in (None, DEFAULT_PORTS.get(found["scheme"])) else f":{found['port']}"
    return f"{found['scheme']}://{found['host']}{port}"


def urlsplit_or_none(origin: str) -> str | None:
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


class Guard:
    """Around the application."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        doors: Doors,
        queue: Queue,
        paths: Iterable[str],
        tell: Callable[[str, int, float], None],
    ) -> None:
        self.app, self.limits, self.doors, self.queue, self.tell = app, limits, doors, queue, tell
        self.paths = frozenset(paths)
        self.held = 0  # bytes of bodies
        self.turnstile = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = Answer(send, scope, self.doors)
        start = time.monotonic()
        try:
            await self._let_in(scope, receive, answer)
        except Refused as no:
            await answer.refuse(no)
        except ClientLeft:
            answer.status = answer.status or 499
        except Exception as fault:
            log_bug(fault)
            if not answer.status:
                await answer.refuse(Refused(500, BUG))
        self.tell(self._name(scope), answer.status, time.monotonic() - start)

    def _name(self, scope: Scope) -> str:
        """The path if it is one of ours: others may hold anything."""
        return scope["path"] if scope["path"] in self.paths else "other"

    async def _let_in(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        said: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            said.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        self.doors.check(said.get("host", []), said.get("origin", []))
        if scope["method"] == "OPTIONS" and answer.cross_origin:
            await answer.send_all(204, {**PREFLIGHT}, b"")
            return
        if scope["path"] in QUEUED and scope["method"] == "POST" and self.queue.full:
            raise busy(self.queue)
        taken = Taken(self)
        try:
            body = await self._body(said.get("content-length", []), receive, taken)
            if scope["path"] in QUEUED:
                await self._take_turn()
            await self.app(scope, replayed(body, receive), answer.send)
        finally:
            taken.give_back()

    async def _take_turn(self) -> None:
        """Of many requests that come at once one is read at a time: so /health never waits for them all."""
        self.queue.coming += 1
        try:
            async with self.turnstile:
                await asyncio.sleep(0)
        finally:
            self.queue.coming -= 1

    async def _body(self, lengths: list[str], receive: Receive, taken: "Taken") -> bytes:
        most = self.limits.body
        if any(length.isdecimal() and int(length[:20]) > most for length in lengths):
            raise too_large(most)
        pieces = []
        try:
            async with asyncio.timeout(self.limits.patience):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    pieces.append(message.get("body", b""))
                    taken.take(len(pieces[-1]))
                    if taken.bytes > most:
                        raise too_large(most)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refused(
                408, f"the request did not come within {self.limits.patience:g} seconds", connection="close"
            ) from None
        return b"".join(pieces)


class Taken:
    """Room for one body, out of that for all."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.bytes = guard, 0

    def take(self, count: int) -> None:
        self.guard.held += count
        self.bytes += count
        if self.guard.held > self.guard.limits.held:
            raise Refused(503, "too much is being sent at once", retry_after="1", connection="close")

    def give_back(self) -> None:
        self.guard.held -= self.bytes


PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Answer:
    """An answer on its way: its status is remembered, and the headers are added that all of ours have."""

    def __init__(self, send: Send, scope: Scope, doors: Doors) -> None:
        self._send, self.status = send, 0
        origin = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"origin"), None)
        self.cross_origin = origin if origin in doors.origins else None

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            ours = SAFE if self.cross_origin is None else SAFE | {
                "access-control-allow-origin": self.cross_origin,
                "cross-origin-resource-policy": "cross-origin",
                "vary": "Origin",
            }  # fmt: skip
            message["headers"] = [*message.get("headers", []), *encoded(ours)]
        await self._send(message)

    async def refuse(self, no: Refused) -> None:
        body = json.dumps({"error": no.error}).encode()
        await self.send_all(no.status, {"content-type": "application/json", **no.sent_headers}, body)

    async def send_all(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {} if status == 204 else {"content-length": str(len(body))}
        start = {"type": "http.response.start", "status": status, "headers": encoded({**headers, **length})}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, and then what comes after it: that the client leaves."""
    waiting: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return next_message


def busy(queue: Queue) -> Refused:
    return Refused(
        503, f"{queue.limits.queue} requests are waiting already", retry_after=str(queue.retry_after)
    )


def too_large(most: int) -> Refused:
    # The connection is closed, or the rest of the body would have to be read.
    return Refused(413, f"the body has more than {most} bytes", connection="close")


def log_bug(fault: BaseException) -> None:
    """Where it happened, but not its message, which may quote a text."""
    where = "".join(traceback.format_tb(fault.__traceback__))
    LOG.error("%s\n%s", type(fault).__name__, where)
