"""uvicorn's HTTP/1.1 protocol with an end to its patience: for headers, and for answers that nobody takes."""

import asyncio
import json
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyheads.serve.limits import ServerLimits
from manyheads.serve.middleware import QUEUED_PATHS
from manyheads.serve.queue import JobQueue

QUEUED_REQUEST_LINES = tuple(f"POST {path}".encode() for path in QUEUED_PATHS)


def format_503(error: str, retry_after: int) -> bytes:
    body = json.dumps({"error": error})
    return (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: {retry_after}\r\nconnection: close\r\n\r\n{body}"
    ).encode()


def create_protocol(
    limits: ServerLimits, queue: JobQueue, tell: Callable[[str, int, float], None]
) -> type[H11Protocol]:
    """The protocol under these limits. In a flood it refuses by itself: reading a request takes longer."""

    class Patient(H11Protocol):
        _headers: asyncio.TimerHandle | None = None
        _answer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                self._refuse("too many connections", 1)
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            begins = self.cycle is None or self.cycle.response_complete
            if begins and queue.is_full and data.startswith(QUEUED_REQUEST_LINES):
                self._refuse(f"{limits.queue_size} requests are waiting already", queue.retry_after)
                return
            super().data_received(data)
            self._watch()

        def _refuse(self, error: str, retry_after: int) -> None:
            self.transport.write(format_503(error, retry_after))
            self.transport.close()
            tell("refused", 503, 0.0)

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._headers, self._answer):
                cancel_timer(timer)
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """The answer that is still to come says that it is the last."""
            if self.cycle is not None and not self.cycle.response_complete:
                headers = self.cycle.scope["headers"]
                self.cycle.scope["headers"] = [*headers, (b"connection", b"close")]
            super().shutdown()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer = self.loop.call_later(limits.client_timeout, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            cancel_timer(self._answer)

        def _watch(self) -> None:
            """Time runs while a request has begun and its headers are not all here."""
            if self.cycle is not None and not self.cycle.response_complete:
                cancel_timer(self._headers)
                self._headers = None
            elif self._headers is None:
                self._headers = self.loop.call_later(limits.client_timeout, self.transport.abort)

        def send_400_response(self, msg: str) -> None:
            """In JSON, as all our refusals."""
            if self.conn.our_state is not h11.IDLE:
                self.transport.close()
                return
            body = b'{"error": "not a request of HTTP/1.1, or its headers are too long"}'
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

    return Patient


def cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
