"""Servers to ask: in this process, or listening on a socket of its own."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from manyheads.serve.app import application
from manyheads.serve.guard import Doors
from manyheads.serve.limits import Limits
from manyheads.serve.server import listening_server
from scripted import Scripted, served

Asking = Callable[..., AbstractContextManager[TestClient]]
Listening = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def asking() -> Asking:
    @contextmanager
    def ask(
        *translators: Scripted, limits: Limits | None = None, doors: Doors | None = None, **how: Any
    ) -> Any:
        app = application(served(*(translators or (Scripted(),))), limits, doors, **how)
        with TestClient(app, base_url="http://localhost") as client:
            yield client

    return ask


@pytest.fixture(scope="module")
def client(asking: Asking) -> Iterator[TestClient]:
    with asking() as found:
        yield found


@pytest.fixture
def listening() -> Listening:
    """A server on a port, in a thread: the whole of it, as `manyheads serve` runs it."""

    @contextmanager
    def listen(*translators: Scripted, limits: Limits | None = None, **how: Any) -> Iterator[int]:
        app = application(served(*(translators or (Scripted(),))), limits, **how)
        server = listening_server(app)
        place = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield place.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            place.close()
            assert not thread.is_alive()

    return listen
