"""Plain ASGI middleware: metrics and security headers of every response, and limits on request bodies.

The body is read here, piece by piece, so that nothing is parsed that is too large or too slow.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manyheads.serve.limits import ServerLimits
from manyheads.serve.queue import JobQueue
from manyheads.serve.responses import INTERNAL_ERROR, ClientDisconnected, RequestRejected

LOG = logging.getLogger("manyheads.serve")
FILE_PATH = "/translate_file"
QUEUED_PATHS = frozenset(  # they wait for the model
    ["/translate", FILE_PATH, "/v2/translate", "/score", "/attention", "/look", "/walk"]
)
DOWNLOADS = "/download_file/"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
PRIVATE_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
SHARED_HEADERS = [  # of responses that other origins may read
    (name, b"cross-origin" if name == b"cross-origin-resource-policy" else value)
    for name, value in PRIVATE_HEADERS
]


class RequestMiddleware:
    """Outermost layer: records every request, adds security headers, answers 500 to unexpected errors."""

    def __init__(
        self, app: ASGIApp, paths: Iterable[str], record_request: Callable[[str, int, float], None]
    ) -> None:
        self.app, self.record_request = app, record_request
        self.paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sender = ResponseSender(send)
        start = time.monotonic()
        try:
            await self.app(scope, receive, sender.send)
        except ClientDisconnected:
            sender.status = sender.status or 499
        except Exception as error:
            log_exception(error)
            if not sender.status:
                response = RequestRejected(500, INTERNAL_ERROR).to_response()
                await response(scope, receive, sender.send)
        self.record_request(self._metric_path(scope), sender.status, time.monotonic() - start)

    def _metric_path(self, scope: Scope) -> str:
        """The path if it is a route; others may hold anything, and become "other"."""
        path: str = scope["path"]
        if path.startswith(DOWNLOADS):
            return f"{DOWNLOADS}..."
        return path if path in self.paths else "other"


class ResponseSender:
    """Passes a response on with the security headers, and keeps its status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message["headers"])
            is_shared = any(name == b"access-control-allow-origin" for name, _ in headers)
            message["headers"] = headers + (SHARED_HEADERS if is_shared else PRIVATE_HEADERS)
        await self._send(message)


class BodyLimitMiddleware:
    """Reads bodies under limits of size, memory and time, and answers 503 while the queue is full."""

    def __init__(self, app: ASGIApp, limits: ServerLimits, queue: JobQueue) -> None:
        self.app, self.limits, self.queue = app, limits, queue
        self.buffered_bytes = 0  # of all bodies
        self.parse_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        buffer = BodyBuffer(self)
        try:
            body = await self._accept_body(scope, receive, buffer)
            await self.app(scope, replay_body(body, receive), send)
        except RequestRejected as error:
            await error.to_response(scope["path"])(scope, receive, send)
        finally:
            buffer.release()

    async def _accept_body(self, scope: Scope, receive: Receive, buffer: "BodyBuffer") -> bytes:
        is_queued = scope["path"] in QUEUED_PATHS
        if is_queued and scope["method"] == "POST" and self.queue.is_full:
            raise queue_full_error(self.queue)
        max_bytes = self.limits.max_file_bytes if scope["path"] == FILE_PATH else self.limits.max_body_bytes
        lengths = Headers(scope=scope).getlist("content-length")
        body = await self._read_body(lengths, receive, buffer, max_bytes)
        if is_queued:
            await self._wait_for_turn()
        return body

    async def _wait_for_turn(self) -> None:
        """Parse one of many simultaneous requests at a time, so that /health never waits for all of them."""
        self.queue.incoming += 1
        try:
            async with self.parse_lock:
                await asyncio.sleep(0)
        finally:
            self.queue.incoming -= 1

    async def _read_body(
        self, lengths: list[str], receive: Receive, buffer: "BodyBuffer", max_bytes: int
    ) -> bytes:
        if any(length.isdecimal() and int(length[:20]) > max_bytes for length in lengths):
            raise body_too_large_error(max_bytes)
        chunks = []
        try:
            async with asyncio.timeout(self.limits.client_timeout):
                has_more = True
                while has_more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    chunks.append(message.get("body", b""))
                    buffer.add(len(chunks[-1]))
                    if buffer.num_bytes > max_bytes:
                        raise body_too_large_error(max_bytes)
                    has_more = message.get("more_body", False)
        except TimeoutError:
            raise RequestRejected(
                408,
                f"the request did not arrive within {self.limits.client_timeout:g} seconds",
                connection="close",
            ) from None
        return b"".join(chunks)


class BodyBuffer:
    """The bytes of one body, counted against the limit for all bodies."""

    def __init__(self, middleware: BodyLimitMiddleware) -> None:
        self.middleware, self.num_bytes = middleware, 0

    def add(self, count: int) -> None:
        self.middleware.buffered_bytes += count
        self.num_bytes += count
        if self.middleware.buffered_bytes > self.middleware.limits.max_buffered_bytes:
            raise RequestRejected(
                503, "too much data is being received: retry later", retry_after="1", connection="close"
            )

    def release(self) -> None:
        self.middleware.buffered_bytes -= self.num_bytes


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that gives the body as one message, then what follows it: the disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return messages.pop() if messages else await receive()

    return receive_next


def share_exceeded_error(queue: JobQueue) -> RequestRejected:
    return RequestRejected(
        429, "too many requests of one client are waiting", retry_after=str(queue.retry_after)
    )


def queue_full_error(queue: JobQueue) -> RequestRejected:
    return RequestRejected(503, queue.full_message, retry_after=str(queue.retry_after))


def body_too_large_error(max_bytes: int) -> RequestRejected:
    # The connection is closed; otherwise the rest of the body would have to be read.
    return RequestRejected(413, f"the body has more than {max_bytes} bytes", connection="close")


def log_exception(error: BaseException) -> None:
    """Log where an error happened, but not its message, which may quote a text."""
    LOG.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
