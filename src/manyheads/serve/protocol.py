"""uvicorn's HTTP/1.1 protocol with an end to its patience: for headers, and for answers that nobody takes."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from manyheads.serve.limits import Limits

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 33\r\n"
    b'retry-after: 1\r\nconnection: close\r\n\r\n{"error": "too many connections"}'
)


def protocol(limits: Limits) -> type[H11Protocol]:
    """The protocol under these limits."""

    class Patient(H11Protocol):
        _headers: asyncio.TimerHandle | None = None
        _answer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.write(REFUSAL)
                transport.close()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._headers, self._answer):
                stopped(timer)
            super().connection_lost(exc)

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
