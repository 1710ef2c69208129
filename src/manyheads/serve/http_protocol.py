"""uvicorn's HTTP/1.1 protocol with an end to its patience: for headers, and for answers that nobody takes."""

import asyncio
import json
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyheads.serve.limits import Limits
from manyheads.serve.middleware import QUEUED
from manyheads.serve.queue import Queue

QUEUED_LINES = tuple(f"POST {path}".encode() for path in QUEUED)


def refusal(error: str, retry_after: int) -> bytes:
    body = json.dumps({"error": error})
    return (
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: {retry_after}\r\nconnection: close\r\n\r\n{body}"
    ).encode()


def protocol(limits: Limits, queue: Queue, tell: Callable[[str, int, float], None]) -> type[H11Protocol]:
    """The protocol under these limits. In a flood it refuses by itself: reading a request takes longer."""

    class Patient(H11Protocol):
        _headers: asyncio.TimerHandle | None = None
        _answer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._refuse("too many connections", 1)
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            begins = self.cycle is None or self.cycle.response_complete
            if begins and queue.full and data.startswith(QUEUED_LINES):
                self._refuse(f"{limits.queue} requests are waiting already", queue.retry_after)
                return
            super().data_received(data)
            self._watch()

        def _refuse(self, error: str, retry_after: int) -> None:
            self.transport.write(refusal(error, retry_after))
            self.transport.close()
            tell("refused", 503, 0.0)

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._headers, self._answer):
                stopped(timer)
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """The answer that is still to come says that it is the last."""
            if self.cycle is not None and not self.cycle.response_complete:
                headers = self.cycle.scope["headers"]
                self.cycle.scope["headers"] = [*headers, (b"connection", b"close")]
            super().shutdown()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._answer = self.loop.call_later(limits.patience, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            stopped(self._answer)

        def _watch(self) -> None:
            """Time runs while a request has begun and its headers are not all here."""
            if self.cycle is not None and not self.cycle.response_complete:
                stopped(self._headers)
                self._headers = None
            elif self._headers is None:
                self._headers = self.loop.call_later(limits.patience, self.transport.abort)

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


def stopped(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
