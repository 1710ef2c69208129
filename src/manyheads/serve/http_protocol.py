"""The HTTP/1.1 protocol of uvicorn with timeouts for slow clients, and cheap 503s when the server is full."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyheads.serve.limits import ServerLimits
from manyheads.serve.middleware import QUEUED_PATHS
from manyheads.serve.queue import JobQueue
from manyheads.serve.strict_http import StrictReceiveBuffer

QUEUED_REQUEST_LINES = tuple(f"POST {path}".encode() for path in QUEUED_PATHS)
RecordRequest = Callable[[str, int, float], None]


def create_protocol(limits: ServerLimits, queue: JobQueue, record: RecordRequest) -> type[H11Protocol]:
    """Create the protocol class for uvicorn, which takes no arguments for it."""

    class ConfiguredProtocol(LimitedProtocol):
        pass

    ConfiguredProtocol.limits = limits
    ConfiguredProtocol.queue = queue
    ConfiguredProtocol.record_request = staticmethod(record)
    return ConfiguredProtocol


class LimitedProtocol(H11Protocol):
    """Closes connections whose client is too slow to send its headers or to read its response."""

    limits: ServerLimits
    queue: JobQueue
    record_request: RecordRequest
    _header_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn._receive_buffer = self._buffer = StrictReceiveBuffer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._reject("too many connections", 1)
            return
        self._update_header_timer()

    def data_received(self, data: bytes) -> None:
        """While the queue is full, reject requests before they are parsed, which takes longer."""
        is_new_request = self.cycle is None or self.cycle.response_complete
        if is_new_request and self.queue.is_full and data.startswith(QUEUED_REQUEST_LINES):
            self._reject(self.queue.full_message, self.queue.retry_after)
            return
        super().data_received(data)
        self._update_header_timer()

    def _reject(self, error: str, retry_after: int) -> None:
        self.transport.write(format_503(error, retry_after))
        self.transport.close()
        self.record_request("rejected", 503, 0.0)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header_timer, self._response_timer):
            cancel_timer(timer)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Mark a response that is still to come as the last one of its connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            headers = self.cycle.scope["headers"]
            self.cycle.scope["headers"] = [*headers, (b"connection", b"close")]
        super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_timer = self.loop.call_later(self.limits.client_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        cancel_timer(self._response_timer)

    def _update_header_timer(self) -> None:
        """The timer runs until the headers of a request are complete."""
        if self.cycle is not None and not self.cycle.response_complete:
            cancel_timer(self._header_timer)
            self._header_timer = None
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.limits.client_timeout, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer in JSON, as all other errors."""
        if self.conn.our_state is not h11.IDLE:
            self.transport.close()
            return
        error = self._buffer.problem or "not an HTTP/1.1 request, or its headers are too long"
        body = json.dumps({"error": error}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def format_503(error: str, retry_after: int) -> bytes:
    body = json.dumps({"error": error})
    return (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: {retry_after}\r\nconnection: close\r\n\r\n{body}"
    ).encode()


def cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
