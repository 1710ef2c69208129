"""Opening the models, listening, and stopping when everything that was accepted is done."""

import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from manyheads.errors import ConfigError, RequestError
from manyheads.serve.app import application
from manyheads.serve.http_protocol import protocol
from manyheads.serve.limits import Limits
from manyheads.serve.middleware import Doors, Guard
from manyheads.serve.worker import named
from manyheads.translator import load

LOG = logging.getLogger("manyheads.serve")
AT_ONCE = 16  # connections that are taken before anything else is done
KNOCKING = 2048  # connections that wait to be taken
SWITCH = 0.0005  # seconds after which the working thread lets the one that answers have a turn


def serve(
    folders: Sequence[Path],
    host: str = "127.0.0.1",
    port: int = 5000,
    *,
    engine: str = "torch",
    device: str | None = None,
    limits: Limits | None = None,
    api_key: str | None = None,
    allow_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    log_text: bool = False,
    log_requests: bool = True,
    runs: Sequence[Path] = (),
) -> None:
    """Serves until SIGTERM or Ctrl-C; what was accepted by then is finished."""
    limits = limits or Limits()
    doors = Doors.of(host, allow_hosts, allow_origins)
    if api_key is not None and not api_key.strip():
        raise ConfigError("the API key is empty: give one (--api-key or MANYHEADS_API_KEY), or none at all")
    listening = bound(host, port)
    models = named([load(folder, engine=engine, device=device) for folder in folders])
    for one in models:
        one.translator.translate("A first sentence is slow.")  # and shows that the model works
    app = application(
        models,
        limits,
        doors,
        api_key=api_key,
        log_text=log_text,
        log_requests=log_requests,
        runs=runs,
    )
    begin_log()
    prepare_process()
    pairs = ", ".join(f"{one.name} ({one.translator.engine.name})" for one in models)
    try:
        listening_server(app, pairs).run(sockets=[listening])
    finally:
        gc.unfreeze()


def listening_server(app: Guard, what: str = "") -> "Listening":
    """uvicorn, with our limits; and what it tells when it is there."""
    limits = app.limits
    config = uvicorn.Config(
        app, http=protocol(limits, app.queue, app.tell), ws="none", lifespan="on", log_config=None,
        access_log=False, server_header=False, backlog=AT_ONCE, h11_max_incomplete_event_size=limits.head,
        timeout_graceful_shutdown=int(limits.deadline + 2 * limits.patience) + 1,
    )  # fmt: skip
    return Listening(config, what)


class Listening(uvicorn.Server):
    """Takes a few connections at a time, while a thousand may knock."""

    def __init__(self, config: uvicorn.Config, what: str) -> None:
        super().__init__(config)
        self.what = what

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(KNOCKING)
            LOG.info("%s on %s", self.what, url(one))


def bound(host: str, port: int) -> socket.socket:
    """An address of our own, on which nobody is heard yet."""
    found = None
    try:
        passive = socket.AI_PASSIVE
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=passive)
        family, kind, proto, _, address = places[0]
        found = socket.socket(family, kind, proto)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as fault:
        if found:
            found.close()
        raise RequestError(
            f"cannot listen on {host}:{port} ({fault.strerror or fault}): choose another --host or --port"
        ) from None
    return found


def url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def begin_log() -> None:
    """On stderr, a line each."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    LOG.handlers = [lines]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def prepare_process() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn stops, raises it again, and all is well
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # what is here now stays: looking through it took 300 ms, in which nobody was answered
    with suppress(ImportError, ValueError, OSError):  # a thousand clients are a thousand files
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
